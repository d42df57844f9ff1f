"""Clients that put things off, more of them than a server may have files open."""

import contextlib
import re
import resource
import signal
import socket
import threading
import time
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

import httpx
import pytest
from served import serving, serving_process

from hkconv.serving.connections import MOST_CONNECTIONS, SPARE_FILES, max_connections

OK = '{"status":"ok"}'
HEALTH = b"GET /health HTTP/1.1\r\nhost: here\r\n\r\n"
HALF_A_HEADER = HEALTH[:-2] + b"x: "
# Neither a token nor the limit on requests guards this path.
HALF_A_BODY = b"POST /health HTTP/1.1\r\nhost: here\r\ncontent-length: 1000\r\n\r\n"


def connect(address):
    where = urlsplit(str(address))
    return socket.create_connection((where.hostname, where.port), timeout=30)


class Flood:
    """Connections that send a beginning and then, a few times a second, a little more."""

    def __init__(self, address, count, beginning, more=b"a"):
        self.open = []
        self.received = b""
        for _ in range(count):
            connection = connect(address)
            connection.sendall(beginning)
            connection.setblocking(False)
            self.open.append(connection)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._drip, args=(more,))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join()
        for connection in self.open:
            connection.close()

    def _drip(self, more):
        while not self._is_over.wait(0.2):
            self.open = [connection for connection in self.open if self._is_heard(connection, more)]

    def _is_heard(self, connection, more):
        try:
            with contextlib.suppress(BlockingIOError):
                while received := connection.recv(65536):
                    self.received += received
                connection.close()
                return False
            connection.send(more)
        except ConnectionError:
            connection.close()
            return False
        return True

    def wait_until_closed(self, seconds):
        end = time.monotonic() + seconds
        while self.open:
            assert time.monotonic() < end, f"{len(self.open)} are still open after {seconds} s"
            time.sleep(0.02)


def keep(address):
    """A connection for one request after the other."""
    connection = HTTPConnection(urlsplit(address).netloc, timeout=30)
    connection.connect()
    connection.auto_open = False
    return contextlib.closing(connection)


def ask(connection, path="/health"):
    """The answer, None where the connection has been closed."""
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    except (ConnectionError, HTTPException):
        return None


def assert_answers(address):
    """Health and a prediction, each on a connection of its own and within a few seconds."""
    assert httpx.get(f"{address}/health", timeout=5).json() == {"status": "ok"}
    answer = httpx.post(f"{address}/predict/nodes", json={"ids": ["paper 1"]}, timeout=5)
    assert answer.json()["predictions"][0]["id"] == "paper 1"


def test_slow_headers_and_bodies_starve_nobody_and_do_not_fill_the_log(papers):
    with serving_process(papers, "--max-seconds", 1, open_files=256) as (address, process):
        with Flood(address, 400, HALF_A_HEADER) as flood:
            assert_answers(address)
            flood.wait_until_closed(10)
            assert flood.received == b""
        with Flood(address, 400, HALF_A_BODY) as flood:
            assert_answers(address)
            flood.wait_until_closed(10)
            assert flood.received.count(b"connection: close\r\n") == flood.received.count(b"HTTP/1.1 408") > 50
        # Who comes while the server is busy waits to be accepted.
        process.send_signal(signal.SIGSTOP)
        waiting = [connect(address) for _ in range(100)]
        process.send_signal(signal.SIGCONT)
        for connection in waiting:
            connection.close()
        for _ in range(60):
            with connect(address) as connection:
                connection.sendall(b"nonsense\r\n\r\n")
                assert connection.recv(65536).startswith(b"HTTP/1.1 400")
        with Flood(address, 400, HALF_A_HEADER):
            assert_answers(address)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 128 + signal.SIGTERM
        lines = process.stderr.read().splitlines()
    told = {
        what: sum(int(re.search(r"(\d+) x ", line)[1]) for line in lines if what in line)
        for what in ("its header took more than 1 s", "there is room for 144", "Invalid HTTP request received")
    }
    # Those that were closed to make room are at least those of which there were too many.
    assert told["its header took more than 1 s"] > 50 and told["there is room for 144"] >= 2 * (400 - 144)
    assert told["Invalid HTTP request received"] == 60
    assert len(lines) < 20, lines


@contextlib.contextmanager
def limited_files(count):
    """This process may have so many files open, for as long as a server begins."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def few(papers):
    """The address of a server with room for five connections."""
    with contextlib.ExitStack() as stack:
        with limited_files(SPARE_FILES + 5):
            client = stack.enter_context(serving(papers, max_seconds=5))
        yield str(client.base_url)


def test_the_limit_on_open_files_leaves_some_for_the_process():
    for files, connections in ((1024, 1024 - SPARE_FILES), (MOST_CONNECTIONS + 500, MOST_CONNECTIONS), (90, 1)):
        with limited_files(files):
            assert max_connections() == connections


def test_idle_connections_make_room_the_oldest_first(few):
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(keep(few)) for _ in range(5)]
        assert [ask(connection) for connection in idle] == [OK] * 5
        assert_answers(few)
        assert [ask(connection) for connection in idle[::-1]] == [OK] * 4 + [None]


def test_a_flood_makes_room_before_clients_that_are_idle(few):
    with keep(few) as idle:
        assert ask(idle) == OK
        with Flood(few, 100, HALF_A_HEADER):
            assert_answers(few)
            assert ask(idle) == OK


def ask_without_reading(address):
    """A connection that has asked for more than the buffers of the system can hold."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((urlsplit(address).hostname, urlsplit(address).port))
    connection.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            connection.send(b"GET /openapi.json HTTP/1.1\r\nhost: here\r\n\r\n" * 1000)
    return connection


def test_clients_that_do_not_read_make_room_before_clients_that_are_idle(few):
    with keep(few) as idle, contextlib.ExitStack() as stack:
        assert ask(idle) == OK
        for _ in range(4):
            stack.enter_context(ask_without_reading(few))
        before = None
        while before != (before := re.findall("hkconv_requests.*openapi.*", ask(idle, "/metrics"))):
            time.sleep(0.1)
        assert_answers(few)
        assert ask(idle) == OK


def test_a_client_that_does_not_read_is_not_waited_for(papers):
    with serving(papers, max_seconds=0.3) as client, ask_without_reading(str(client.base_url)) as connection:
        end = time.monotonic() + 20
        with pytest.raises(ConnectionError):
            while time.monotonic() < end:
                with contextlib.suppress(BlockingIOError):
                    connection.send(b"a")
                time.sleep(0.05)


def test_the_next_header_of_a_connection_has_the_time_of_the_first(papers):
    with (
        serving(papers, max_seconds=1) as client,
        Flood(client.base_url, 3, HEALTH, b"") as idle,
        Flood(client.base_url, 3, HEALTH, b"a") as flood,
    ):
        flood.wait_until_closed(10)
        assert flood.received.count(b"HTTP/1.1 200") == len(idle.open) == 3
