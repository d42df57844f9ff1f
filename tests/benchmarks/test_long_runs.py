import json
import math

import pytest
import torch
from long_runs import SMALL_DATASETS, VARIANTS, LongPlan, run_long

from hkconv.errors import InputError
from hkconv.tasks.recipe import make_recipe
from hkconv.tasks.tasks import NodeTask


def plan(datasets=("tree",), variants=tuple(VARIANTS), **fields):
    recipe = make_recipe(num_splits=1, hidden_dim=4, num_layers=1, **{"epochs": 3, **fields})
    return LongPlan(datasets, variants, recipe, torch.device("cpu"))


def test_all_epochs_of_every_variant():
    told = []
    document = run_long(plan(), tell=told.append)
    assert [(entry["variant"], entry["epochs"]) for entry in document["trainings"]] == [(name, 3) for name in VARIANTS]
    for entry in document["trainings"]:
        assert entry["finite"] and entry["fault"] is None
        assert entry["last_loss"] < entry["first_loss"]
        assert entry["largest_radius"] > 0
    assert document["trainings"][2]["largest_radius"] < 5
    assert "tree, hkn-train: 3 epochs, loss " in told[1]
    json.dumps(document, allow_nan=False)


def test_what_is_there_is_not_trained_again():
    saved = []
    first = run_long(plan(variants=("hkn",)), save=saved.append)
    marked = {**first["trainings"][0], "seconds": 123.0}
    document = run_long(plan(variants=("hkn", "hkn-views")), {**first, "trainings": [marked]}, saved.append)
    assert [entry["variant"] for entry in document["trainings"]] == ["hkn", "hkn-views"]
    assert document["trainings"][0]["seconds"] == 123.0
    assert len(saved) == 2
    with pytest.raises(InputError, match="of another recipe"):
        run_long(plan(epochs=4), first)


@pytest.mark.parametrize("bad_steps, epochs", [((2, 3), 3), (range(2, 99), 1), (range(1, 99), 0)])
def test_a_training_that_was_not_finite_says_so(monkeypatch, bad_steps, epochs):
    """Put right, ended in its second epoch, and ended in its first."""
    seen = []

    def loss(self, model, batch):
        seen.append(1)
        return original(self, model, batch) * (math.nan if len(seen) in bad_steps else 1.0)

    original = NodeTask.loss
    monkeypatch.setattr(NodeTask, "loss", loss)
    (entry,) = run_long(plan(variants=("hkn",)))["trainings"]
    assert not entry["finite"]
    assert "became nan in epoch" in entry["fault"]
    assert entry["epochs"] == epochs


def test_a_training_that_fails_for_another_reason_is_one_line(monkeypatch):
    def loss(self, model, batch):
        raise MemoryError("no room for\nthis")

    monkeypatch.setattr(NodeTask, "loss", loss)
    (entry,) = run_long(plan(variants=("hkn",)))["trainings"]
    assert entry["failed"] == "MemoryError: no room for this"
    assert "finite" not in entry


def test_what_cannot_be_loaded_is_left_out_and_named(tmp_path):
    (tmp_path / "tu").mkdir()
    told = []
    document = run_long(plan(("ptc",), ("hkn",), data=str(tmp_path)), tell=told.append)
    assert document["trainings"] == []
    assert told[0].startswith("ptc: left out: ")
    with pytest.raises(InputError, match="variants must be among hkn, hkn-train, hkn"):
        run_long(plan(variants=("gcn",)))


def test_every_dataset_of_the_paper_is_small():
    assert {"tree", "disease", "texas", "squirrel", "actor", "pubmed", "ptc", "imdb-multi"} <= set(SMALL_DATASETS)
    assert not any(name.startswith("ogbg") for name in SMALL_DATASETS)
