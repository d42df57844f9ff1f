"""Batches of cells: which networks are trained at once, and records that are those of single trainings."""

from dataclasses import replace

import pytest
import torch
from small_datasets import small_tree

from hkconv.data.dataset import learn_scalings
from hkconv.data.options import ACCURACY, R2
from hkconv.engine.step import CaptureBrokenError
from hkconv.errors import InputError
from hkconv.experiments import reproduce as filling
from hkconv.experiments import store, training
from hkconv.experiments.batches import NETWORKS_AT_ONCE, BatchTrainer, group_cells, networks_at_once
from hkconv.experiments.pool import Lost, SpoiledError
from hkconv.experiments.recipe_files import read_table
from hkconv.experiments.reproduce import Order, reproduce
from hkconv.experiments.spaces import read_tuning
from hkconv.experiments.tables import Choice, Execution, list_cells
from hkconv.experiments.training import CellTrainer
from hkconv.experiments.tuner import find_best, tune
from hkconv.models import GCN
from hkconv.tasks import building

CPU = torch.device("cpu")


@pytest.fixture
def cells(recipes):
    """Two splits of a GCN with three learning rates, without dropout."""
    found = list_cells(read_table("node", recipes), Choice(systems=("GCN",)), Execution("cpu"))
    return [
        replace(cell, recipe=cell.recipe.replace(lr=lr, dropout=0.0)) for lr in (0.001, 0.01, 0.05) for cell in found
    ]


def test_cells_of_one_architecture_form_a_batch(recipes, cells):
    other = replace(cells[0], recipe=cells[0].recipe.replace(hidden_dim=5))
    dropped = replace(cells[0], recipe=cells[0].recipe.replace(dropout=0.5, weight_decay=1.0))
    assert group_cells([*cells, other, dropped], 10) == [(*cells, dropped), (other,)]
    assert group_cells(cells, 4) == [tuple(cells[:3]), tuple(cells[3:])]
    assert group_cells(cells, 1) == [(cell,) for cell in cells]


def test_graphs_and_samples_of_neighbors_are_trained_one_by_one(cells):
    sampled = [replace(cell, recipe=cell.recipe.replace(neighbors=(3, 3))) for cell in cells[:2]]
    graphs = list_cells(read_table("graph"), Choice(datasets=("ptc",), systems=("GCN",), quick=True))[:2]
    assert all(len(batch) == 1 for batch in group_cells([*sampled, *graphs], 10))


def test_a_gpu_takes_many_networks_and_a_cpu_one_unless_asked():
    cuda = torch.device("cuda")
    assert networks_at_once(Execution(), cuda) == NETWORKS_AT_ONCE > 1
    assert networks_at_once(Execution(), CPU) == networks_at_once(Execution(capture=True), cuda) == 1
    assert networks_at_once(Execution(batch=7), CPU) == 7
    with pytest.raises(InputError, match="batch must be 1"):
        Execution(capture=True, batch=2)
    with pytest.raises(InputError, match="batch"):
        Execution(batch=0)


def test_a_record_of_a_batch_is_that_of_the_training_by_itself(cells, tmp_path):
    together = BatchTrainer(CellTrainer())(tuple(cells))
    for cell, found in zip(cells, together):
        alone = CellTrainer()(cell)
        assert found.keys() == {*alone, "batch"} and found["batch"] == len(cells)
        assert store.identity(found) == store.identity(alone) == cell.identity
        assert found["val_loss"] == pytest.approx(alone["val_loss"], abs=1e-4)
        assert found["test_loss"] == pytest.approx(alone["test_loss"], abs=1e-4)
        same = ("best_epoch", "epochs", "parameters", "split_sizes", "dataset_info", "metric", "recipe")
        assert all(found[name] == alone[name] for name in same)
        store.append(tmp_path, found)
    stored, damaged = store.read(tmp_path, ("node",))
    assert not damaged and [record["batch"] for record in stored] == [len(cells)] * len(cells)


