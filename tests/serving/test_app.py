"""The paths of servers of three kinds of runs, over real connections."""

import asyncio
import json
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from own_files import write_papers
from served import papers_run, posted, run_to_its_end, serving
from served import shapes as make_shapes

from hkconv.serving.app import Worker
from hkconv.serving.limits import RefusalError
from hkconv.tasks.predict import predict_run

NODES, NEW_NODES, GRAPHS = ("/predict/nodes", "/predict/new-nodes", "/predict/graphs")
OFFERED = {"papers": (NODES, NEW_NODES), "arrays": (NODES, NEW_NODES), "shapes": (GRAPHS,)}
NEW = {"id": "new", "features": {"age": 3.0, "colour": "red"}}


def assert_equal(response, expected, rows):
    """The response has the predictions of the rows, to the last bit."""
    assert response.status_code == 200, response.text
    found = response.json()["predictions"]
    assert [entry["id"] for entry in found] == [expected.ids[row] for row in rows]
    assert [entry["class"] for entry in found] == [expected.predicted[row] for row in rows]
    for entry, row in zip(found, rows, strict=True):
        assert entry["probabilities"] == dict(zip(expected.classes, expected.probabilities[row].tolist()))


def assert_one_line(response):
    """A refusal as people want it."""
    assert response.headers["content-type"] == "application/json"
    assert set(response.json()) == {"error"} and response.json()["error"]
    assert "\n" not in response.text and len(response.content) < 2000


def test_known_nodes_are_what_predict_says(clients, papers):
    expected = predict_run(papers, str(papers.parent / "papers"), device="cpu")
    assert_equal(clients["papers"].post(NODES, json={"ids": expected.ids}), expected, range(60))
    assert_equal(clients["papers"].post(NODES, json={"ids": ["paper 59", "paper 0"]}), expected, [59, 0])


def test_numbers_are_names_too(clients, arrays):
    expected = predict_run(arrays, str(arrays.parent / "graph.npz"), device="cpu")
    assert_equal(clients["arrays"].post(NODES, json={"ids": [3, "17", 0]}), expected, [3, 17, 0])


def test_new_nodes_are_what_predict_says_of_the_changed_graph(clients, papers, tmp_path):
    grown = write_papers(tmp_path / "grown", more=5)
    expected = predict_run(papers, str(grown), device="cpu")
    nodes = [line.split(",") for line in (grown / "nodes.csv").read_text().splitlines()[61:]]
    edges = [line.split(",") for line in (grown / "edges.csv").read_text().splitlines()[121:]]
    body = {
        "nodes": [{"id": name, "features": {"age": float(age), "colour": colour}} for name, age, colour, _ in nodes],
        "edges": [{"source": one, "target": other, "weight": float(weight)} for one, other, weight in edges],
    }
    assert_equal(clients["papers"].post(NEW_NODES, json=body), expected, range(60, 65))


def test_new_nodes_of_arrays(clients, arrays, tmp_path):
    """An isolated node, and one linked to an old and to a new one."""
    old = dict(np.load(arrays.parent / "graph.npz"))
    x = np.array([[0.5, -1, 2], [1, 1, 1]])
    np.savez(
        tmp_path / "grown.npz",
        x=np.concatenate([old["x"], x]),
        edge_index=np.concatenate([old["edge_index"], [[41, 41], [3, 40]]], axis=1),
    )
    expected = predict_run(arrays, str(tmp_path / "grown.npz"), device="cpu")
    body = {
        "nodes": [{"id": 40, "features": [0.5, -1, 2]}, {"id": 41, "features": [1, 1, 1]}],
        "edges": [{"source": 41, "target": 3}, {"source": "41", "target": 40}],
    }
    assert_equal(clients["arrays"].post(NEW_NODES, json=body), expected, [40, 41])


def test_graphs_are_what_predict_says(clients, shapes, tmp_path):
    torch.save(make_shapes(6, labelled=False), tmp_path / "some.pt")
    expected = predict_run(shapes, str(tmp_path / "some.pt"), device="cpu")
    body = {"graphs": [posted(graph) for graph in make_shapes(6)]}
    assert_equal(clients["shapes"].post(GRAPHS, json=body), expected, range(6))


def test_paths_that_a_run_cannot_answer_are_not_there(clients, tmp_path):
    response = clients["shapes"].post(NODES, json={"ids": [1]})
    assert response.status_code == 404 and "this run answers POST /predict/graphs" in response.json()["error"]
    with serving(papers_run(tmp_path, models=("linkx",), epochs=1)) as client:
        assert client.post(NEW_NODES, json={"nodes": [NEW]}).status_code == 404
        assert client.post(NODES, json={"ids": ["paper 1"]}).status_code == 200


