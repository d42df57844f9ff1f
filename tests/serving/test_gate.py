"""Over real connections, some of them written by hand: what a client library would never send."""

import asyncio
import re
import socket
import time
from urllib.parse import urlsplit

import pytest
from served import run_to_its_end, serving

from hkconv.errors import InputError
from hkconv.serving.gate import Gate, Metrics, find_token, is_allowed
from hkconv.serving.limits import Limits
from hkconv.serving.service import load_service

NODES = "/predict/nodes"
BODY = b'{"ids": ["paper 1"]}'
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def service(papers):
    return load_service(papers, device="cpu")


def connect(client):
    where = urlsplit(str(client.base_url))
    return socket.create_connection((where.hostname, where.port), timeout=60)


def head(length):
    return (
        f"POST {NODES} HTTP/1.1\r\nhost: here\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    ).encode()


def answer_to(connection):
    """The status and the body that come until the server closes or has sent all it announced."""
    received = b""
    while chunk := connection.recv(65536):
        received += chunk
        top, _, body = received.partition(b"\r\n\r\n")
        if b"content-length: %d" % len(body) in top:
            break
    return int(received.split()[1]), body


def counted(client, path, status):
    """How many such requests the server has counted, waiting a little for one that just ended."""
    line = f'hkconv_requests_total{{path="{path}",status="{status}"}} '
    for _ in range(200):
        found = [text for text in client.get("/metrics").text.splitlines() if text.startswith(line)]
        if found:
            return int(found[0].removeprefix(line))
        time.sleep(0.02)
    return 0


def chunks(count):
    for _ in range(count):
        yield b" " * 50_000


@pytest.mark.parametrize("body", [b" " * 2_000_000, chunks(40)], ids=["announced", "chunked"])
def test_a_body_that_is_too_long_is_refused_and_the_client_hears_why(service, body):
    """Two megabytes are more than sockets hold: a server that closes at once would cut off who is still sending."""
    with serving(service, max_bytes=1000) as client:
        response = client.post(NODES, content=body, headers=JSON)
        assert (response.status_code, response.json()) == (413, {"error": "the body must have at most 1000 bytes"})
        assert client.post(NODES, content=BODY.ljust(1000), headers=JSON).status_code == 200
        assert client.post(NODES, content=BODY.ljust(1001), headers=JSON).status_code == 413


def test_who_asks_before_sending_is_told_before(service):
    with serving(service, max_bytes=1000) as client, connect(client) as connection:
        connection.sendall(head(10**9).replace(b"host", b"expect: 100-continue\r\nhost"))
        assert answer_to(connection)[0] == 413
        with connect(client) as other:
            other.sendall(head(len(BODY)).replace(b"host", b"expect: 100-continue\r\nhost"))
            assert other.recv(65536).startswith(b"HTTP/1.1 100 ")
            other.sendall(BODY)
            assert answer_to(other)[0] == 200


def test_a_body_that_does_not_arrive_is_given_up(service):
    with serving(service, max_seconds=0.3) as client, connect(client) as connection:
        connection.sendall(head(len(BODY)) + BODY[:5])
        status, body = answer_to(connection)
        assert (status, body) == (408, b'{"error":"the body must arrive within 0.3 seconds"}')


def test_too_many_at_once_are_told_when_to_come_back(service):
    with serving(service, max_requests=2) as client:
        with connect(client) as first, connect(client) as second:
            for connection in (first, second):
                connection.sendall(head(len(BODY)) + BODY[:5])
            while "in_progress 3" not in client.get("/metrics").text:
                time.sleep(0.02)
            response = client.post(NODES, content=BODY, headers=JSON)
            assert response.status_code == 503 and response.headers["retry-after"] == "1"
            assert response.json() == {"error": "2 requests are being answered: try again in 1 s"}
            assert client.get("/health").status_code == 200
            for connection in (first, second):
                connection.sendall(BODY[5:])
                assert answer_to(connection)[0] == 200
        assert client.post(NODES, content=BODY, headers=JSON).status_code == 200


def test_a_client_that_leaves_gives_its_place_back(service):
    with serving(service, max_requests=1) as client:
        for _ in range(3):
            with connect(client) as connection:
                connection.sendall(head(len(BODY)) + BODY[:5])
        assert counted(client, NODES, 499)
        while client.post(NODES, content=BODY, headers=JSON).status_code == 503:
            time.sleep(0.02)
        assert client.post(NODES, content=BODY, headers=JSON).status_code == 200


def test_a_client_that_does_not_read_gives_its_place_back():
    sent = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"nobody reads this"})

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message["type"])
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    metrics = Metrics()
    gate = Gate(app, limits=Limits(max_seconds=0.1), token=None, metrics=metrics, paths={"/a"})
    run_to_its_end(gate({"type": "http", "path": "/a", "headers": []}, receive, send))
    assert sent == ["http.response.start", "http.response.body"]
    assert (gate.at_once, metrics.in_progress) == (0, 0)
    assert 'hkconv_requests_total{path="/a",status="499"} 1' in metrics.text()


