import os
from pathlib import Path

import pytest
import torch

from hkconv.data import hierarchy
from hkconv.engine.checkpoint import load_checkpoint
from hkconv.models import HKN

QUICK = ("--epochs", 1, "--num-splits", 2, "--hidden-dim", 4, "--num-layers", 1, "--device", "cpu", "--out", "run")


@pytest.fixture
def run(hkconv):
    result = hkconv("train", *QUICK, "--models", "hkn,mlp")
    assert result.exit_code == 0, result.output
    return "run"


def test_the_best_network_of_a_run(hkconv, run):
    result = hkconv("export", run, "--out", "new/model.pt2")
    assert result.exit_code == 0, result.output
    first, second = result.stdout.splitlines()
    assert second == "written to new/model.pt2"
    model, _, split, _, seed = first.split(",")[0].split()
    network, _ = load_checkpoint(Path(run, model, f"split{split}-seed{seed}"))
    graph = hierarchy().graph
    with torch.no_grad():
        expected = network(graph.x, graph.edge_index)
    found = torch.export.load("new/model.pt2").module()(graph.x, graph.edge_index)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_the_ending_of_the_file_says_its_format(hkconv, run):
    onnxruntime = pytest.importorskip("onnxruntime")
    result = hkconv("export", run, "--out", "model.onnx")
    assert result.exit_code == 0, result.output
    assert {entry.name for entry in onnxruntime.InferenceSession("model.onnx").get_inputs()} == {"x", "edge_index"}


@pytest.mark.parametrize("arguments", [("--format", "folder"), ()], ids=["by format", "without an ending"])
def test_a_folder_to_share(hkconv, run, arguments):
    result = hkconv("export", run, "--out", "shared", *arguments)
    assert result.exit_code == 0, result.output
    first, second = result.stdout.splitlines()
    assert second == "written to shared"
    model, _, split, _, seed = first.split(",")[0].split()
    network, _ = load_checkpoint(Path(run, model, f"split{split}-seed{seed}"))
    graph = hierarchy().graph
    with torch.no_grad():
        found = HKN.from_pretrained("shared")(graph.x, graph.edge_index)
        assert torch.equal(found, network(graph.x, graph.edge_index))
    assert first.partition("validation accuracy ")[2].partition(" %")[0] in Path("shared/README.md").read_text()


def test_what_cannot_be_exported(hkconv, run, in_empty_folder):
    assert "format must be torch or onnx or folder, got 'caffe'" in hkconv.fails(
        "export", run, "--out", "m", "--format", "caffe"
    )
    assert "ends as a file of format onnx does, got format torch" in hkconv.fails(
        "export", run, "--out", "m.onnx", "--format", "torch"
    )
    assert "does not exist" in hkconv.fails("export", "nowhere", "--out", "m")
    assert "out must be a folder that can be written to" in hkconv.fails("export", run, "--out", "/proc/nowhere/m")
    assert "is not empty and holds no network" in hkconv.fails("export", run, "--out", run, "--format", "folder")
    hkconv("train", *QUICK[:-1], "other", "--models", "mlp")
    assert "has no training of model 'hkn', only of mlp" in hkconv.fails("export", "other", "--out", "m")
    assert sorted(os.listdir(in_empty_folder)) == ["other", "run"]
