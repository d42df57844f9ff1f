import json
from pathlib import Path

import first_release
import pytest


@pytest.fixture
def run(hkconv) -> Path:
    arguments = ("--epochs", 1, "--num-splits", 2, "--models", "mlp", "--hidden-dim", 4)
    assert hkconv("train", *arguments, "--out", "run").exit_code == 0
    return Path("run")


def test_agreement(hkconv, run):
    result = hkconv("evaluate", run)
    assert result.exit_code == 0, result.output
    assert "All 2 checkpoints give their stored result." in result.stdout
    assert "stored test accuracy %" in result.stdout
    assert "\x1b" not in result.stdout


def test_disagreement(hkconv, run):
    path = run / "mlp" / "split0-seed0" / "metrics.json"
    metrics = json.loads(path.read_text())
    path.write_text(json.dumps({**metrics, "test_metric": metrics["test_metric"] + 0.25}))
    result = hkconv("evaluate", run)
    assert result.exit_code == 1
    assert "1 of 2 checkpoints differ, by up to 25.0 points." in result.stdout


def test_a_run_of_the_first_release(hkconv):
    """Its recipe says no form, and its checkpoints are of version 1."""
    recipe = {**first_release.RECIPE, "form": "paper", "epochs": 1, "hidden_dim": 4}
    Path("recipe.yaml").write_text(json.dumps(recipe))
    assert hkconv("train", "--recipe", "recipe.yaml", "--out", "then").exit_code == 0
    first_release.as_then(Path("then"))
    stored = json.loads(Path("then/recipe.json").read_text())
    assert stored == {**first_release.RECIPE, "epochs": 1, "hidden_dim": 4, "out": stored["out"]}
    config = json.loads(Path("then/hkn/split0-seed0/config.json").read_text())
    assert config["format_version"] == 1 and "form" not in config["config"]
    result = hkconv("evaluate", "then")
    assert result.exit_code == 0, result.output
    assert "All 2 checkpoints give their stored result." in result.stdout
    # And its recipe is one that can be trained again, file or not.
    Path("then/hkn/split0-seed0/metrics.json").unlink()
    assert hkconv("train", "--resume", "then").exit_code == 0
    assert hkconv("train", "--recipe", "then/recipe.json", "--out", "again").exit_code == 0
    assert json.loads(Path("again/recipe.json").read_text())["form"] == "paper"


def test_bad_input(hkconv, run):
    assert "run must be a folder" in hkconv.fails("evaluate", "nowhere")
    cell = run / "mlp" / "split0-seed0"
    config = json.loads((cell / "config.json").read_text())
    (cell / "config.json").write_text(json.dumps({**config, "format_version": 3}))
    assert "has format version 3; this hkconv reads 1 and 2" in hkconv.fails("evaluate", run)
    (cell / "config.json").write_text(json.dumps({**config, "model": "gcn"}))
    assert "is of model 'gcn', expected 'mlp'" in hkconv.fails("evaluate", run)
    (cell / "config.json").write_text(json.dumps(config))
    (cell / "model.safetensors").write_bytes(b"half")
    assert "weights are damaged" in hkconv.fails("evaluate", run)
    (cell / "model.safetensors").unlink()
    assert "weights cannot be read" in hkconv.fails("evaluate", run)