def test_the_token_opens_everything_and_health_needs_none(service):
    with serving(service, token="secret") as client:
        assert client.get("/health").status_code == 200
        for method, path in (
            ("GET", "/run"),
            ("GET", "/metrics"),
            ("GET", "/"),
            ("GET", "/openapi.json"),
            ("GET", "/x"),
            ("POST", NODES),
        ):
            for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "secret"}):
                response = client.request(method, path, headers=headers)
                assert response.status_code == 401 and response.headers["www-authenticate"] == "Bearer"
                assert response.json() == {
                    "error": "the header Authorization must be Bearer and the token of this server"
                }
        # Who has no token does not learn how long a body may be.
        assert client.post(NODES, content=b" " * 2_000_000, headers=JSON).status_code == 401
        client.headers["authorization"] = "Bearer secret"
        assert client.post(NODES, content=BODY, headers=JSON).status_code == 200
        assert client.get("/metrics").status_code == 200 and client.get("/x").status_code == 404
        described = client.get("/openapi.json").json()
        assert described["paths"][NODES]["post"]["security"] == [{"HTTPBearer": []}]
        assert "401" in described["paths"][NODES]["post"]["responses"]
        assert "security" not in described["paths"]["/health"]["get"]


def test_clients_cannot_make_up_series(service):
    with serving(service) as client:
        for number in range(5):
            client.get(f"/made-up-{number}")
        text = client.get("/metrics").text
        assert 'hkconv_requests_total{path="other",status="404"} 5' in text and "made-up" not in text


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x00\xff\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"POST /predict/nodes HTTP/1.1\r\nhost: a\r\ncontent-length: -5\r\n\r\n",
        b"POST /predict/nodes HTTP/1.1\r\nhost: a\r\ncontent-length: " + b"9" * 5000 + b"\r\n\r\n",
        b"POST /predict/nodes HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        b"POST /predict/nodes HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /%ff%00/../../etc/passwd HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost: a\r\n" + b"x: y\r\n" * 50_000 + b"\r\n",
    ],
)
def test_what_is_no_http_is_refused(clients, request_bytes):
    client = clients["papers"]
    with connect(client) as connection:
        try:
            connection.sendall(request_bytes)
            received = connection.recv(65536)
        except ConnectionError:
            received = b""
        assert not received or received.split()[1].startswith(b"4")
    assert client.get("/health").status_code == 200


def values(text):
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")}


def test_requests_are_counted_by_path_and_status():
    metrics = Metrics()
    for path, status, seconds in (("/a", 200, 0.001), ("/a", 200, 0.02), ("/a", 422, 3), ("/b", 200, 60)):
        metrics.add_request(path, status, seconds)
    found = values(metrics.text())
    assert found['hkconv_requests_total{path="/a",status="200"}'] == 2
    assert found['hkconv_requests_total{path="/a",status="422"}'] == 1
    # Buckets hold all that took at most so long, their own end included.
    bounds = ("0.005", "0.02", "0.1", "0.5", "2.0", "10.0", "+Inf")
    counts = [found[f'hkconv_request_seconds_bucket{{path="/a",le="{bound}"}}'] for bound in bounds]
    assert counts == [1, 2, 2, 2, 2, 3, 3]
    assert found['hkconv_request_seconds_sum{path="/a"}'] == 3.021
    assert found['hkconv_request_seconds_count{path="/a"}'] == 3
    assert found['hkconv_request_seconds_bucket{path="/b",le="10.0"}'] == 0
    assert found['hkconv_request_seconds_bucket{path="/b",le="+Inf"}'] == 1


def test_each_metric_says_its_type_once_and_before_its_values():
    metrics = Metrics()
    metrics.in_progress, metrics.predictions = 2, 7
    metrics.add_request("/a", 200, 1)
    text = metrics.text()
    assert text.endswith("\n") and values(text)["hkconv_requests_in_progress"] == 2
    assert values(text)["hkconv_predictions_total"] == 7
    seen = []
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            seen.append(line.split()[2])
        elif not line.startswith("#"):
            assert line.startswith(seen[-1])
    assert len(seen) == len(set(seen)) == 4


def test_a_token_is_read_from_the_environment_or_a_file(tmp_path, monkeypatch):
    monkeypatch.delenv("HKCONV_TOKEN", raising=False)
    assert find_token(None) is None
    monkeypatch.setenv("HKCONV_TOKEN", "from-the.environment==")
    assert find_token(None) == "from-the.environment=="
    (tmp_path / "token").write_text("from/a+file\n")
    assert find_token(tmp_path / "token") == "from/a+file"


@pytest.mark.parametrize("content", [b"", b" \n", b"two words", b"two\nlines", "t\u00f6ken".encode(), b"a=b", b"\xff"])
def test_what_no_client_can_send_is_refused_and_not_repeated(tmp_path, content):
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(InputError, match=re.escape(f"token file {tmp_path / 'token'}")) as caught:
        find_token(tmp_path / "token")
    assert "words" not in str(caught.value)


def test_an_empty_variable_is_no_reason_to_serve_without_a_token(monkeypatch):
    monkeypatch.setenv("HKCONV_TOKEN", "")
    with pytest.raises(InputError, match="HKCONV_TOKEN in the environment must hold one token"):
        find_token(None)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere cannot be read \(No such file"):
        find_token(tmp_path / "nowhere")


@pytest.mark.parametrize("header", [b"Bearer secret", b"bearer secret", b"BEARER  secret "])
def test_the_token_opens(header):
    assert is_allowed(header, "secret")


@pytest.mark.parametrize(
    "header",
    [None, b"", b"secret", b"Bearer", b"Bearer ", b"Bearer secre", b"Bearer secrets", b"Basic secret", b"\xff \xff"],
)
def test_anything_else_does_not(header):
    assert not is_allowed(header, "secret")
