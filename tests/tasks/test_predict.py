import csv
import json
import os
import re
import sys

import numpy as np
import pytest
import torch
from own_files import write_friends, write_houses, write_library, write_papers
from pyarrow import parquet
from torch_geometric.data import Data

from hkconv.data import load
from hkconv.data.own.loading import load_own
from hkconv.engine.checkpoint import load_checkpoint
from hkconv.errors import InputError
from hkconv.tasks import building, predict, run
from hkconv.tasks.building import find_schema, model_config
from hkconv.tasks.evaluate import evaluate_run
from hkconv.tasks.layerwise import all_neighbor_logits
from hkconv.tasks.predict import (
    Predictions,
    as_csv,
    check_target,
    choose_training,
    export_run,
    predict_run,
    write_predictions,
)
from hkconv.tasks.recipe import make_recipe
from hkconv.tasks.run import train_run
from hkconv.tasks.summary import Cell
from hkconv.viz.explorer.run_scene import read_run_scene


def refused(message):
    return pytest.raises(InputError, match=re.escape(message))


def trained(data, out, **changes):
    values = {"models": ("gcn",), "epochs": 20, "lr": 0.05, "num_splits": 1, "hidden_dim": 4, "device": "cpu"}
    values |= {"num_layers": 2, "dropout": 0.2}
    return train_run(make_recipe(**{**values, "dataset": str(data), "out": str(out), **changes}))


@pytest.fixture
def papers(tmp_path):
    return write_papers(tmp_path / "papers")


def as_seen(run, x):
    """Features on the scale of the rows that a run's only split trained on."""
    (scaling,) = find_schema(run).scalings
    center, factor = (torch.tensor(row, dtype=torch.float64) for row in (scaling.center, scaling.factor))
    return ((x - center) * factor).float()


def own_output(folder, data):
    """What the network of a run on one split says, called by hand on the dataset that was trained on."""
    network, _ = load_checkpoint(folder)
    graph = load_own(data).graph
    with torch.no_grad():
        return network(as_seen(folder.parents[1], graph.x), graph.edge_index, graph.edge_weight).double().softmax(1)


def test_predictions_are_the_networks_own_answers(papers, tmp_path):
    trained(papers, tmp_path / "run")
    found = predict_run(tmp_path / "run", str(papers), device="cpu")
    expected = own_output(tmp_path / "run/gcn/split0-seed0", papers)
    assert torch.equal(found.probabilities, expected)
    assert found.ids == [f"paper {number}" for number in range(60)]
    assert found.classes == ("high", "low", "mid")
    assert found.predicted == [("high", "low", "mid")[number] for number in expected.argmax(1).tolist()]
    truth = [("low", "mid", "high")[number % 3] for number in range(60)]
    assert np.mean([one == other for one, other in zip(found.predicted, truth)]) > 0.8


