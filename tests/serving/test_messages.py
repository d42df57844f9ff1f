import json
import re

import pytest
from own_files import write_houses
from served import train

from hkconv.data.own.features import Feature
from hkconv.data.own.schema import Schema
from hkconv.data.own.smiles_tables import KIND as MOLECULES
from hkconv.data.own.tu_folders import KIND as TU_FORMAT
from hkconv.serving.limits import Limits, RefusalError
from hkconv.serving.messages import answer_of, graphs_question, info_of, new_nodes_question, nodes_question, parse
from hkconv.serving.service import load_service
from hkconv.tasks.predict import predict_run

LIMITS = Limits(max_nodes=3, max_edges=2)
COLUMNS = (Feature("age"), Feature("colour", ("blue", "red")), Feature("model_config __x"))


def schema(features=COLUMNS, *, kind="tables of nodes and edges", task="node", width=4, weighted=True):
    return Schema("name", kind, task, "clean", ("a", "b"), features, width, weighted, "", "")


TABLES = new_nodes_question(schema(), LIMITS)
ARRAYS = graphs_question(schema(None, kind="arrays", task="graph", width=2, weighted=False), LIMITS)
NODE = {"id": "n", "features": {"age": 1, "colour": "red", "model_config __x": -2.5}}
EDGE = {"source": "n", "target": 7, "weight": 0}


def refused(question, body):
    with pytest.raises(RefusalError) as caught:
        parse(question, body if isinstance(body, bytes) else json.dumps(body).encode())
    return caught.value.status, str(caught.value)


def test_what_fits_becomes_plain_data():
    found = parse(TABLES, json.dumps({"nodes": [NODE], "edges": [EDGE]}).encode())
    assert found == {"nodes": [NODE], "edges": [{"source": "n", "target": "7", "weight": 0.0}]}
    assert parse(TABLES, json.dumps({"nodes": [NODE]}).encode()) == {"nodes": [NODE]}
    assert parse(nodes_question(LIMITS), b'{"ids": [" a ", 12345678901234567890123]}') == {
        "ids": ["a", "12345678901234567890123"]
    }
    graph = {"nodes": [[1, 2]], "edges": [{"source": 0, "target": 0}]}
    assert parse(ARRAYS, json.dumps({"graphs": [graph]}).encode()) == {"graphs": [graph]}


def test_dates_answers_and_names_are_posted_as_such():
    columns = (Feature("born", kind="date"), Feature("paid", kind="boolean"), Feature("name", kind="unused"))
    question = new_nodes_question(schema(columns, width=2), LIMITS)
    features = {"born": "2026-11-15", "paid": True}
    for posted in (features, {**features, "name": "Žofie"}):
        body = {"nodes": [{"id": "n", "features": posted}]}
        assert parse(question, json.dumps(body).encode()) == body
    for wrong, message in (
        ({"paid": "yes"}, "paid should be a valid boolean"),
        ({"born": 1}, "born should be a valid"),
    ):
        body = {"nodes": [{"id": "n", "features": {**features, **wrong}}]}
        assert message in refused(question, body)[1]


def changed(**features):
    return {"nodes": [{**NODE, "features": {**NODE["features"], **features}}]}


@pytest.mark.parametrize(
    "body, status, message",
    [
        (changed(colour="pink"), 422, "nodes[0].features.colour should be 'blue' or 'red'"),
        (changed(colour=1), 422, "nodes[0].features.colour should be 'blue' or 'red'"),
        (changed(age="1"), 422, "nodes[0].features.age should be a valid number"),
        (changed(age=True), 422, "nodes[0].features.age should be a valid number"),
        (changed(age=None), 422, "nodes[0].features.age should be a valid number"),
        (changed(age=10**400), 422, "nodes[0].features.age should be a finite number"),
        (changed(height=1), 422, "nodes[0].features.height is unknown: leave it out"),
        ({"nodes": [{"id": "n", "features": {}}]}, 422, "nodes[0].features.age is missing"),
        ({"nodes": [{**NODE, "id": 1.5}]}, 422, "nodes[0].id should be a text or a whole number"),
        ({"nodes": [{**NODE, "id": True}]}, 422, "nodes[0].id should be a text or a whole number"),
        ({"nodes": []}, 422, "nodes should have at least 1 item, not 0"),
        ({"nodes": [NODE] * 4}, 413, "nodes should have at most 3 items, not 4"),
        ({"nodes": [NODE], "edges": [EDGE] * 3}, 413, "edges should have at most 2 items"),
        ({"nodes": [NODE], "edges": [{**EDGE, "weight": -1}]}, 422, "edges[0].weight should be greater than or equal"),
        ({"nodes": [NODE], "edges": [{"source": 1, "target": 2}]}, 422, "edges[0].weight is missing"),
        ([], 422, "the body should be an object"),
        (b"", 400, "the body is not JSON in UTF-8: EOF"),
        (b'{"nodes": [{"id": 1, "features": {"age": NaN}}]}', 422, "nodes[0].features.age should be a finite number"),
        (
            b'{"nodes": [{"id": 1, "features": {"age": -Infinity}}]}',
            422,
            "nodes[0].features.age should be a finite number",
        ),
        (b"[" * 100_000, 400, "the body is not JSON in UTF-8: recursion limit exceeded"),
        (b'{"a": 1' + b"0" * 10_000 + b"}", 400, "the body is not JSON in UTF-8: number out of range"),
        (b'{"a": "\xff"}', 400, "the body is not JSON in UTF-8: invalid unicode code point"),
        (b'{"a": "\\ud800"}', 400, "the body is not JSON in UTF-8: "),
        ('{"nodes": []}'.encode("utf-16"), 400, "the body is not JSON in UTF-8: expected value"),
    ],
)
def test_what_does_not_fit_is_named(body, status, message):
    found = refused(TABLES, body)
    assert found[0] == status and found[1].startswith(message), found


