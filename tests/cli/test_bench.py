import json
import os
from pathlib import Path

import pytest

QUICK = ("--shape", "30,200,2,4", "--variants", "reference,gcn", "--budget", 0.02, "--no-memory", "--device", "cpu")


def test_prints_a_table_and_writes_the_figures(hkconv, in_empty_folder):
    result = hkconv("bench", *QUICK, "--out", "bench.json")
    assert result.exit_code == 0, result.output
    assert "30 nodes, 200 edges (power-law targets), K = 2, dimension 4" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert os.listdir(in_empty_folder) == ["bench.json"]
    (cell,) = json.loads(Path("bench.json").read_text())["cells"]
    assert set(cell["variants"]) == {"reference", "gcn"}
    assert cell["variants"]["reference"]["train"]["repeats"] >= 3


def test_several_shapes_and_targets(hkconv, in_empty_folder):
    result = hkconv("bench", *QUICK, "--shape", "40,100,1,3", "--targets", "uniform,power-law")
    assert result.exit_code == 0, result.output
    assert result.stdout.count(" nodes, ") == 4
    assert os.listdir(in_empty_folder) == []


@pytest.mark.parametrize(
    "arguments, word",
    [
        (("--shape", "1,2,3"), "shape must be four whole numbers N,E,K,n"),
        (("--device", "tpu"), "device 'tpu' cannot be used; accepted: auto, cpu"),
        (("--device", "meta"), "device must be cpu, cuda or auto"),
        (("--variants", "reference,fast"), "unknown variant 'fast'"),
        (("--targets", "even"), "targets must be uniform or power-law"),
        (("--budget", 0), "budget must be a number above 0"),
        (("--budget", "nan"), "budget must be a number above 0"),
        (("--seed", -1), "seed must be"),
        (("--out", "bench.txt"), "out must end in .json"),
        (("--out", "nowhere/bench.json"), "folder nowhere does not exist"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(hkconv, in_empty_folder, arguments, word):
    assert word in hkconv.fails("bench", *arguments)
    assert os.listdir(in_empty_folder) == []


def test_ctrl_c_leaves_what_was_measured(hkconv, monkeypatch):
    from hkconv.engine import measuring

    def interrupt(calls, budget, timer, samples):
        samples["gcn"] = [0.5]
        raise KeyboardInterrupt

    monkeypatch.setattr(measuring, "measure", interrupt)
    result = hkconv("bench", *QUICK, "--out", "bench.json")
    assert result.exit_code == 130
    assert "interrupted: the tables show what was measured" in result.stdout
    document = json.loads(Path("bench.json").read_text())
    assert document["interrupted"]
    assert document["cells"][0]["variants"]["gcn"]["forward"]["seconds"] == [0.5]


def test_help_has_one_example_and_fits(hkconv):
    result = hkconv("bench", "--help")
    assert result.stdout.count("Example: hkconv ") == 1
    assert max(map(len, result.stdout.splitlines())) <= 80