def test_new_nodes_in_a_changed_graph(papers, tmp_path):
    """Without labels, with columns and edges in another order, and the same numbers for nodes far from the new ones."""
    trained(papers, tmp_path / "run", num_layers=1)
    new = write_papers(tmp_path / "new", more=6)
    rows = [line.split(",") for line in (new / "nodes.csv").read_text().splitlines()]
    (new / "nodes.csv").write_text("".join(f"{colour},{name},{age}\n" for name, age, colour, _ in rows))
    lines = (new / "edges.csv").read_text().splitlines()
    (new / "edges.csv").write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")
    found = predict_run(tmp_path / "run", str(new), device="cpu")
    assert found.ids[60:] == [f"paper {number}" for number in range(60, 66)]
    before = predict_run(tmp_path / "run", str(papers), device="cpu").probabilities
    touched = {int(line.split(",")[1].split()[1]) for line in lines[1:] if int(line.split(",")[0].split()[1]) >= 60}
    # Of two neighbours of a touched node one sees its degree change, which GCN divides by.
    graph = load_own(papers).graph
    near = set(graph.edge_index[1][torch.isin(graph.edge_index[0], torch.tensor(sorted(touched)))].tolist())
    far = sorted(set(range(60)) - touched - near)
    assert far and touched
    torch.testing.assert_close(found.probabilities[far], before[far], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(found.probabilities[sorted(touched)], before[sorted(touched)], atol=1e-4)
    network, _ = load_checkpoint(tmp_path / "run/gcn/split0-seed0")
    prepared = load_own(write_papers(tmp_path / "again", more=6)).graph
    with torch.no_grad():
        by_hand = (
            network(as_seen(tmp_path / "run", prepared.x), prepared.edge_index, prepared.edge_weight)
            .double()
            .softmax(1)
        )
    torch.testing.assert_close(found.probabilities, by_hand, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["linkx", "glognn"])
def test_a_network_of_one_graph_predicts_on_that_graph_alone(papers, tmp_path, name):
    trained(papers, tmp_path / "run", models=(name,), epochs=1)
    expected = own_output(tmp_path / f"run/{name}/split0-seed0", papers)
    assert torch.equal(predict_run(tmp_path / "run", str(papers), device="cpu").probabilities, expected)
    new = write_papers(tmp_path / "new", more=1)
    with refused(
        f"model '{name}' of run {tmp_path / 'run'} knows the nodes of one graph alone and cannot predict on a"
    ):
        predict_run(tmp_path / "run", str(new))


def test_an_embedding_belongs_to_one_graph_too(tmp_path):
    papers = write_papers(tmp_path / "papers", weighted=False)
    trained(papers, tmp_path / "run", models=("geom-gcn",), epochs=1)
    with refused("model 'geom-gcn'"):
        predict_run(tmp_path / "run", str(write_papers(tmp_path / "new", weighted=False, more=1)))


def test_hkn_predicts_on_a_changed_graph_unless_it_reads_rows_of_the_adjacency(tmp_path, monkeypatch):
    # Compiling the kernels would take longer than all other tests here.
    monkeypatch.setattr(run, "model_config", lambda *given: {**model_config(*given), "backend": "reference"})
    papers = write_papers(tmp_path / "papers", weighted=False)
    new = write_papers(tmp_path / "new", weighted=False, more=3)
    trained(papers, tmp_path / "plain", models=("hkn",), epochs=1)
    network, _ = load_checkpoint(tmp_path / "plain/hkn/split0-seed0")
    graph = load_own(new).graph
    with torch.no_grad():
        expected = network(as_seen(tmp_path / "plain", graph.x), graph.edge_index).double().softmax(1)
    torch.testing.assert_close(predict_run(tmp_path / "plain", str(new), device="cpu").probabilities, expected)
    trained(papers, tmp_path / "rows", models=("hkn",), structure=True, epochs=1)
    with refused("train another model, or hkn without structure"):
        predict_run(tmp_path / "rows", str(new))


@pytest.mark.parametrize("name", ["hkn", "gcn"])
def test_a_run_on_samples_predicts_from_all_neighbours_layer_by_layer(papers, tmp_path, monkeypatch, name):
    seen = []

    def watched(*given):
        seen.append(type(given[0]).__name__.lower())
        return all_neighbor_logits(*given)

    monkeypatch.setattr(predict, "all_neighbor_logits", watched)
    monkeypatch.setattr(
        run,
        "model_config",
        lambda *given: {**model_config(*given), **({"backend": "reference"} if name == "hkn" else {})},
    )
    trained(papers, tmp_path / "run", models=(name,), epochs=2, neighbors=(3, 3), batch_size=8)
    for data in (papers, write_papers(tmp_path / "new", more=4)):
        found = predict_run(tmp_path / "run", str(data), device="cpu")
        expected = own_output(tmp_path / f"run/{name}/split0-seed0", data)
        torch.testing.assert_close(found.probabilities, expected, rtol=1e-5, atol=1e-6)
    assert seen == [name, name]


def test_the_recipe_prepares_new_data_too(papers, tmp_path):
    trained(papers, tmp_path / "run", direction="in", log_features=True)
    network, _ = load_checkpoint(tmp_path / "run/gcn/split0-seed0")
    rows = [line.split(",") for line in (papers / "nodes.csv").read_text().splitlines()[1:]]
    colours = ("blue", "green", "red")
    x = torch.tensor([[float(age), *(float(colour == one) for one in colours)] for _, age, colour, _ in rows])
    lines = [line.split(",") for line in (papers / "edges.csv").read_text().splitlines()[1:]]
    ends = torch.tensor([[int(name.split()[1]) for name in line[:2]] for line in lines]).t()
    weights = torch.tensor([float(line[2]) for line in lines])
    with torch.no_grad():
        expected = network(x.sign() * x.abs().log1p(), ends, weights).double().softmax(1)
    found = predict_run(tmp_path / "run", str(papers), device="cpu").probabilities
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_graphs_one_by_one(tmp_path):
    draw = torch.Generator().manual_seed(0)
    graphs = [
        Data(
            x=torch.rand(4, 2, generator=draw) + number % 2,
            edge_index=torch.randint(4, (2, 5), generator=draw),
            edge_weight=torch.rand(5, generator=draw),
            y=number % 2,
            ids=f"g{number}",
        )
        for number in range(30)
    ]
    torch.save(graphs, tmp_path / "graphs.pt")
    trained(tmp_path / "graphs.pt", tmp_path / "run", direction="in", batch_size=8)
    for graph in graphs:
        del graph.y
    torch.save(graphs[:7], tmp_path / "some.pt")
    found = predict_run(tmp_path / "run", str(tmp_path / "some.pt"), device="cpu")
    network, _ = load_checkpoint(tmp_path / "run/gcn/split0-seed0")
    for number, graph in enumerate(graphs[:7]):
        with torch.no_grad():
            x = as_seen(tmp_path / "run", graph.x)
            alone = network(
                x, graph.edge_index, graph.edge_weight, batch=torch.zeros(4, dtype=torch.int64), batch_size=1
            )
        torch.testing.assert_close(found.probabilities[number], alone.double().softmax(1)[0], rtol=1e-5, atol=1e-6)
    assert found.ids == [f"g{number}" for number in range(7)] and found.classes == ("0", "1")


def write_molecules(folder, column, alcohol, amine):
    """Forty chains of carbon with one or the other at their end."""
    rows = ["C" * (1 + number % 9) + ("O" if number % 2 else "N") for number in range(40)]
    lines = [f"smiles,{column}", *(f"{smiles},{alcohol if smiles[-1] == 'O' else amine}" for smiles in rows)]
    (folder / "molecules.csv").write_text("\n".join(lines) + "\n")
    return folder / "molecules.csv"


def test_molecules(tmp_path):
    pytest.importorskip("rdkit")
    pytest.importorskip("ogb")
    trained(write_molecules(tmp_path, "label", "alcohol", "amine"), tmp_path / "run", epochs=40)
    (tmp_path / "new.csv").write_text("id,smiles\na,CCCCCCCCCCCO\nb,CCCCCCCCCCCN\n")
    found = predict_run(tmp_path / "run", str(tmp_path / "new.csv"), device="cpu")
    assert (found.ids, found.predicted) == (["a", "b"], ["alcohol", "amine"])


@pytest.mark.parametrize("name", ["hkn", "mlp"])
def test_molecules_that_differ_in_their_bonds_alone(name, tmp_path):
    pytest.importorskip("rdkit")
    pytest.importorskip("ogb")
    lines = [f"{'C' * (1 + number // 2)}/C=C{'/' if number % 2 else chr(92)}F,{number % 2}" for number in range(40)]
    (tmp_path / "molecules.csv").write_text("\n".join(["smiles,label", *lines]) + "\n")
    (tmp_path / "new.csv").write_text("smiles\nF/C=C/F\nF/C=C\\F\n")
    for attributes in (True, False):
        run = tmp_path / f"run-{attributes}"
        trained(tmp_path / "molecules.csv", run, models=(name,), epochs=3, edge_attributes=attributes)
        one, other = predict_run(run, str(tmp_path / "new.csv"), device="cpu").probabilities
        assert torch.equal(one, other) != attributes


def test_the_best_training_is_asked_or_that_of_a_model(papers, tmp_path):
    summary = trained(papers, tmp_path / "run", models=("mlp", "gcn"), num_splits=2, epochs=5)
    best = max(summary.cells, key=lambda result: result.val_metric)
    assert predict_run(tmp_path / "run", str(papers)).choice.result == best
    assert predict_run(tmp_path / "run", str(papers), model="mlp").choice.result.model == "mlp"
    with refused("has no training of model 'hkn', only of mlp, gcn"):
        predict_run(tmp_path / "run", str(papers), model="hkn")


def test_data_that_do_not_fit(papers, tmp_path):
    trained(papers, tmp_path / "run", epochs=1)
    nodes = (papers / "nodes.csv").read_text()
    for before, after, message in (
        ("red", "pink", "nodes.csv, line 7, column colour: category 'pink' was not there in training"),
        ("age", "years", "nodes.csv, line 1, column years is unknown"),
        ("paper 3,", "paper 2,", "nodes.csv, line 5, column id: 'paper 2' was already in line 4"),
    ):
        (papers / "nodes.csv").write_text(nodes.replace(before, after, 1))
        with refused(message):
            predict_run(tmp_path / "run", str(papers))
    (papers / "nodes.csv").write_text(nodes)
    with refused("nodes.csv, line 1, column age is missing; there are id, colour"):
        other = tmp_path / "other"
        other.mkdir()
        (other / "nodes.csv").write_text("id,colour\na,red\n")
        (other / "edges.csv").write_text("source,target,weight\n")
        predict_run(tmp_path / "run", str(other))


def test_predict_export_and_explore_choose_the_same_training(tmp_path, papers):
    """HKN where there is one, else a hyperbolic network, else whatever is best; and say what was better."""
    out = tmp_path / "run"
    summary = trained(papers, out, models=("gcn", "hgcn", "hkn"), num_splits=2, epochs=2)
    for metrics in out.glob("*/*/metrics.json"):
        stored = json.loads(metrics.read_text())
        stored["val_metric"] = {"gcn": 0.9, "hgcn": 0.8, "hkn": 0.5}[stored["model"]] + 0.01 * stored["split"]
        metrics.write_text(json.dumps(stored))
    choice = choose_training(out)
    assert choice.result.cell == Cell("hkn", 1, 0)
    assert choice.reason == "the best of 2 trainings of hkn; gcn reached 91.0 %, predict --model gcn asks it"
    assert str(choice).startswith("hkn split 1 seed 0, validation accuracy 51.0 %: the best of 2")
    assert predict_run(out, device="cpu").choice == choice == export_run(out, tmp_path / "m.pt2")
    assert read_run_scene(out).note.startswith("split 1, seed 0, validation accuracy 51.0")
    for cell in (result.cell for result in summary.cells if result.model == "hkn"):
        (out / cell.folder / "metrics.json").unlink()
    assert choose_training(out).result.cell == Cell("hgcn", 1, 0)
    assert choose_training(out, "gcn").result.cell == Cell("gcn", 1, 0)


def test_a_run_on_a_dataset_of_the_catalog_predicts_on_it(tmp_path, papers):
    trained("tree", tmp_path / "run", models=("mlp",), epochs=3, scale="standard")
    with refused("was trained on dataset 'tree' and predicts on it: leave the data out"):
        predict_run(tmp_path / "run", str(papers))
    found = predict_run(tmp_path / "run", device="cpu")
    dataset = load("tree", num_splits=1, scale="standard")
    network, _ = load_checkpoint(tmp_path / "run/mlp/split0-seed0")
    with torch.no_grad():
        expected = network(dataset.splits[0].scaling(dataset.graph.x), dataset.graph.edge_index).double().softmax(1)
    assert torch.equal(found.probabilities, expected) and found.classes == tuple("01234567")
    assert found.ids == [str(number) for number in range(971)]


def test_questions_have_a_probability_of_yes_each(tmp_path, monkeypatch, questions):
    monkeypatch.setattr(building, "load", lambda *_, **__: questions)
    trained("tox21", tmp_path / "run", epochs=3, batch_size=8, num_splits=1)
    found = predict_run(tmp_path / "run", device="cpu")
    assert found.probabilities.shape == (40, 2) and found.metric == "ROC-AUC"
    heading, *rows = as_csv(found).splitlines()
    assert heading == "id,p_0,p_1" and len(rows) == 40
    network, _ = load_checkpoint(tmp_path / "run/gcn/split0-seed0")
    first = questions.graphs[0]
    x = torch.nn.functional.one_hot(first.x[:, 0].long(), 3).float()
    with torch.no_grad():
        logits = network(x, first.edge_index, batch=torch.zeros(len(x), dtype=torch.int64), batch_size=1)[0]
    expected = torch.stack([logits[1] - logits[0], logits[3] - logits[2]]).double().sigmoid()
    torch.testing.assert_close(found.probabilities[0], expected, rtol=1e-5, atol=1e-6)


def test_a_run_on_own_data_of_an_earlier_version_is_read_as_what_it_was(papers, tmp_path):
    """It had features as they are, and no missing values."""
    out = tmp_path / "run"
    trained(papers, out, scale="none", epochs=3)
    expected = predict_run(out, str(papers), device="cpu").probabilities
    for name, later in (("data.json", ("scalings", "notes")), ("recipe.json", ("scale", "missing"))):
        stored = json.loads((out / name).read_text())
        stored = {key: value for key, value in stored.items() if key not in later}
        if name == "data.json":
            names = [{key: feature[key] for key in ("name", "categories")} for feature in stored["features"]]
            stored |= {"format_version": 1, "features": names}
        (out / name).write_text(json.dumps(stored))
    assert torch.equal(predict_run(out, str(papers), device="cpu").probabilities, expected)
    assert all(entry.agrees for entry in evaluate_run(out))
    nodes = (papers / "nodes.csv").read_text()
    (papers / "nodes.csv").write_text(re.sub(r"paper 3,[^,]*,", "paper 3,,", nodes))
    with refused("nodes.csv: values are missing in age 1"):
        predict_run(out, str(papers))


def test_links_from_a_file_of_edges_alone(tmp_path):
    """Two cliques that lack a few links: these are the likeliest."""
    pairs = [(f"{side}{i}", f"{side}{j}") for side in "äb" for i in range(16) for j in range(i)]
    missing = {("ä9", "ä3"), ("b7", "b2"), ("b12", "b0"), ("ä14", "ä5")}
    lines = [f"{one},{other}" for one, other in pairs if (one, other) not in missing]
    (tmp_path / "edges.csv").write_text("\n".join(["source,target", *lines]) + "\n", encoding="utf-8")
    settings = {"models": ("gcn",), "epochs": 150, "hidden_dim": 16, "dropout": 0.0, "num_layers": 1}
    summary = trained(tmp_path / "edges.csv", tmp_path / "run", **settings)
    assert summary.dataset["task"] == "link" and summary.models[0].test.mean > 0.9
    found = predict_run(tmp_path / "run", device="cpu")
    listed = {frozenset(line.split(",")) for line in lines}
    predicted = [frozenset(pair) for pair in zip(found.ids, found.targets)]
    assert not listed & set(predicted) and len(set(predicted)) == 32 * 31 // 2 - len(lines)
    assert {frozenset(pair) for pair in missing} <= set(predicted[:20])
    assert (found.probabilities[:-1] >= found.probabilities[1:]).all()
    assert as_csv(found).startswith("source,target,p\n")
    assert all(entry.agrees for entry in evaluate_run(tmp_path / "run"))


def test_links_of_tables_with_nodes(tmp_path):
    papers = write_papers(tmp_path / "papers")
    summary = trained(papers, tmp_path / "run", task="link", epochs=2)
    assert summary.dataset["task"] == "link" and summary.dataset["num_features"] == 4
    assert len(predict_run(tmp_path / "run", str(papers), device="cpu").targets) > 100
    with refused("direction must be 'both' for the link task"):
        trained(papers, tmp_path / "other", task="link", direction="in")


@pytest.fixture
def predictions():
    probabilities = torch.tensor([[0.25, 0.75], [1 / 3, 2 / 3], [0.9, 0.1]], dtype=torch.float64)
    return Predictions(None, "node", ["a,b", 'c"', "日本"], ("no", "yes, sure"), probabilities)


def test_csv(tmp_path, predictions):
    path = write_predictions(tmp_path / "out.csv", predictions)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["id", "class", "p_no", "p_yes, sure"]
    assert [row[:2] for row in rows[1:]] == [["a,b", "yes, sure"], ['c"', "yes, sure"], ["日本", "no"]]
    assert rows[1][2:] == ["0.25", "0.75"]
    assert [float(value) for value in rows[2][2:]] == pytest.approx([1 / 3, 2 / 3], rel=1e-8)


def test_parquet(tmp_path, predictions):
    found = parquet.read_table(write_predictions(tmp_path / "out.parquet", predictions)).to_pydict()
    assert found == {
        "id": ["a,b", 'c"', "日本"],
        "class": ["yes, sure", "yes, sure", "no"],
        "p_no": [0.25, 1 / 3, 0.9],
        "p_yes, sure": [0.75, 2 / 3, 0.1],
    }


def test_an_older_file_stays_whole_if_the_new_one_cannot_be_written(tmp_path, predictions, monkeypatch):
    (tmp_path / "out.csv").write_text("older")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match=r"out\.csv cannot be written \(No space left on device\)"):
        write_predictions(tmp_path / "out.csv", predictions)
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"] and (tmp_path / "out.csv").read_text() == "older"