def test_a_batch_whose_capture_broke_spoils_the_process(cells, monkeypatch):
    def breaking(*_):
        raise CaptureBrokenError("out of memory")

    monkeypatch.setattr(training, "train_cells", breaking)
    with pytest.raises(SpoiledError, match="out of memory"):
        BatchTrainer(CellTrainer())(tuple(cells))


@pytest.mark.parametrize("device, may", [("cpu", False), ("cuda", True)])
def test_a_batch_may_spoil_its_process_on_a_gpu_alone(device, may, recipes, tmp_path, monkeypatch):
    told = []

    def results(train, jobs, processes, *, may_spoil):
        told.append(may_spoil)
        return iter([])

    monkeypatch.setattr(filling, "results_of", results)
    monkeypatch.setattr(filling, "find_device", torch.device)
    reproduce(Order(("node",), Choice(systems=("GCN",)), Execution(device, batch=2), 1, tmp_path, recipes))
    assert told == [may]


def test_what_cannot_be_trained_together_is_trained_by_itself(cells, monkeypatch):
    encode = GCN.encode

    def look(self, *inputs):
        logits = encode(self, *inputs)
        # No operation of many networks has a single value.
        return logits if logits.sum().item() < 1e9 else -logits

    monkeypatch.setattr(GCN, "encode", look)
    with pytest.warns(UserWarning, match="GCN: 6 trainings go one by one, vmap"):
        outcomes = BatchTrainer(CellTrainer())(tuple(cells))
    for cell, outcome in zip(cells, outcomes):
        assert "batch" not in outcome
        assert outcome["val_loss"] == CellTrainer()(cell)["val_loss"]


def test_a_network_that_meets_nan_speaks_for_itself(cells):
    wild = replace(cells[0], recipe=cells[0].recipe.replace(lr=1e20))
    broken, *others = BatchTrainer(CellTrainer())((wild, *cells[1:]))
    assert "batch" not in broken and "not finite" in (broken.get("error") or broken["guard"])
    whole = BatchTrainer(CellTrainer())(tuple(cells))[1:]
    assert [record["val_loss"] for record in others] == [record["val_loss"] for record in whole]


def test_features_are_scaled_by_the_training_rows_of_a_cell_s_own_split(cells, monkeypatch):
    tree = small_tree()
    scalings = learn_scalings("node", [tree.graph], tree.splits, "standard", [True] * tree.num_features)
    splits = [replace(split, scaling=scaling) for split, scaling in zip(tree.splits, scalings)]
    monkeypatch.setattr(building, "load", lambda *_, **__: replace(tree, splits=splits))
    alone = [CellTrainer()(cell) for cell in cells]
    both = BatchTrainer(CellTrainer())(tuple(cells))
    assert [record["val_loss"] for record in both] == [record["val_loss"] for record in alone]
    chosen = [number for number, cell in enumerate(cells) if cell.split == 1]
    together = BatchTrainer(CellTrainer())(tuple(cells[number] for number in chosen))
    assert [record["batch"] for record in together] == [3] * 3
    for number, record in zip(chosen, together):
        assert record["val_loss"] == pytest.approx(alone[number]["val_loss"], abs=1e-4)


@pytest.mark.parametrize("kind", ["number", "attributes"])
def test_numbers_and_attributes_of_edges_are_trained_one_by_one(cells, monkeypatch, recwarn, kind):
    tree = small_tree()
    graph, metric = tree.graph.clone(), ACCURACY
    if kind == "number":
        graph.y, metric = graph.x[:, :1], R2
    else:
        graph.edge_attr = torch.rand(graph.num_edges, 2)
    num_classes = 2 if metric == R2 else tree.num_classes
    changed = replace(tree, graph=graph, num_classes=num_classes, metric=metric)
    monkeypatch.setattr(building, "load", lambda *_, **__: changed)
    found = BatchTrainer(CellTrainer())(tuple(cells))
    assert [record["val_loss"] for record in found] == [CellTrainer()(cell)["val_loss"] for cell in cells]
    # As is known before anything of them is tried.
    assert not any("one by one" in str(warning.message) for warning in recwarn)


