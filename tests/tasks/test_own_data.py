import json
import re

import numpy as np
import pytest
import torch
from own_files import write_papers
from torch_geometric.data import Data

from hkconv.engine.callbacks import Callback
from hkconv.errors import InputError
from hkconv.tasks.building import load_dataset
from hkconv.tasks.evaluate import evaluate_run
from hkconv.tasks.own_data import find_schema
from hkconv.tasks.recipe import make_recipe
from hkconv.tasks.run import read_recipe, train_run


def refused(message):
    return pytest.raises(InputError, match=re.escape(message))


@pytest.fixture
def papers(tmp_path):
    return write_papers(tmp_path / "papers")


def quick(papers, out, **changes):
    values = {"models": ("mlp", "gcn"), "epochs": 3, "num_splits": 2, "hidden_dim": 4, "device": "cpu"}
    return make_recipe(**{**values, "dataset": str(papers), "out": str(out), **changes})


def weights_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("model.safetensors"))}


def test_a_run_keeps_what_it_learned_of_the_data(papers, tmp_path):
    summary = train_run(quick(papers, tmp_path / "run"))
    assert [summary.dataset[key] for key in ("name", "num_classes", "num_features")] == ["papers", 3, 4]
    schema = find_schema(tmp_path / "run")
    assert schema.classes == ("high", "low", "mid") and schema.is_weighted
    assert [(feature.name, feature.categories) for feature in schema.features] == [
        ("age", None),
        ("colour", ("blue", "green", "red")),
    ]
    with np.load(tmp_path / "run" / "splits.npz") as masks:
        assert masks["train_mask"].shape == (2, 60) and masks["train_mask"].sum() == 60
    assert all(entry.difference == 0 for entry in evaluate_run(tmp_path / "run", device="cpu"))


def test_a_run_without_a_folder_is_called_after_the_data(papers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    summary = train_run(make_recipe(dataset="papers", models=("mlp",), epochs=1, num_splits=1, device="cpu"))
    assert re.fullmatch(r"runs/papers-\d{8}-\d{6}", str(summary.folder))
    assert read_recipe(summary.folder).data.dataset == str(papers)


class Interrupt(Callback):
    def cell_ended(self, result):
        raise KeyboardInterrupt


def test_a_resumed_run_ends_as_one_that_never_stopped(papers, tmp_path, monkeypatch):
    train_run(quick(papers, tmp_path / "whole"))
    assert train_run(quick(papers, tmp_path / "half"), Interrupt()).interrupted
    # From another folder, and although other splits would be drawn now.
    monkeypatch.chdir("/")
    monkeypatch.setattr("hkconv.data.own.loading.FRACTIONS", {"node": (0.2, 0.4, 0.4)})
    train_run(read_recipe(tmp_path / "half").replace(out=str(tmp_path / "half")), resume=True)
    assert weights_of(tmp_path / "half") == weights_of(tmp_path / "whole")


@pytest.mark.parametrize(
    ("file", "before", "after", "message"),
    [
        ("nodes.csv", "red", "blue", "have changed since they were trained on: other features, edges or ids"),
        ("nodes.csv", ",low\n", ",mid\n", "have changed since they were trained on: other labels or splits"),
        ("nodes.csv", "red", "pink", "nodes.csv, line 7, column colour: category 'pink' was not there in training"),
        ("nodes.csv", "age", "years", "nodes.csv, line 1, column years is unknown"),
        ("edges.csv", "paper 0,", "paper 1,", "have changed since they were trained on: other features, edges or ids"),
    ],
)
def test_changed_data_are_noticed(papers, tmp_path, file, before, after, message):
    recipe = quick(papers, tmp_path / "run", models=("mlp",), epochs=1)
    train_run(recipe)
    content = (papers / file).read_text()
    assert before in content
    (papers / file).write_text(content.replace(before, after, 1))
    with refused(message):
        evaluate_run(tmp_path / "run")
    with refused(message):
        train_run(recipe, resume=True)


def test_data_that_moved_are_found_again(papers, tmp_path):
    train_run(quick(papers, tmp_path / "run", models=("mlp",), epochs=1))
    papers.rename(tmp_path / "elsewhere")
    with refused("papers do not exist"):
        evaluate_run(tmp_path / "run")
    assert all(entry.agrees for entry in evaluate_run(tmp_path / "run", data=str(tmp_path / "elsewhere")))
    moved = read_recipe(tmp_path / "run").replace(data=str(tmp_path / "elsewhere"))
    assert len(train_run(moved, resume=True).cells) == 2
    with refused("data is the folder of named datasets"):
        load_dataset(quick(tmp_path / "elsewhere", tmp_path / "new", data=str(tmp_path)))


def test_weights_reach_the_task_and_systems_without_them_are_refused_before_anything_is_written(papers, tmp_path):
    graph = load_dataset(quick(papers, tmp_path / "run")).graph
    assert graph.edge_weight.shape == (graph.edge_index.size(1),) and len(graph.edge_weight.unique()) > 10
    with refused("model 'gat' knows no weights of edges"):
        train_run(quick(papers, tmp_path / "run", models=("gat",)))
    assert not (tmp_path / "run").exists()
    train_run(quick(write_papers(papers, weighted=False), tmp_path / "run", models=("gat",), hidden_dim=8, epochs=1))


def test_graphs_train_too(tmp_path):
    ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    graphs = [
        Data(
            x=torch.ones(4, 1),
            edge_index=ring[:, : 3 + number % 2],
            y=number % 2,
            edge_weight=torch.ones(3 + number % 2),
        )
        for number in range(30)
    ]
    torch.save(graphs, tmp_path / "rings.pt")
    summary = train_run(quick(tmp_path / "rings.pt", tmp_path / "run", models=("gcn",)))
    assert (summary.dataset["task"], summary.dataset["num_graphs"]) == ("graph", 30)
    assert all(entry.difference == 0 for entry in evaluate_run(tmp_path / "run", device="cpu"))


def test_options_that_own_data_do_not_have(papers, tmp_path):
    with refused("protocol must be 'clean' for own data"):
        load_dataset(quick(papers, tmp_path / "run", protocol="published"))
    with refused("must be 'node', got 'link'"):
        load_dataset(quick(papers, tmp_path / "run", task="link"))


def test_damaged_files_of_a_run(papers, tmp_path):
    train_run(quick(papers, tmp_path / "run", models=("mlp",), epochs=1))
    data = json.loads((tmp_path / "run" / "data.json").read_text())
    (tmp_path / "run" / "data.json").write_text(json.dumps({**data, "classes": 3}))
    with refused("data.json is damaged: 'classes' must be a list"):
        evaluate_run(tmp_path / "run")
    (tmp_path / "run" / "data.json").write_text(json.dumps(data))
    (tmp_path / "run" / "splits.npz").write_bytes(b"half")
    with refused("splits.npz is not a valid .npz file"):
        evaluate_run(tmp_path / "run")