def test_targets_are_checked_first(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"out must end in \.csv or \.parquet"):
        check_target(tmp_path / "out.txt")
    with pytest.raises(InputError, match="does not exist"):
        check_target(tmp_path / "nowhere" / "out.csv")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"install it with pip install 'hkconv\[parquet\]'"):
        check_target(tmp_path / "out.parquet")


def scoring_output(run, data):
    """What the network of a run on one split says, as the difference of its two logits a question."""
    network, _ = load_checkpoint(run / "gcn/split0-seed0")
    graph = load_own(data).graph
    with torch.no_grad():
        logits = network(as_seen(run, graph.x), graph.edge_index).double()
    return logits[:, 1::2] - logits[:, ::2]


def test_numbers_are_predicted_in_the_unit_of_the_column(tmp_path):
    houses, run = write_houses(tmp_path / "houses"), tmp_path / "run"
    summary = trained(houses, run, epochs=60, residual=True)
    assert summary.models[0].test.mean > 0.8 and all(entry.agrees for entry in evaluate_run(run))
    found = predict_run(run, str(houses), device="cpu")
    dataset = load_own(houses, num_splits=1)
    known = dataset.labels[dataset.splits[0].train].double()
    expected = known.mean() + known.std(correction=0) * scoring_output(run, houses)
    torch.testing.assert_close(found.probabilities, expected)
    heading, first, *_ = as_csv(found).splitlines()
    assert heading == "id,target" and first == f"house 0,{expected[0].item():.9g}"
    assert (found.probabilities - dataset.labels)[dataset.splits[0].test].abs().median() < 30_000


