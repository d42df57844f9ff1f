import os
from pathlib import Path

import pytest
from made_records import made_cell

from hkconv.experiments.store import append

FIGURES = {
    "kernel-points": ("3", "--start", 0, "--target", "0.1,-0.2"),
    "convolution": ("--kernels", 3, "--neighbours", 2, "--seed", 1),
    "views": ("--kernels", 3, "--neighbours", 2, "--seed", 1),
    "repulsion-gradient": (4,),
    "kernel-scores": ("node", "--results", "records"),
}
OF_A_RUN = {
    "training-curves": ("--model", "mlp", "--split", 1, "--seed", 0),
    "class-distances": ("--model", "hybonet", "--device", "cpu"),
    "confusion": (
        "--device",
        "cpu",
    ),
}


@pytest.fixture
def run(hkconv) -> Path:
    arguments = ("--epochs", 1, "--num-splits", 2, "--models", "mlp,hybonet", "--hidden-dim", 3)
    assert hkconv("train", *arguments, "--out", "run").exit_code == 0
    return Path("run")


@pytest.mark.parametrize("name, arguments", FIGURES.items())
def test_figures_without_a_run(hkconv, in_empty_folder, name, arguments):
    for record in made_cell([0.5, 0.6], table="kernels-node", variant="K=3"):
        append(Path("records"), record)
    result = hkconv("plot", name, *arguments)
    assert (result.exit_code, result.stdout) == (0, f"written: {name}.svg\n"), result.output
    assert hkconv("plot", name, *arguments, "--out", "again.svg").exit_code == 0
    assert Path("again.svg").read_bytes() == Path(f"{name}.svg").read_bytes()
    assert sorted(os.listdir(in_empty_folder)) == sorted(["again.svg", f"{name}.svg", "records"])


def test_figures_of_a_run(hkconv, run):
    for name, arguments in OF_A_RUN.items():
        result = hkconv("plot", name, run, *arguments, "--out", f"{name}.png")
        assert (result.exit_code, result.stdout) == (0, f"written: {name}.png\n"), result.output
        assert Path(f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_a_damaged_record_is_named(hkconv):
    for record in made_cell([0.5, 0.6], table="kernels-graph", dataset="ptc", variant="K=3"):
        append(Path("records"), record)
    with Path("records/kernels-graph/clean.csv").open("a") as file:
        file.write("half\n")
    result = hkconv("plot", "kernel-scores", "graph", "--results", "records")
    assert result.exit_code == 0
    assert result.stderr == "damaged line left out: records/kernels-graph/clean.csv, line 4: 1 values, not 21\n"


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("kernel-points", 0), "sizes must be a whole number of at least 1 and at most 200, got 0"),
        (("kernel-points", 5, "--start", 5), "start must be the number of a kernel point, from 0 to 4"),
        (("kernel-points", "--target", "0.5"), "target must be two numbers with a comma"),
        (("kernel-points", "--target", "3,4"), "norm below 1, got 5"),
        (("kernel-points", "--out", "points.jpg"), "out must end in .svg, .pdf, .png, got points.jpg"),
        (("convolution", "--kernels", 0), "kernels must be a whole number of at least 1 and at most 200, got 0"),
        (("views", "--neighbours", 0), "neighbors must be a whole number of at least 1 and at most 200, got 0"),
        (("repulsion-gradient", 1), "K must be at least 2"),
        (("repulsion-gradient", "--out", "nowhere/a.svg"), "folder nowhere does not exist"),
        (("kernel-scores", "node"), "results results/records has no record of table kernels-node"),
        (("kernel-scores", "edge"), "task must be node or graph, got 'edge'"),
        (("training-curves", "nowhere"), "run must be a folder that `hkconv train` made"),
        (("class-distances", "."), "recipe cannot be read"),
        (("confusion", "nowhere"), "run must be a folder that `hkconv train` made"),
    ],
)
def test_bad_input_leaves_nothing(hkconv, in_empty_folder, arguments, words):
    assert words in hkconv.fails("plot", *arguments)
    assert os.listdir(in_empty_folder) == []


def test_a_run_without_checkpoints(hkconv, run):
    for path in run.glob("*/*/model.safetensors"):
        path.unlink()
    assert "weights cannot be read" in hkconv.fails("plot", "confusion", run)
    for path in run.glob("*/*/metrics.json"):
        path.unlink()
    assert "has no finished training" in hkconv.fails("plot", "class-distances", run)
    assert "has no finished training" in hkconv.fails("plot", "training-curves", run)
    assert os.listdir() == ["run"]


@pytest.mark.parametrize("name", [*FIGURES, *OF_A_RUN])
def test_help_has_one_example_and_fits(hkconv, name):
    result = hkconv("plot", name, "--help")
    assert result.stdout.count("Example: hkconv ") == 1
    assert max(map(len, result.stdout.splitlines())) <= 80
    (summary,) = [line for line in hkconv("plot", "--help").stdout.splitlines() if line.startswith(f"  {name} ")]
    assert not summary.endswith("...")
