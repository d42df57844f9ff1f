import json

import first_release
import pytest
import torch

from hkconv.errors import InputError
from hkconv.tasks import building
from hkconv.tasks.evaluate import evaluate_run, load_training
from hkconv.tasks.recipe import FIRST_RELEASE, Recipe, make_recipe
from hkconv.tasks.run import train_run
from hkconv.tasks.summary import Cell
from hkconv.tasks.tasks import SampledNodeTask


def train(folder, **changes):
    values = {"models": ("mlp", "hkn"), "epochs": 2, "num_splits": 2, "hidden_dim": 4, "device": "cpu"}
    train_run(make_recipe(**{**values, "out": str(folder), **changes}))
    return folder


@pytest.fixture
def trained(tree_for_every_name, tmp_path):
    return train(tmp_path / "run")


def test_every_checkpoint_gives_its_stored_result(trained):
    evaluations = evaluate_run(trained, device="cpu")
    assert [str(entry.cell) for entry in evaluations] == [
        "mlp split 0 seed 0",
        "mlp split 1 seed 0",
        "hkn split 0 seed 0",
        "hkn split 1 seed 0",
    ]
    assert all(entry.difference == 0 and entry.agrees for entry in evaluations)


@pytest.mark.parametrize("changes", [{}, {"norm": "batch", "hidden_act": "relu", "readout": "all", "direction": "in"}])
def test_every_checkpoint_of_the_first_release_gives_its_stored_result(tree_for_every_name, tmp_path, changes):
    run = train(tmp_path / "run", **{**FIRST_RELEASE, "hidden_dim": 4, "epochs": 2, **changes})
    first_release.as_then(run)
    evaluations = evaluate_run(run, device="cpu")
    assert len(evaluations) == 4
    assert all(entry.difference == 0 and entry.agrees for entry in evaluations)


def test_what_was_trained_on_samples_is_tested_layer_by_layer(tree_for_every_name, tmp_path):
    common = {"models": ("mlp",), "epochs": 1, "num_splits": 1, "num_layers": 2, "device": "cpu"}
    for name, neighbors in (("samples", (3, 3)), ("whole", None)):
        train_run(make_recipe(**common, neighbors=neighbors, out=str(tmp_path / name)))
        cell = Cell("mlp", 0, 0)
        _, task = load_training(tmp_path / name, cell, tree_for_every_name, torch.device("cpu"))
        assert isinstance(task, SampledNodeTask) == (neighbors is not None)


def test_a_moved_run_can_be_evaluated(trained, tmp_path):
    trained.rename(tmp_path / "elsewhere")
    assert all(entry.agrees for entry in evaluate_run(tmp_path / "elsewhere", device="cpu"))


def test_a_wrong_stored_result_is_found(trained):
    path = trained / "mlp" / "split1-seed0" / "metrics.json"
    metrics = json.loads(path.read_text())
    path.write_text(json.dumps({**metrics, "test_metric": metrics["test_metric"] - 0.1}))
    entry = evaluate_run(trained, device="cpu")[1]
    assert entry.difference == pytest.approx(0.1)
    assert not entry.agrees


def test_other_data(trained, monkeypatch, molecules, tree):
    smaller = type(tree)("tree", tree.graph.clone(), tree.splits, 4, "test")
    monkeypatch.setattr(building, "load", lambda *_, **__: smaller)
    with pytest.raises(InputError, match="was trained on data with num_classes 3, but here it is 4"):
        evaluate_run(trained)


def test_swapped_checkpoints(trained):
    mlp, hkn = trained / "mlp" / "split0-seed0", trained / "hkn" / "split0-seed0"
    for name in ("config.json", "model.safetensors"):
        (mlp / name).write_bytes((hkn / name).read_bytes())
    with pytest.raises(InputError, match="is of model 'hkn', expected 'mlp'"):
        evaluate_run(trained)


def test_not_a_run(tmp_path, tree_for_every_name):
    with pytest.raises(InputError, match="run must be a folder that `hkconv train` made"):
        evaluate_run(tmp_path / "nowhere")
    with pytest.raises(InputError, match="recipe cannot be read"):
        evaluate_run(tmp_path)
    (tmp_path / "recipe.json").write_text(json.dumps(Recipe().flat()))
    with pytest.raises(InputError, match="has no finished training"):
        evaluate_run(tmp_path)