@pytest.mark.parametrize("labels", ["target", "questions"])
def test_labels_in_new_data_are_not_needed_and_not_looked_at(tmp_path, labels):
    houses, run = write_houses(tmp_path / "houses", labels), tmp_path / "run"
    trained(houses, run, epochs=3)
    before = predict_run(run, device="cpu").probabilities
    nodes = (houses / "nodes.csv").read_text().splitlines()
    for column in ("label", "target", "label:other", None):
        rows = [f"{','.join(row.split(',')[:3])}{'' if column is None else ',1'}" for row in nodes]
        rows[0] = "id,size,kind" + ("" if column is None else f",{column}")
        (houses / "nodes.csv").write_text("\n".join(rows) + "\n")
        assert torch.equal(predict_run(run, str(houses), device="cpu").probabilities, before)


def test_questions_of_own_nodes_have_their_names(tmp_path):
    houses, run = write_houses(tmp_path / "houses", "questions"), tmp_path / "run"
    summary = trained(houses, run, epochs=60, residual=True)
    assert summary.models[0].test.mean > 0.8 and all(entry.agrees for entry in evaluate_run(run))
    found = predict_run(run, device="cpu")
    torch.testing.assert_close(found.probabilities, scoring_output(run, houses).sigmoid())
    assert as_csv(found).splitlines()[0] == "id,p_is big,p_has garden"


