import csv
import re

import pytest
import torch
from own_files import write_friends, write_papers, write_people
from served import papers_run, posted, shapes, train

from hkconv.data.own.loading import load_own, read_own
from hkconv.errors import InputError
from hkconv.serving.limits import Limits, RefusalError
from hkconv.serving.service import ATOM, graphs_of, load_service, with_new_nodes
from hkconv.tasks import run as training_run
from hkconv.tasks.building import model_config
from hkconv.tasks.predict import predict_run
from hkconv.tasks.recipe import make_recipe
from hkconv.tasks.run import train_run


def refused(message):
    return pytest.raises(InputError, match=re.escape(message))


def test_known_nodes_in_the_order_asked(papers):
    service = load_service(papers, device="cpu")
    expected = predict_run(papers, str(papers.parent / "papers"), device="cpu")
    found = service.nodes(["paper 7", "paper 3", "paper 7"])
    assert found.ids == ["paper 7", "paper 3", "paper 7"]
    assert torch.equal(found.probabilities, expected.probabilities[[7, 3, 7]])
    with pytest.raises(RefusalError, match="the graph has no node 'paper 60'") as caught:
        service.nodes(["paper 1", "paper 60"])
    assert caught.value.status == 404


def test_other_data_than_those_trained_on(papers, tmp_path):
    grown = write_papers(tmp_path / "grown", more=3)
    service = load_service(papers, data=str(grown), device="cpu")
    expected = predict_run(papers, str(grown), device="cpu")
    assert torch.equal(service.nodes(["paper 62"]).probabilities, expected.probabilities[[62]])


def test_new_nodes_leave_the_graph_as_it_is(papers):
    service = load_service(papers, device="cpu")
    node = {"id": "new", "features": {"age": 3.0, "colour": "red"}}
    edges = [{"source": "new", "target": "paper 1", "weight": 1.0}]
    before = service.nodes(["paper 1"]).probabilities
    first = service.new_nodes([node], edges)
    assert first.ids == ["new"]
    assert torch.equal(service.new_nodes([node], edges).probabilities, first.probabilities)
    assert torch.equal(service.nodes(["paper 1"]).probabilities, before)
    assert not torch.equal(service.new_nodes([node]).probabilities, first.probabilities)


@pytest.mark.parametrize("model", ["linkx", "hkn"])
def test_a_model_of_one_graph_is_asked_for_its_nodes_alone(tmp_path, monkeypatch, model):
    # Compiling the kernels would take longer than all other tests here.
    reference = {"backend": "reference"} if model == "hkn" else {}
    monkeypatch.setattr(training_run, "model_config", lambda *given: {**model_config(*given), **reference})
    run = papers_run(tmp_path, models=(model,), epochs=1)
    service = load_service(run, device="cpu")
    assert service.takes_new_nodes == (model == "hkn")
    expected = predict_run(run, str(tmp_path / "papers"), device="cpu")
    assert torch.equal(service.nodes(expected.ids).probabilities, expected.probabilities)


def test_graphs(shapes_file, tmp_path):
    run = train(shapes_file, tmp_path / "run")
    service = load_service(run, device="cpu")
    torch.save(shapes(7, labelled=False), tmp_path / "some.pt")
    expected = predict_run(run, str(tmp_path / "some.pt"), device="cpu")
    found = service.graphs([posted(graph) for graph in shapes(7)], Limits())
    assert found.ids == expected.ids and torch.equal(found.probabilities, expected.probabilities)
    with refused("data is the graph of a node task"):
        load_service(run, data=str(shapes_file))


def test_molecules(tmp_path):
    pytest.importorskip("rdkit")
    pytest.importorskip("ogb")
    rows = [f"{'C' * (1 + number % 9)}{'ON'[number % 2]},{number % 2}" for number in range(40)]
    (tmp_path / "molecules.csv").write_text("smiles,label\n" + "\n".join(rows) + "\n")
    run = train(tmp_path / "molecules.csv", tmp_path / "run", epochs=5)
    (tmp_path / "new.csv").write_text("id,smiles\na,CCCO\nb,c1ccccc1N\n")
    expected = predict_run(run, str(tmp_path / "new.csv"), device="cpu")
    found = load_service(run, device="cpu").graphs(
        [{"id": "a", "smiles": "CCCO"}, {"id": "b", "smiles": "c1ccccc1N"}], Limits()
    )
    assert found.ids == expected.ids and torch.equal(found.probabilities, expected.probabilities)


@pytest.fixture
def shapes_file(tmp_path):
    torch.save(shapes(30), tmp_path / "graphs.pt")
    return tmp_path / "graphs.pt"


def test_data_that_moved_are_missed(tmp_path):
    run = papers_run(tmp_path, epochs=1)
    (tmp_path / "papers").rename(tmp_path / "moved")
    with refused("papers do not exist"):
        load_service(run, device="cpu")
    assert load_service(run, data=str(tmp_path / "moved"), device="cpu").nodes(["paper 1"]).ids == ["paper 1"]


