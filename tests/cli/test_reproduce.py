import os
from pathlib import Path

import pytest

from hkconv.cli.reproduce import RESULTS
from hkconv.experiments import training
from hkconv.experiments.store import DEFAULT_FOLDER, read

RECIPE = """\
metric: accuracy
settings: {epochs: 3, patience: 100000, hidden_dim: 4}
systems:
  MLP: {model: mlp}
protocols:
  clean: {num_splits: 2, seeds: 1}
quick: {num_splits: 1, epochs: 1}
datasets: {tree: {}}
"""


@pytest.fixture
def tiny(in_empty_folder):
    """The options of a table with two cells, whose recipe is ``recipes/node.yaml``."""
    path = Path("recipes/node.yaml")
    path.parent.mkdir(parents=True)
    path.write_text(RECIPE)
    return ("reproduce", "node", "--recipes", "recipes", "--device", "cpu", "--results", "records")


def records():
    return read(Path("records"), ["node"])[0]


def test_fills_a_table_and_says_so(hkconv, tiny):
    result = hkconv(*tiny)
    assert result.exit_code == 0, result.output
    header, _, row, footer = result.stdout.splitlines()
    assert header.split() == ["table", "cells", "stored", "before", "added", "failed"]
    assert row.split() == ["node", "2", "0", "2", "0"]
    assert footer == "records: records"
    first, *lines = result.stderr.splitlines()
    assert first == "2 cells, 0 of them stored already"
    assert lines[0].startswith("node tree clean MLP split 0 seed 0 (1/2): validation ")
    assert lines[0].endswith("s left")
    assert len(records()) == 2
    again = hkconv(*tiny)
    assert again.exit_code == 0
    assert again.stderr == "2 cells, 2 of them stored already\n"
    assert len(records()) == 2


def test_quick_is_labelled(hkconv, tiny):
    assert hkconv(*tiny, "--quick").exit_code == 0
    (record,) = records()
    assert (record["quick"], record["epochs"]) == (True, 1)


def test_the_default_folder_is_the_stores():
    assert Path(RESULTS) == DEFAULT_FOLDER


def test_a_failure_is_named_and_the_exit_code_is_1(hkconv, tiny, monkeypatch):
    def run_out(*_):
        raise MemoryError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(training, "train_cell", run_out)
        result = hkconv(*tiny)
    assert result.exit_code == 1
    assert "failed: node tree clean MLP split 1 seed 0: MemoryError: no memory" in result.stdout.splitlines()
    assert hkconv(*tiny).exit_code == 0


def test_a_damaged_line_is_named_and_stays(hkconv, tiny):
    hkconv(*tiny)
    path = Path("records/node/clean.csv")
    path.write_text("tree,clean,ML\n" + path.read_text())
    before = path.read_text()
    result = hkconv(*tiny)
    assert result.exit_code == 0
    expected = "passed over a damaged line, which stays as it is: records/node/clean.csv, line 1: 3 values, not 21"
    assert result.stderr.splitlines()[0] == expected
    assert path.read_text() == before


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("settings:", "setings:", "recipe recipes/node.yaml: unknown key 'setings'; did you mean 'settings'?"),
        ("{tree: {}}", "{tre: {}}", "unknown dataset 'tre'; did you mean 'tree'?"),
        ("metric: accuracy", "metric: F1", "unknown metric 'F1'; accepted: accuracy, ROC-AUC, AP"),
        ("model: mlp", "model: mpl", "unknown model of system 'MLP' 'mpl'; did you mean 'mlp'?"),
        ("metric: ", "metric: [", "is not valid YAML"),
    ],
)
def test_a_bad_recipe_leaves_everything_as_it_was(hkconv, tiny, old, new, words):
    hkconv(*tiny, "--quick")
    before = Path("records/node/clean.csv").read_bytes()
    path = Path("recipes/node.yaml")
    path.write_text(path.read_text().replace(old, new))
    assert words in hkconv.fails(*tiny)
    assert Path("records/node/clean.csv").read_bytes() == before


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("nodes",), "unknown table 'nodes'; did you mean 'node'?"),
        (("node", "--datasets", "texsa"), "unknown dataset 'texsa' of these tables; did you mean 'texas'?"),
        (("node", "--systems", "HKN,GNC"), "unknown system 'GNC' of these tables"),
        (("node", "--protocol", "pubished"), "unknown protocol 'pubished' of these tables; did you mean 'published'?"),
        (("runtime", "--systems", "K=4"), "unknown system 'K=4' of these tables"),
        (("node", "--jobs", 0), "jobs must be a whole number of at least 1 and at most 1024, got 0"),
        (("node", "--device", "cuda:99"), "device 'cuda:99' cannot be used"),
        (("node", "--device", "cpu", "--capture"), "capture needs a CUDA device"),
        (("node", "--data", "nowhere"), "data root 'nowhere' is not a folder"),
        (("node", "--recipes", "nowhere"), "table 'node' has no recipes"),
        (("graph", "--datasets", "ptc", "--data", "."), "dataset 'ptc' cannot be used: its files are absent"),
        (("node", "--data", ".", "--results", "/proc/nowhere"), "results must be a folder that can be written to"),
    ],
)
def test_bad_input_leaves_nothing(hkconv, in_empty_folder, arguments, words):
    assert words in hkconv.fails("reproduce", *arguments)
    assert os.listdir(in_empty_folder) == []
