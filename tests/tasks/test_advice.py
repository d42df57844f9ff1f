import time
from dataclasses import fields, replace
from pathlib import Path

import networkx
import pytest
import torch
from own_files import write_houses, write_papers
from small_datasets import poisoned, small_links, small_tree

from hkconv.data import hide_test, load
from hkconv.data.own.loading import load_own
from hkconv.engine.guard import DivergenceError
from hkconv.tasks import advice, building, run
from hkconv.tasks.advice import Contender, advise, compare_delta, compare_models, rewired
from hkconv.tasks.recipe import make_recipe
from hkconv.tasks.tasks import SplitTask


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return advise(str(write_papers(tmp_path_factory.mktemp("own") / "papers", more=5)), seconds=0.01, device="cpu")


def test_a_cycle_is_far_from_a_tree_and_a_tree_is_not():
    cycle = torch.stack([torch.arange(40), (torch.arange(40) + 1) % 40])
    tree = torch.stack([torch.arange(1, 127), (torch.arange(1, 127) - 1) // 2])
    far, near = (compare_delta([(edges, 127)], 0, lambda text: None) for edges in (cycle, tree))
    assert (far.own, far.exact, far.is_tree_like) == (10, True, False)
    assert near.own == 0 and near.random >= 1 and near.is_tree_like
    assert compare_delta([(torch.zeros(2, 0, dtype=torch.int64), 3)], 0, lambda text: None) is None


def test_a_random_graph_has_the_same_degrees_but_for_a_few(generator):
    edges = torch.tensor([*networkx.barabasi_albert_graph(500, 2, seed=0).edges]).t()
    made = rewired(edges, 500, generator)
    before, after = (each.flatten().bincount(minlength=500) for each in (edges, made))
    assert (after <= before).all() and after.sum() > 0.95 * before.sum()
    assert (made[0] != made[1]).all() and len(made.unique(dim=1).t()) == made.size(1)
    assert not torch.equal(made.unique(dim=1), edges.unique(dim=1))


def test_facts_are_those_of_the_edges_as_they_are_listed(found):
    graph = load_own(found.path).graph
    lines = [line.split(",")[:2] for line in Path(found.path, "edges.csv").read_text().splitlines()[1:]]
    assert found.repeated_edges == len(lines) - len({tuple(line) for line in lines}) > 0
    assert (
        found.facts.one_way_links > 0 and found.facts.nodes == 65 and found.facts.links == graph.edge_index.size(1) / 2
    )
    assert found.alike == 0 and found.metric == "accuracy"


def test_no_label_to_test_on_is_looked_at(found):
    assert all(split.test is None for split in found.dataset.splits)
    graph, split = load_own(found.path).graph, found.dataset.splits[0]
    known = set(torch.cat([split.train, split.val]).tolist())
    links = {tuple(sorted(edge)) for edge in graph.edge_index.t().tolist() if set(edge) <= known}
    same = [bool(graph.y[first] == graph.y[second]) for first, second in links]
    assert found.facts.homophily == pytest.approx(sum(same) / len(same))
    assert not any("test" in field.name for field in fields(Contender))


def test_every_model_is_trained_however_little_time_there_is(found):
    assert {trial.model for trial in found.trials} == {"hkn", "gcn", "mlp"}
    assert all(len(trial.scores) == 1 and trial.cut_short and trial.epochs >= 1 for trial in found.trials)


def test_rounds_end_when_their_time_is_over(tmp_path):
    recipe = make_recipe(models=("mlp", "gcn"), num_splits=10, device="cpu", epochs=10_000, patience=10_000)
    dataset = hide_test(load("tree", num_splits=10))
    begin = time.monotonic()
    *_, trials = compare_models(recipe, dataset, 2.0, lambda text: None)
    assert [len(trial.scores) for trial in trials] == [1, 1] and all(trial.cut_short for trial in trials)
    assert time.monotonic() - begin < 30


def test_an_interrupt_leaves_what_is_known(tmp_path, monkeypatch):
    def interrupted(text):
        if text.startswith("gcn"):
            raise KeyboardInterrupt

    found = advise(str(write_papers(tmp_path / "papers")), device="cpu", report=interrupted)
    assert found.interrupted and [trial.model for trial in found.trials] == ["mlp"]
    assert found.command.startswith("hkconv train ")


def trained(monkeypatch, of_gcn):
    """Let the trainings of GCN end as a function makes of them."""

    def train_cell(cell, *rest):
        found = run.train_cell(cell, *rest)
        return of_gcn(found) if cell.model == "gcn" else found

    monkeypatch.setattr(advice, "train_cell", train_cell)


def test_a_model_that_diverges_counts_with_its_best_epoch_and_the_others_go_on(tmp_path, monkeypatch):
    def diverging(training):
        error = DivergenceError("the loss became nan")
        error.best = training
        raise error

    trained(monkeypatch, diverging)
    found = advise(str(write_papers(tmp_path / "papers")), seconds=0.01, device="cpu")
    assert not found.interrupted and [trial.model for trial in found.trials] == ["mlp", "gcn", "hkn"]


def test_an_interrupt_ends_a_training_that_was_put_right_before_too(tmp_path, monkeypatch):
    def interrupted(training):
        return replace(training, result=replace(training.result, interrupted=True, guard="trained again"))

    trained(monkeypatch, interrupted)
    found = advise(str(write_papers(tmp_path / "papers")), seconds=1000, device="cpu")
    assert found.interrupted and [trial.model for trial in found.trials] == ["mlp"]


def test_nothing_is_measured_on_a_test_part(tmp_path, monkeypatch):
    monkeypatch.setattr(SplitTask, "chance_score", lambda task: pytest.fail("looked at a test part"), raising=False)
    assert advise(str(write_papers(tmp_path / "papers")), seconds=0.01, device="cpu").trials


@pytest.mark.parametrize("dataset", [small_tree(1), small_links(1)], ids=["nodes", "links"])
def test_poisoned_test_data_change_no_advice(dataset, monkeypatch):
    seen = []
    for own in (dataset, poisoned(dataset)):
        monkeypatch.setattr(building, "load", lambda *_, own=own, **__: own)
        # So little time that every training ends after its first epoch.
        found = advise("tree", task=dataset.task, seconds=1e-9, device="cpu")
        scores = [(trial.model, trial.scores) for trial in found.trials]
        seen.append((scores, found.unlearned, found.verdict, found.command))
        if dataset.task == "node":
            seen[-1] += found.facts, found.delta
    assert seen[0] == seen[1] and len(seen[0][0]) == 3


def with_scores(found, **scores):
    trials = tuple(Contender(name, (score,), 10, 1.0, False) for name, score in scores.items())
    return replace(found, trials=trials, unlearned=0.4)


@pytest.mark.parametrize(
    ("scores", "verdict", "models"),
    [
        ({"mlp": 0.8, "gcn": 0.9, "hkn": 0.95}, "hkn suits this: it is ahead on validation", "hkn,mlp"),
        ({"mlp": 0.8, "gcn": 0.951, "hkn": 0.95}, "hkn and gcn are within 1 point of each other", "hkn,gcn,mlp"),
        ({"mlp": 0.98, "gcn": 0.9, "hkn": 0.95}, "mlp suits this better than hkn by validation", "hkn,mlp"),
        ({"mlp": 0.4, "gcn": 0.3, "hkn": 0.4}, "no model learned anything yet", "hkn,mlp"),
        ({}, "no model was trained in the time there was", "hkn,mlp"),
    ],
)
def test_the_verdict_follows_from_validation(found, scores, verdict, models):
    judged = with_scores(found, **scores)
    assert judged.verdict.startswith(verdict)
    assert f"--models {models} " in judged.command + " "


def test_links_and_graphs_too(tmp_path):
    links = advise("tree", task="link", seconds=0.01, device="cpu")
    assert links.facts.homophily is None and links.metric == "ROC-AUC" and "--task link" in links.command
    assert links.delta.own == 0


@pytest.mark.parametrize(("labels", "metric"), [("target", "R2"), ("questions", "ROC-AUC")])
def test_numbers_and_questions_too(tmp_path, labels, metric):
    houses = write_houses(tmp_path / "houses", labels)
    found = advise(str(houses), seconds=0.01, device="cpu")
    assert found.metric == metric and len(found.trials) == 3
    assert found.sizes["without a label"] == 9 and "classes" not in found.sizes
    assert found.sizes.get("questions") == (None if labels == "target" else 2)
    assert found.facts.homophily is None and all(split.test is None for split in found.dataset.splits)
