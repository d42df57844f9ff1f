import re

import pytest
import torch
from own_files import write_papers
from served import papers_run, posted, shapes, train

from hkconv.errors import InputError
from hkconv.serving.limits import Limits
from hkconv.serving.refusals import RefusalError
from hkconv.serving.service import load_service
from hkconv.tasks import run as training_run
from hkconv.tasks.building import model_config
from hkconv.tasks.predict import predict_run


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