@pytest.mark.parametrize(
    "graph, message",
    [
        ({"nodes": [[1]]}, "graphs[0].nodes[0] should have at least 2 items"),
        ({"nodes": [{"age": 1}]}, "graphs[0].nodes[0] should be a valid array"),
        ({"nodes": [[1, 2]], "edges": [{"source": -1, "target": 0}]}, "graphs[0].edges[0].source should be greater"),
        ({"nodes": [[1, 2]], "edges": [{"source": 2**70, "target": 0}]}, "graphs[0].edges[0].source should be less"),
        (
            {"nodes": [[1, 2]], "edges": [{"source": 0.0, "target": 0}]},
            "graphs[0].edges[0].source should be a valid int",
        ),
        (
            {"nodes": [[1, 2]], "edges": [{"source": 0, "target": 0, "weight": 1}]},
            "graphs[0].edges[0].weight is unknown",
        ),
    ],
)
def test_graphs_that_do_not_fit(graph, message):
    status, found = refused(ARRAYS, {"graphs": [graph]})
    assert status == 422 and found.startswith(message), found


def test_molecules_are_strings_of_bounded_length():
    question = graphs_question(schema(None, kind=MOLECULES, task="graph", weighted=False), LIMITS)
    assert parse(question, b'{"graphs": [{"smiles": "CC"}]}') == {"graphs": [{"smiles": "CC"}]}
    assert refused(question, {"graphs": [{"smiles": "C" * 31}]})[1].startswith("graphs[0].smiles should have at")
    assert refused(question, {"graphs": [{"nodes": []}]})[1] == "graphs[0].smiles is missing"


def test_degrees_are_not_asked_for():
    only_degrees = schema((Feature("degree", ("1", "2")),), kind=TU_FORMAT, task="graph", weighted=False)
    question = graphs_question(only_degrees, LIMITS)
    assert parse(question, b'{"graphs": [{"nodes": [{}, {}]}]}') == {"graphs": [{"nodes": [{}, {}]}]}
    assert refused(question, {"graphs": [{"nodes": [{"degree": "1"}]}]})[0] == 422


def test_the_schema_says_what_is_refused():
    described = TABLES.json_schema()
    assert described["additionalProperties"] is False and described["required"] == ["nodes"]
    nodes, edges = described["properties"]["nodes"], described["properties"]["edges"]
    assert (nodes["minItems"], nodes["maxItems"], edges["maxItems"]) == (1, 3, 2)
    features = described["$defs"]["Features"]
    assert set(features["required"]) == {"age", "colour", "model_config __x"}
    assert features["properties"]["colour"]["enum"] == ["blue", "red"]
    assert re.search(r'"minimum": 0', json.dumps(described["$defs"]["Edge"]["properties"]["weight"]))


def test_predictions_name_the_class_and_every_probability(papers):
    predictions = load_service(papers, device="cpu").nodes(["paper 4", "paper 2"])
    sent = json.loads(json.dumps(answer_of(predictions)))
    assert [entry["id"] for entry in sent["predictions"]] == ["paper 4", "paper 2"]
    for entry, row in zip(sent["predictions"], predictions.probabilities.tolist()):
        assert entry["probabilities"] == dict(zip(("high", "low", "mid"), row))
        assert entry["class"] == max(entry["probabilities"], key=entry["probabilities"].get)


def test_a_run_says_what_it_must_be_asked_with(papers, shapes):
    info = info_of(load_service(papers, device="cpu"))
    assert (info.model, info.dataset, info.task, info.is_weighted, info.num_nodes) == (
        "gcn",
        "papers",
        "node",
        True,
        60,
    )
    assert [(one.name, one.categories) for one in info.features] == [
        ("age", None),
        ("colour", ["blue", "green", "red"]),
    ]
    assert (info.num_features, info.classes) == (4, ["high", "low", "mid"])
    other = info_of(load_service(shapes, device="cpu"))
    assert (other.task, other.features, other.num_features, other.num_nodes) == ("graph", None, 2, None)


def test_answers_of_numbers_and_questions(tmp_path):
    for labels in ("target", "questions"):
        houses = write_houses(tmp_path / labels, labels)
        run = train(houses, tmp_path / f"run {labels}")
        service = load_service(run, device="cpu")
        predictions = service.nodes(["house 3", "house 0"])
        (third, first) = json.loads(json.dumps(answer_of(predictions)))["predictions"]
        info = info_of(service)
        if labels == "target":
            assert first == {"id": "house 0", "target": predict_run(run, device="cpu").probabilities[0].item()}
            assert (info.metric, info.classes) == ("R2", ["target"])
        else:
            expected = dict(zip(("is big", "has garden"), predictions.probabilities[0].tolist()))
            assert third == {"id": "house 3", "probabilities": expected}
            assert (info.metric, info.classes) == ("ROC-AUC", ["is big", "has garden"])
