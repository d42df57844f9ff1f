import json
from pathlib import Path

import pytest

from hkconv.training.recipe import Recipe
from hkconv.training.summary import Cell, CellResult, RunSummary, Spread


def make_result(model, split, test, interrupted=False):
    scores = {"test_loss": 1.0, "val_metric": 0.5, "val_loss": 1.0, "best_epoch": 3, "epochs": 4 + split}
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
        recipe=Recipe(models=("hkn", "mlp")),
        dataset={"name": "tree"},
        metric="accuracy",
        chance_rule="majority class",
        chance=Spread(0.2, None),
        cells=cells,
        device="cpu",
        versions={},
        seconds=1.0,
        interrupted=True,
    )
    (row,) = summary.models
    assert (row.model, row.trainings, row.mean_epochs, row.seconds) == ("mlp", 2, 4.5, 4.0)
    assert row.test == Spread(pytest.approx(0.7), pytest.approx(0.1 * 2**0.5))
    stored = json.loads(json.dumps(summary.as_dict()))
    assert len(stored["cells"]) == 3
    assert stored["interrupted"] is True
