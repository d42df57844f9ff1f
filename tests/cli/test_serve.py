"""``hkconv serve`` as a process of its own, as a user starts, asks and ends it."""

import csv
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from served import papers_run, serving_process


@pytest.fixture
def run(in_empty_folder) -> Path:
    return papers_run(in_empty_folder, epochs=2)


def test_a_server_says_what_predict_writes_and_ends_in_order(hkconv, run):
    predicted = hkconv("predict", run, "papers")
    assert predicted.exit_code == 0
    with open("predictions.csv", newline="") as file:
        written = list(csv.DictReader(file))
    with serving_process(run, HKCONV_TOKEN="secret") as (address, process):
        assert process.printed[0] == predicted.stdout.splitlines()[0]  # which training, and why
        body = {"ids": [row["id"] for row in written]}
        assert httpx.post(f"{address}/predict/nodes", json=body).status_code == 401
        headers = {"authorization": "Bearer secret"}
        answer = httpx.post(f"{address}/predict/nodes", json=body, headers=headers).json()["predictions"]
        for row, entry in zip(written, answer, strict=True):
            assert (row["id"], row["class"]) == (entry["id"], entry["class"])
            assert {name: f"{share:.9g}" for name, share in entry["probabilities"].items()} == {
                name: row[f"p_{name}"] for name in ("high", "low", "mid")
            }
        # Half a request, then Ctrl-C, then the other half: it is answered, and then the process ends.
        where, content = urlsplit(address), json.dumps(body).encode()
        top = "POST /predict/nodes HTTP/1.1\r\nhost: a\r\nauthorization: Bearer secret\r\n"
        top += f"content-length: {len(content)}\r\ncontent-type: application/json\r\n\r\n"
        with socket.create_connection((where.hostname, where.port), timeout=60) as connection:
            connection.sendall(top.encode() + content[:10])
            # An answer to a later request shows that the half is being waited for.
            assert httpx.get(f"{address}/health").json() == {"status": "ok"}
            process.send_signal(signal.SIGINT)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.5)
            connection.sendall(content[10:])
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK")
        assert process.wait(60) == 130
        assert process.stderr.read() == ""


def test_faults_are_one_line_and_exit_code_2(hkconv, run, monkeypatch):
    assert "run must be a folder" in hkconv.fails("serve", "nowhere", "--port", 0)
    assert "max_nodes must be a whole number of at least 1 and at most 1000000000, got 0" in hkconv.fails(
        "serve", run, "--max-nodes", 0
    )
    assert "token file nowhere cannot be read" in hkconv.fails("serve", run, "--token-file", "nowhere")
    monkeypatch.setenv("HKCONV_TOKEN", "two words")
    assert "must hold one token" in hkconv.fails("serve", run)
    monkeypatch.delenv("HKCONV_TOKEN")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port} cannot be listened on" in hkconv.fails("serve", run, "--port", port)
    os.rename("papers", "elsewhere")
    assert "papers do not exist" in hkconv.fails("serve", run, "--port", 0)


def test_without_the_extra_it_says_what_to_install(hkconv, run, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] in ("fastapi", "uvicorn")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.startswith("hkconv.serving")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert 'pip install "hkconv[serve]"' in hkconv.fails("serve", run)


def test_other_commands_do_not_load_what_serving_needs():
    code = (
        "import sys, hkconv.cli.main\n"
        "sys.exit(any(name in sys.modules for name in ('fastapi', 'uvicorn', 'starlette', 'pydantic')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