def assert_same(found, expected):
    assert found.graphs_digest() == expected.graphs_digest()
    assert (found.kind, found.task, found.features) == (expected.kind, expected.task, expected.features)
    assert (found.num_features, found.is_weighted) == (expected.num_features, expected.is_weighted)


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def new_papers(folder):
    """The nodes and edges that a folder of papers has beyond the first sixty, as a client posts them."""
    nodes = [
        {"id": row["id"], "features": {"age": float(row["age"]), "colour": row["colour"]}}
        for row in rows_of(folder / "nodes.csv")[60:]
    ]
    edges = [{**row, "weight": float(row["weight"])} for row in rows_of(folder / "edges.csv")[120:]]
    return nodes, edges


def test_new_nodes_of_tables(tmp_path):
    known = read_own(write_papers(tmp_path / "known"))
    grown = write_papers(tmp_path / "grown", more=7)
    numbers = {name: number for number, name in enumerate(known.ids)}
    assert_same(with_new_nodes(known, numbers, *new_papers(grown)), read_own(grown, known.features))
    assert len(known.ids) == known.graphs[0].num_nodes == len(numbers) == 60


@pytest.fixture
def known(tmp_path):
    return read_own(write_papers(tmp_path / "papers"))


@pytest.mark.parametrize(
    "ids, edges, message",
    [
        (["a", "b", "a"], [], "posted nodes, row 3, column id: 'a' was already in row 1"),
        (["a", ""], [], "posted nodes, row 2, column id is empty"),
        (["paper 3"], [], "posted nodes, row 1: the graph already has a node 'paper 3', ask for it by its id"),
        (["a"], [("a", "paper 1"), ("a", "c")], "posted edges, row 2, column target: no node has the id 'c'"),
        (["a"], [("", "paper 1")], "posted edges, row 1, column source is empty"),
    ],
)
def test_faults_of_new_nodes_are_named(known, ids, edges, message):
    numbers = {name: number for number, name in enumerate(known.ids)}
    nodes = [{"id": name, "features": {"age": 1.0, "colour": "red"}} for name in ids]
    with refused(message):
        with_new_nodes(known, numbers, nodes, [{"source": a, "target": b, "weight": 1.0} for a, b in edges])


def test_numbers_that_float32_cannot_hold_are_refused(known):
    numbers = {name: number for number, name in enumerate(known.ids)}
    with refused("posted nodes, row 1, column age must be a finite number"):
        with_new_nodes(known, numbers, [{"id": "a", "features": {"age": 1e300, "colour": "red"}}], [])


def schema_of(path):
    return load_own(path, num_splits=1).schema


def test_graphs_of_arrays(tmp_path):
    torch.save(shapes(30), tmp_path / "graphs.pt")
    found = graphs_of([posted(graph) for graph in shapes(5)], schema_of(tmp_path / "graphs.pt"), Limits())
    torch.save(shapes(5, labelled=False), tmp_path / "five.pt")
    assert_same(found, read_own(tmp_path / "five.pt"))


def write_tu(folder, *, labels):
    """Twelve paths and rings of four nodes."""
    folder.mkdir()
    edges, number = [], 1
    for graph in range(12):
        pairs = [(0, 1), (1, 2), (2, 3), *([(3, 0)] if graph % 2 else [])]
        edges += [f"{number + a}, {number + b}\n{number + b}, {number + a}" for a, b in pairs]
        number += 4
    (folder / "T_A.txt").write_text("\n".join(edges) + "\n")
    (folder / "T_graph_indicator.txt").write_text("".join(f"{1 + node // 4}\n" for node in range(48)))
    (folder / "T_graph_labels.txt").write_text("".join(f"{graph % 2}\n" for graph in range(12)))
    if labels:
        (folder / "T_node_labels.txt").write_text("".join(f"{node % 3}\n" for node in range(48)))
        (folder / "T_node_attributes.txt").write_text("".join(f"{node / 7}, {node % 5}\n" for node in range(48)))
    return folder


@pytest.mark.parametrize("labels", [True, False], ids=["labels and attributes", "degrees"])
def test_graphs_in_tu_format(tmp_path, labels):
    folder = write_tu(tmp_path / "T", labels=labels)
    expected = read_own(folder)
    wanted = [
        {
            "id": str(1 + graph),
            "nodes": [
                {"node label": str(node % 3), "node attribute 1": node / 7, "node attribute 2": float(node % 5)}
                if labels
                else {}
                for node in range(4 * graph, 4 * graph + 4)
            ],
            "edges": [{"source": a, "target": b} for a, b in expected.graphs[graph].edge_index.t().tolist()],
        }
        for graph in range(12)
    ]
    assert_same(graphs_of(wanted, schema_of(folder), Limits()), expected)