def test_a_batch_too_large_for_the_memory_is_halved(cells, monkeypatch):
    sizes = []

    def train_cells(some, *rest):
        sizes.append(len(some))
        if len(some) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return train(some, *rest)

    train = training.train_cells
    monkeypatch.setattr(training, "train_cells", train_cells)
    outcomes = BatchTrainer(CellTrainer())(tuple(cells))
    assert sizes == [6, 3, 3]
    assert [outcome["batch"] for outcome in outcomes] == [3] * 6


def test_a_table_is_filled_in_batches(recipes, tmp_path):
    for name, place in (("alone", Execution("cpu")), ("together", Execution("cpu", batch=9))):
        assert reproduce(
            Order(("node",), Choice(systems=("MLP", "GCN")), place, 1, tmp_path / name, recipes)
        ).is_complete
    alone, together = (store.read(tmp_path / name, ("node",))[0] for name in ("alone", "together"))
    assert {*map(store.identity, alone)} == {*map(store.identity, together)}
    assert [record.get("batch") for record in together] == [2] * 4
    # What is stored is not trained again, however it was trained.
    again = Order(("node",), Choice(systems=("MLP", "GCN")), Execution("cpu"), 1, tmp_path / "together", recipes)
    assert sum(reproduce(again).added.values()) == 0


def test_a_batch_that_is_lost_is_trained_one_by_one(recipes, tmp_path, monkeypatch):
    def losing(function, jobs, *_, **__):
        for job in jobs:
            yield job, Lost(-9) if len(job) > 1 else function(job)

    monkeypatch.setattr(filling, "results_of", losing)
    order = Order(("node",), Choice(systems=("MLP",)), Execution("cpu", batch=9), 1, tmp_path / "records", recipes)
    assert reproduce(order).is_complete
    assert all("batch" not in record for record in store.read(order.results, ("node",))[0])


def test_poisoned_test_labels_change_no_choice_of_a_batch(recipes, tmp_path, monkeypatch):
    chosen, seen = {}, {}
    for kind in ("plain", "poisoned"):
        tree = small_tree()
        test = tree.splits[0].test[
            ~torch.isin(tree.splits[0].test, torch.cat([tree.splits[1].train, tree.splits[1].val]))
        ]
        if kind == "poisoned":
            tree.graph.y[test] = (tree.graph.y[test] + 1) % 3
        assert len(test) > 0
        monkeypatch.setattr(building, "load", lambda *_, tree=tree, **__: tree)
        order = Order(("node",), Choice(systems=("GCN", "HKN")), Execution("cpu", batch=9), 1, tmp_path / kind, recipes)
        plan = read_tuning("node", recipes)
        assert tune(plan, order).is_complete
        records, _ = store.read(order.results, ("tuning-node",))
        assert any("batch" in record for record in records)
        scores = [(record["variant"], record["split"], record["val"], record["val_loss"]) for record in records]
        chosen[kind] = scores, [(found.label, found.best.drawn, found.score) for found in find_best(plan, order)]
        assert all(record["test"] is None for record in records)
        cells = list_cells(read_table("node", recipes), Choice(systems=("GCN",)), Execution("cpu"))
        seen[kind] = BatchTrainer(CellTrainer())(tuple(cells))
    assert chosen["plain"] == chosen["poisoned"]
    # The poison works: whoever looks at the test part sees another score.
    for plain, poisoned in zip(seen["plain"], seen["poisoned"]):
        assert plain["val_loss"] == poisoned["val_loss"] and plain["test_loss"] != poisoned["test_loss"]