@pytest.mark.parametrize(
    "path, body, status, message",
    [
        (NODES, {"ids": ["paper 1", "paper 99"]}, 404, "the graph has no node 'paper 99'"),
        (NODES, {"ids": []}, 422, "ids should have at least 1 item"),
        (
            NEW_NODES,
            {"nodes": [{**NEW, "id": "paper 1"}]},
            422,
            "posted nodes, row 1: the graph already has",
        ),
        (
            NEW_NODES,
            {"nodes": [NEW, NEW]},
            422,
            "posted nodes, row 2, column id: 'new' was already in row 1",
        ),
        (NEW_NODES, {"nodes": [{**NEW, "features": {}}]}, 422, "nodes[0].features.age is missing"),
        (
            NEW_NODES,
            {"nodes": [{"id": "x", "features": {"age": 1e39, "colour": "red"}}]},
            422,
            "posted nodes, row 1, column age must be a finite number, got '999",
        ),
    ],
)
def test_faults_are_named(clients, path, body, status, message):
    response = clients["papers"].post(path, json=body)
    assert response.status_code == status and response.json()["error"].startswith(message), response.text
    assert_one_line(response)


def test_features_that_a_model_cannot_digest_are_the_clients_fault(clients):
    """Features of 3e38 are finite numbers, but their sums are not."""
    node = {"id": "huge", "features": {"age": 3e38, "colour": "red"}}
    edges = [{"source": "huge", "target": "paper 1", "weight": 3e38}] * 2
    response = clients["papers"].post(NEW_NODES, json={"nodes": [node], "edges": edges})
    assert response.status_code == 422 and "is not finite" in response.json()["error"], response.text


@pytest.mark.parametrize(
    "headers", [{}, {"content-type": "text/plain"}, {"content-type": "application/x-www-form-urlencoded"}]
)
def test_a_body_must_be_said_to_be_json(clients, headers):
    response = clients["papers"].post(NODES, content=b'{"ids": ["paper 1"]}', headers=headers)
    assert response.status_code == 415
    assert "the header Content-Type must be application/json" in response.json()["error"]
    assert_one_line(response)


def test_json_in_utf8_may_say_so(clients):
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert clients["papers"].post(NODES, content=b'{"ids": ["paper 1"]}', headers=headers).status_code == 200


def test_other_methods_and_paths(clients):
    client = clients["papers"]
    for method, path, status in (("GET", NODES, 405), ("DELETE", "/run", 405), ("POST", "/health", 405)):
        response = client.request(method, path)
        assert response.status_code == status and response.headers["allow"]
        assert_one_line(response)
    for path in ("/redoc", "/docs/", "/health/", "/predict", "/../etc/passwd", "/%00"):
        response = client.get(path)
        assert response.status_code == 404
        assert_one_line(response)


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_person_with_a_browser_sees_what_is_answered(clients, path):
    for name, offered in OFFERED.items():
        response = clients[name].get(path)
        assert response.status_code == 200 and response.headers["content-type"] == "text/html; charset=utf-8"
        assert all(f"<td>POST</td><td>{offer}</td>" in response.text for offer in offered)
        assert '<a href="/openapi.json">' in response.text and '<a href="/run">' in response.text
        assert "<script" not in response.text and "http" not in response.text
        assert "$ref" not in response.text
    assert all(word in clients["papers"].get(path).text for word in ("ids", "colour", "green"))


