import json
from pathlib import Path

import pytest

from hkconv.tasks.recipe import make_recipe
from hkconv.tasks.summary import Cell, CellResult, RunSummary, Spread, Unlearned, find_unlearned


def make_result(model, split, test, interrupted=False, val=0.5):
    scores = {"test_loss": 1.0, "val_metric": val, "val_loss": 1.0, "best_epoch": 3, "epochs": 4 + split}
    return CellResult(model, split, 0, "accuracy", test, **scores, seconds=2.0, parameters=10, interrupted=interrupted)


def test_spread_is_the_sample_deviation():
    assert Spread.of([1.0, 3.0]) == Spread(2.0, pytest.approx(2**0.5))
    assert Spread.of([1.0]) == Spread(1.0, None)


def test_a_cell_names_its_folder():
    assert Cell("hkn", 2, 1).folder == "hkn/split2-seed1"
    assert str(make_result("hkn", 2, 0.5).cell) == "hkn split 2 seed 0"


def test_rows_follow_the_recipe_and_leave_interrupted_trainings_out():
    cells = [make_result("mlp", 0, 0.6), make_result("mlp", 1, 0.8), make_result("hkn", 0, 0.1, interrupted=True)]
    summary = RunSummary(
        folder=Path("run"),
        recipe=make_recipe(models=("hkn", "mlp")),
        dataset={"name": "tree"},
        metric="accuracy",
        chance_rule="majority class",
        chance=Spread(0.2, None),
        cells=cells,
        device="cpu",
        versions={},
        seconds=1.0,
        interrupted=True,
        unlearned=[Unlearned("mlp", 2, 2, ["another --lr"])],
    )
    (row,) = summary.models
    assert (row.model, row.trainings, row.mean_epochs, row.seconds) == ("mlp", 2, 4.5, 4.0)
    assert row.test == Spread(pytest.approx(0.7), pytest.approx(0.1 * 2**0.5))
    stored = json.loads(json.dumps(summary.as_dict()))
    assert len(stored["cells"]) == 3
    assert stored["interrupted"] is True
    assert stored["unlearned"] == [{"model": "mlp", "trainings": 2, "finished": 2, "remedies": ["another --lr"]}]


def unlearned(values, most):
    """In how many trainings, one on each split, the models that learned nothing did so."""
    cells = [make_result(model, split, 0.5, val=val) for model in values for split, val in enumerate(values[model])]
    return {entry.model: (entry.trainings, entry.finished) for entry in find_unlearned(cells, most)}


def test_a_model_learned_nothing_if_most_trainings_did():
    values = {"hkn": [0.6, 0.5, 0.9], "gcn": [0.6, 0.71, 0.9], "mlp": [0.1, 0.7, 0.3], "gat": [0.61, 0.71, 0.31]}
    assert unlearned(values, [0.6, 0.7, 0.3]) == {"hkn": (2, 3), "mlp": (3, 3)}
    assert unlearned({"hkn": [0.6, 0.9]}, [0.6, 0.6]) == {}
    assert unlearned({}, [0.6]) == {}


def test_a_lucky_example_more_or_its_rounding_is_no_learning_but_two_are():
    most = (7 + 1) / 11
    assert unlearned({"mlp": [1 - 3 / 11]}, [most]) == {"mlp": (1, 1)}
    assert unlearned({"mlp": [9 / 11]}, [most]) == {}


def test_a_perfect_score_is_never_nothing():
    assert unlearned({"mlp": [1.0], "gcn": [0.9]}, [1.0]) == {"gcn": (1, 1)}
    assert unlearned({"mlp": [1.0]}, [1.1]) == {}


def test_interrupted_trainings_say_nothing_of_learning():
    cells = [make_result("mlp", 0, 0.5, interrupted=True, val=0.1), make_result("mlp", 1, 0.5, val=0.9)]
    assert find_unlearned(cells, [0.5, 0.5]) == []
    assert find_unlearned(cells[:1], [0.5, 0.5]) == []
