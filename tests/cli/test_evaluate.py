import json
from pathlib import Path

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


def test_bad_input(hkconv, run):
    assert "run must be a folder" in hkconv.fails("evaluate", "nowhere")
    cell = run / "mlp" / "split0-seed0"
    config = json.loads((cell / "config.json").read_text())
    (cell / "config.json").write_text(json.dumps({**config, "format_version": 2}))
    assert "has format version 2; this hkconv reads 1" in hkconv.fails("evaluate", run)
    (cell / "config.json").write_text(json.dumps({**config, "model": "gcn"}))
    assert "is of model 'gcn', expected 'mlp'" in hkconv.fails("evaluate", run)
    (cell / "config.json").write_text(json.dumps(config))
    (cell / "model.safetensors").write_bytes(b"half")
    assert "weights are damaged" in hkconv.fails("evaluate", run)
    (cell / "model.safetensors").unlink()
    assert "weights cannot be read" in hkconv.fails("evaluate", run)