DEEP = b'{"ids": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"
HOSTILE = {
    "nothing": b"",
    "no JSON": b"hello",
    "a list": b"[]",
    "null": b"null",
    "a string": b'"ids"',
    "NaN": b'{"ids": [NaN]}',
    "bare NaN": b"NaN",
    "Infinity": b'{"ids": [-Infinity]}',
    "not UTF-8": b'{"ids": ["\xff\xfe"]}',
    "UTF-16": '{"ids": ["paper 1"]}'.encode("utf-16"),
    "UTF-8 with a signature": b'\xef\xbb\xbf{"ids": ["paper 1"]}',
    "half a surrogate": b'{"ids": ["\\ud800"]}',
    "NUL": b'{"ids": ["\\u0000"]}',
    "deep lists": DEEP,
    "deep and open": b"[" * 900_000,
    "deep objects": b'{"a":' * 150_000,
    "a huge whole number": b'{"ids": [' + b"9" * 900_000 + b"]}",
    "a large whole number": b'{"ids": [' + b"9" * 4000 + b"]}",
    "a huge exponent": b'{"ids": [1e999999999]}',
    "a long text": b'{"ids": ["' + b"a" * 900_000 + b'"]}',
    "a long key": b'{"' + b"a" * 900_000 + b'": 1}',
    "many keys": json.dumps({str(number): number for number in range(20_000)}).encode(),
    "many faults": json.dumps({"ids": [{}] * 999, "nodes": [{}] * 999, "graphs": [{}] * 999}).encode(),
    "ids of other types": b'{"ids": [true, null, 1.5, {}, []]}',
    "ids that is no list": b'{"ids": "paper 1"}',
    "names that Python knows": b'{"__class__": 1, "__proto__": {}, "nodes": [{"__init__": 1}]}',
    "nodes without features": b'{"nodes": [{"id": "x"}]}',
    "features of other types": b'{"nodes": [{"id": "x", "features": "age"}]}',
    "overflowing features": b'{"nodes": [{"id": "x", "features": [1e400, 1, 1]}]}',
    "edges to nowhere": b'{"graphs": [{"nodes": [[1, 2]], "edges": [{"source": 5, "target": 99, "weight": 1}]}]}',
    "edges beyond 64 bits": b'{"graphs": [{"nodes": [[1, 2]], "edges": [{"source": 99999999999999999999}]}]}',
    "no nodes": b'{"graphs": [{"nodes": []}]}',
    "too many graphs": b'{"graphs": [' + b'{"nodes": [[1, 2]]},' * 1000 + b'{"nodes": [[1, 2]]}]}',
    "too many nodes": b'{"graphs": [{"nodes": [' + b"[1, 2]," * 1000 + b"[1, 2]]}]}",
    "gzip": b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bodies_are_refused_in_one_line(clients, body):
    for name, paths in OFFERED.items():
        for path in paths:
            response = clients[name].post(path, content=body, headers={"content-type": "application/json"})
            assert 400 <= response.status_code < 500, (name, path, response.text[:200])
            assert_one_line(response)


def test_a_server_that_fails_says_so_without_saying_how(papers, monkeypatch, capfd):
    from hkconv.serving.service import NodeService

    def broken(*_, **__):
        raise RuntimeError("a secret of the machine")

    monkeypatch.setattr(NodeService, "nodes", broken)
    with serving(papers) as client:
        response = client.post(NODES, json={"ids": ["paper 1"]})
        assert response.status_code == 500
        assert response.json() == {"error": "the server failed, not the request; its log says why"}
        assert f'path="{NODES}",status="500"}} 1' in client.get("/metrics").text


CONFIG = """
[checks.negative_data_rejection]
expected-statuses = ["400", "404", "405", "413", "415", "422"]
# That an edge joins nodes which exist cannot be said in a schema, so that some of what it allows is refused.
[checks.positive_data_acceptance]
enabled = false
"""


def assert_schema_is_kept(run, folder, *options):
    """Schemathesis asks whatever the schema allows and forbids: no 5xx, nothing but what the schema says."""
    (folder / "schemathesis.toml").write_text(CONFIG)
    # Small limits, because bodies at the limit are among what it sends.
    with serving(run, max_nodes=5, max_edges=6) as client:
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml", "run", *options]
        address = str(client.base_url.join("/openapi.json"))
        finished = subprocess.run([*command, address, "--no-color"], cwd=folder, capture_output=True, text=True)
        assert finished.returncode == 0, finished.stdout[-5000:] + finished.stderr[-2000:]
        counted = client.get("/metrics").text
    assert 'status="5' not in counted
    # Some of it was answered.
    assert "\nhkconv_predictions_total 0\n" not in counted


@pytest.mark.parametrize("name", ["papers", "shapes"])
def test_the_schema_is_kept(request, tmp_path, name):
    assert_schema_is_kept(request.getfixturevalue(name), tmp_path, "-n", "15", "--generation-deterministic")


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["papers", "arrays", "shapes"])
def test_the_schema_is_kept_for_long(request, tmp_path, name):
    assert_schema_is_kept(request.getfixturevalue(name), tmp_path, "-n", "100000", "--max-time", "60")


@pytest.fixture
def worker():
    made = Worker(max_seconds=5)
    yield made
    made.close()


def test_no_two_questions_are_answered_at_a_time_and_none_is_mixed_up(worker):
    inside, most = 0, 0

    def question(number):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        threading.Event().wait(0.001)
        inside -= 1
        return number

    async def ask_all():
        return await asyncio.gather(*(worker.ask(lambda number=number: question(number)) for number in range(100)))

    assert run_to_its_end(ask_all()) == list(range(100))
    assert most == 1


def test_an_error_reaches_who_asked(worker):
    def question():
        raise KeyError("mine")

    async def ask():
        with pytest.raises(KeyError, match="mine"):
            await worker.ask(question)
        return await worker.ask(lambda: "the next one is answered")

    assert run_to_its_end(ask()) == "the next one is answered"


def test_what_takes_too_long_is_given_up_and_what_waited_behind_it_is_never_asked():
    worker = Worker(max_seconds=0.2)
    release, asked = threading.Event(), []

    async def ask():
        slow = asyncio.ensure_future(worker.ask(release.wait))
        waiting = asyncio.ensure_future(worker.ask(lambda: asked.append("waiting")))
        for one in (slow, waiting):
            with pytest.raises(RefusalError, match=r"no answer within 0\.2 seconds") as caught:
                await one
            assert caught.value.status == 504
        release.set()
        return await worker.ask(lambda: "again")

    assert run_to_its_end(ask()) == "again"
    assert asked == []
    worker.close()
