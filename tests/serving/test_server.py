import socket

import pytest

from hkconv.errors import InputError
from hkconv.serving.server import address_of, bind, is_loopback


def test_a_free_port_is_found_and_listened_on_at_once():
    with bind("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        assert address_of(listening) == f"http://127.0.0.1:{port}" and is_loopback(listening)
        socket.create_connection(("127.0.0.1", port)).close()


def test_a_port_in_use_and_an_unknown_host_are_named():
    with bind("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(
            InputError, match=f"host 127.0.0.1 and port {port} cannot be listened on \\(Address already"
        ):
            bind("127.0.0.1", port)
    for host in ("no.such.host.invalid", "x" * 300, "192.0.2.1"):
        with pytest.raises(InputError, match="cannot be listened on"):
            bind(host, 0)


def test_every_address_of_the_machine_is_not_loopback():
    with bind("0.0.0.0", 0) as listening:
        assert not is_loopback(listening)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_ipv6():
    try:
        listening = bind("::1", 0)
    except InputError:
        pytest.skip("no IPv6 here")
    with listening:
        assert address_of(listening) == f"http://[::1]:{listening.getsockname()[1]}" and is_loopback(listening)