def test_numbers_of_molecules(tmp_path):
    pytest.importorskip("rdkit")
    pytest.importorskip("ogb")
    trained(write_molecules(tmp_path, "target", 15, 10), tmp_path / "run", epochs=60)
    (tmp_path / "new.csv").write_text("id,smiles\na,CCCCCO\nb,CCCCCN\n")
    found = predict_run(tmp_path / "run", str(tmp_path / "new.csv"), device="cpu")
    alcohol, amine = found.probabilities.flatten().tolist()
    assert found.ids == ["a", "b"] and 13 < alcohol < 17 and 8 < amine < 12


@pytest.mark.parametrize("labels", ["target", "questions"])
def test_labels_of_samples_are_predicted_from_all_neighbors(tmp_path, labels):
    houses, run = write_houses(tmp_path / "houses", labels), tmp_path / "run"
    trained(houses, run, epochs=2, neighbors=(1, 1))
    assert all(entry.agrees for entry in evaluate_run(run))
    found, expected = predict_run(run, device="cpu").probabilities, scoring_output(run, houses)
    if labels == "target":
        ((mean, deviation),) = find_schema(run).targets
        torch.testing.assert_close(found, mean + deviation * expected)
    else:
        torch.testing.assert_close(found, expected.sigmoid())


def test_a_split_that_cannot_be_scored_is_refused_before_a_folder_is_made(tmp_path):
    houses = write_houses(tmp_path / "houses")
    (tmp_path / "split.json").write_text('{"train": [0, 1, 2], "val": [3, 9], "test": [4, 5]}')
    with refused("dataset 'houses' has no two different numbers in val of this split: R2 needs them"):
        trained(houses, tmp_path / "run", split_file=str(tmp_path / "split.json"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["gcn", "mlp"])
def test_attributes_of_edges_are_learned_from_and_predicted_with(tmp_path, name):
    """Whoever is pointed to by friends is liked, and the nodes' own features say nothing."""
    friends, run = write_friends(tmp_path / "friends"), tmp_path / "run"
    summary = trained(friends, run, models=(name,), epochs=60, direction="in", num_layers=1, dropout=0.0)
    assert summary.models[0].test.mean > 0.9 and all(entry.agrees for entry in evaluate_run(run))
    found = predict_run(run, device="cpu")
    assert set(found.predicted[::2]) == {"liked"} and set(found.predicted[1::2]) == {"disliked"}
    edges = (friends / "edges.csv").read_text()
    swapped = edges.replace("friend", "FRIEND").replace("rival", "friend").replace("FRIEND", "rival")
    (friends / "edges.csv").write_text(swapped)
    assert set(predict_run(run, str(friends), device="cpu").predicted[::2]) == {"disliked"}
    (friends / "edges.csv").write_text(edges.replace("kind", "sort", 1))
    with refused("edges.csv, line 1, column sort is unknown"):
        predict_run(run, str(friends))
    for changes in ({"edge_attributes": False}, {"task": "link"}):
        without = trained(friends, tmp_path / f"run-{[*changes]}", models=(name,), epochs=1, **changes)
        assert without.models[0].trainings == 1


def test_samples_of_neighbors_have_no_attributes(tmp_path):
    friends = write_friends(tmp_path / "friends")
    with refused("neighbors must be none where edges have attributes, which samples do not have"):
        trained(friends, tmp_path / "run", neighbors=(2, 2))
    assert not (tmp_path / "run").exists()
    trained(friends, tmp_path / "run", neighbors=(2, 2), edge_attributes=False, epochs=1)


def test_several_types_of_nodes_in_one_table(tmp_path):
    """The class of a paper follows from the age of its author, who has none."""
    library, run = write_library(tmp_path / "library"), tmp_path / "run"
    summary = trained(library, run, epochs=80, direction="in", hidden_dim=8, dropout=0.0, norm="batch", num_layers=1)
    assert summary.models[0].test.mean > 0.9 and all(entry.agrees for entry in evaluate_run(run))
    found = predict_run(run, str(library), device="cpu")
    assert found.predicted[40:44] == ["early", "late", "early", "late"]


def test_numbers_and_answers_of_saved_graphs(tmp_path):
    draw = torch.Generator().manual_seed(0)
    for labels, metric in (("numbers", "R2"), ("answers", "ROC-AUC")):
        graphs = []
        for number in range(40):
            x = torch.rand(4, 2, generator=draw) + number % 3
            y = x.mean(0)[None] > 1.5 if labels == "answers" else x.mean()
            graphs.append(Data(x=x, edge_index=torch.randint(4, (2, 5), generator=draw), y=y.float()))
        torch.save(graphs, tmp_path / f"{labels}.pt")
        summary = trained(tmp_path / f"{labels}.pt", tmp_path / labels, epochs=60, residual=True, batch_size=8)
        found = predict_run(tmp_path / labels, device="cpu")
        assert found.metric == metric and summary.models[0].test.mean > 0.8
        heading = as_csv(found).splitlines()[0]
        assert heading == ("id,p_0,p_1" if labels == "answers" else "id,target") and len(found.ids) == 40
