import os
import socket

import pytest

from hkconv.opening import check_regular, open_regular, read_text


def make_pipe(path):
    os.mkfifo(path)


def make_socket(path):
    socket.socket(socket.AF_UNIX).bind(str(path))


def make_link_to_device(path):
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [make_pipe, make_socket, make_link_to_device, os.mkdir])
@pytest.mark.parametrize("use", [open_regular, check_regular, read_text])
def test_what_never_ends_or_is_no_file_is_refused_at_once(make, use, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    path = tmp_path / "it"
    make(path.relative_to(tmp_path) if make is make_socket else path)
    with pytest.raises(OSError) as caught:
        use(path)
    assert caught.value.strerror


def test_a_link_to_a_file_is_that_file(tmp_path):
    (tmp_path / "there").write_text("größer", encoding="utf-8")
    (tmp_path / "it").symlink_to("there")
    assert read_text(tmp_path / "it") == "größer"
