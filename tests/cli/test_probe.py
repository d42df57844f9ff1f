import json
import os
import re

import pytest
from toy_translation import toy_recipe
from toy_treebank import write_treebank

from hkconv.language import probe_training
from hkconv.language.train import train_translator

COUNTS = {"train": 40, "dev": 15, "test": 20}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy")
    train_translator(toy_recipe(folder, steps=3, validate_every=3))
    return folder / "run"


@pytest.fixture
def treebank(tmp_path):
    return write_treebank(tmp_path / "treebank", COUNTS)


def test_a_run_is_probed(hkconv, run, treebank, monkeypatch, in_empty_folder):
    monkeypatch.setattr(probe_training, "EPOCHS", 2)
    arguments = ("probe", run, "--treebank", treebank, "--layers", "1", "--sentences", "3", "--device", "cpu")
    result = hkconv(*arguments, "--out", "found")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["encoder", "layer", "probe", "UUAS", "DSpr.", "Root", "%", "NSpr."]
    rows = [re.split(r" {2,}", line) for line in lines[2:7]]
    assert [row[:3] for row in rows] == [
        ["linear chain", "-", "-"],
        ["trained", "1", "euclidean"],
        ["trained", "1", "hyperbolic"],
        ["untrained", "1", "euclidean"],
        ["untrained", "1", "hyperbolic"],
    ]
    stored = json.loads((in_empty_folder / "found" / "probe.json").read_text())
    for row, record in zip(rows, stored["results"]):
        assert float(row[3]) == pytest.approx(100 * record["test"]["uuas"], abs=0.051)
    assert "test: 20 sentences, 0 left out, 0.00 % of the subwords unknown" in lines
    assert lines[-3:] == [f"written: found/{name}" for name in ("probe.json", "probe.md", "trees.svg")]
    assert len(result.stderr.splitlines()) == 5


@pytest.mark.parametrize(
    "options, words",
    [
        (("--layers", "one"), "layers must be 'all' or numbers such as 0,3,6, got 'one'"),
        (("--layers", "2"), "layers must be 'all' or numbers from 0 to 1, which trained has, got 2"),
        (("--sentences", "0"), "sentences must be numbers of test sentences that the encoder reads, 1 to 20, got 0"),
        (("--sentences", "a few"), "sentences must be numbers such as 4,17, got 'a few'"),
        (("--seed", "-1"), "seed must be a whole number of at least 0"),
        (("--weights", "worst"), "weights must be best or last or average, got 'worst'"),
        (("--device", "gpu"), "device 'gpu' cannot be used"),
    ],
)
def test_bad_options(hkconv, run, treebank, options, words):
    assert words in hkconv.fails("probe", run, "--treebank", treebank, *options)


def test_bad_runs_and_treebanks(hkconv, run, treebank, in_empty_folder):
    assert "run must be a folder" in hkconv.fails("probe", "nowhere", "--treebank", treebank)
    assert "treebank must be a folder" in hkconv.fails("probe", run, "--treebank", "nowhere")
    (treebank / "toy-dev.conllu").rename(treebank / "toy-dev.txt")
    assert "must have one file *dev.conllu" in hkconv.fails("probe", run, "--treebank", treebank)
    (treebank / "toy-dev.conllu").write_text("1\ta\t_\tX\tNN\t_\t2\tdep\t_\t_\n2\tb\t_\tX\tNN\t_\t1\tdep\t_\t_\n")
    line = hkconv.fails("probe", run, "--treebank", treebank)
    assert "toy-dev.conllu, line 1: the sentence has no root" in line
    assert os.listdir(in_empty_folder) == []


def test_help_fits_and_has_an_example(hkconv):
    result = hkconv("probe", "--help")
    assert result.exit_code == 0 and result.stdout.count("Example: ") == 1
    assert max(map(len, result.stdout.splitlines())) <= 80