def test_posted_molecules(tmp_path):
    pytest.importorskip("rdkit")
    pytest.importorskip("ogb")
    smiles = ["CCO", "c1ccccc1N", "[Na+].[Cl-]", "C"]
    lines = [f"m{number},{text},{number % 2}" for number, text in enumerate(smiles)]
    (tmp_path / "molecules.csv").write_text("id,smiles,label\n" + "\n".join(lines * 1) + "\n")
    expected = read_own(tmp_path / "molecules.csv")
    schema = schema_of_molecules(expected)
    found = graphs_of([{"id": f"m{number}", "smiles": text} for number, text in enumerate(smiles)], schema, Limits())
    assert_same(found, expected)
    with refused("smiles of graph '1' is no SMILES of a molecule: 'nonsense'"):
        graphs_of([{"smiles": "C"}, {"smiles": "nonsense"}], schema, Limits())
    with pytest.raises(RefusalError, match="the graphs of a request must have at most 9 nodes together"):
        graphs_of([{"smiles": "CCCCC"}] * 2, schema, Limits(max_nodes=9))


@pytest.mark.parametrize(
    "smiles", ["CCO", "c1ccccc1Cl", "[Na+].[Cl-]", "BrC(=O)[C@@H](N)CS", "*C#N", "C%10CC%10", "[13CH4]"]
)
def test_atoms_are_counted_as_rdkit_counts_them(smiles):
    """So that a limit holds before a molecule is read."""
    chem = pytest.importorskip("rdkit.Chem")
    assert len(ATOM.findall(smiles)) == chem.MolFromSmiles(smiles).GetNumAtoms()


def schema_of_molecules(own):
    from hkconv.data.own.schema import Schema

    return Schema("m", own.kind, "graph", "clean", ("0", "1"), None, own.num_features, False, "", "")


def test_limits_hold_for_all_graphs_together(tmp_path):
    torch.save(shapes(30), tmp_path / "graphs.pt")
    schema = schema_of(tmp_path / "graphs.pt")
    five = [posted(graph) for graph in shapes(5)]
    assert len(graphs_of(five, schema, Limits(max_nodes=20, max_edges=25)).graphs) == 5
    for limits, message in ((Limits(max_nodes=19), "at most 19 nodes"), (Limits(max_edges=24), "at most 24 edges")):
        with pytest.raises(RefusalError, match=message) as caught:
            graphs_of(five, schema, limits)
        assert caught.value.status == 413


def test_faults_of_graphs_are_named(tmp_path):
    torch.save(shapes(30), tmp_path / "graphs.pt")
    schema = schema_of(tmp_path / "graphs.pt")
    edge = {"source": 0, "target": 2, "weight": 1.0}
    with refused("graph '0', edge 0 is [0, 2], but there are nodes 0 to 1"):
        graphs_of([{"nodes": [[1.0, 2.0]] * 2, "edges": [edge]}], schema, Limits())
    with refused("features of nodes of graph 'big' must be finite numbers, but row 0, column 1 is 1e+300"):
        graphs_of([{"id": "big", "nodes": [[1.0, 1e300]]}], schema, Limits())


def test_a_person_is_posted_as_the_table_has_them(tmp_path):
    """With a name, a date and an answer: the same as a newcomer in a table."""
    people = write_people(tmp_path / "people", count=90)
    settings = {"models": ("mlp",), "epochs": 3, "num_splits": 1, "hidden_dim": 4, "device": "cpu"}
    train_run(make_recipe(dataset=str(people), out=str(tmp_path / "run"), **settings))
    service = load_service(tmp_path / "run", device="cpu")
    with open(people / "nodes.csv", newline="", encoding="utf-8") as file:
        row = next(
            row for row in csv.DictReader(file) if row["age"] and row["salary"].isdigit() and row["city"] != "nan"
        )
    numbers = {name: float(row[name]) for name in ("age", "salary")}
    posted = {"name": "new", "city": row["city"], "joined": row["joined"], "member": row["member"] == "yes", **numbers}
    (found,) = service.new_nodes([{"id": "newcomer", "features": posted}]).probabilities
    torch.testing.assert_close(found, service.nodes([row["id"]]).probabilities[0])


def test_links_are_not_served(tmp_path):
    papers = write_papers(tmp_path / "papers")
    settings = {"models": ("mlp",), "epochs": 1, "num_splits": 1, "device": "cpu", "task": "link"}
    train_run(make_recipe(dataset=str(papers), out=str(tmp_path / "run"), **settings))
    with pytest.raises(InputError, match="only nodes and graphs are served"):
        load_service(tmp_path / "run")


def test_edges_of_requests_have_no_attributes(tmp_path):
    run = train(write_friends(tmp_path / "friends"), tmp_path / "run")
    service = load_service(run, device="cpu")
    assert not service.takes_new_nodes
    assert torch.equal(service.nodes(["7"]).probabilities, predict_run(run, device="cpu").probabilities[[7]])
    plain = load_service(train(tmp_path / "friends", tmp_path / "plain", edge_attributes=False), device="cpu")
    node = {"id": "new", "features": {"age": 0.5}}
    assert plain.new_nodes([node], [{"source": "new", "target": "3"}]).ids == ["new"]
    graphs = [replace_attr(graph) for graph in shapes(30)]
    torch.save(graphs, tmp_path / "graphs.pt")
    with refused("has attributes of edges, which requests do not have: train with --no-edge-attributes"):
        load_service(train(tmp_path / "graphs.pt", tmp_path / "graph run"), device="cpu")


def replace_attr(graph):
    graph.edge_attr = torch.ones(graph.edge_index.size(1), 2)
    return graph
