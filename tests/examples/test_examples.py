"""Each example is run as it stands, with a smaller budget, and must beat guessing by far.

Those that are notebooks too are run as such, see test_notebooks.py.
"""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
# Arguments of a short run, and a test accuracy that it must reach; guessing gives 0.16 for nodes, 0.5 for links, 0.33
# for the others.
SHORT_RUNS = {
    "fabric.py": (("--epochs", "8"), 0.5),
    "graph.py": (("--graphs", "300", "--epochs", "10"), 0.55),
    "sampled_links.py": (("--leaves", "256", "--epochs", "6"), 0.6),
    "point_cloud.py": (("--clouds", "240", "--points", "32", "--neighbours", "6", "--epochs", "25"), 0.6),
}


@pytest.fixture
def run_example(monkeypatch):
    """Runs an example in this process and returns its variables."""

    def run(name: str, *arguments: str) -> dict:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        return runpy.run_path(str(EXAMPLES / name))

    return run


def test_every_example_is_run_here():
    notebooks = {path.with_suffix(".py").name for path in EXAMPLES.glob("*.ipynb")}
    assert SHORT_RUNS.keys() | notebooks == {path.name for path in EXAMPLES.glob("*.py")}


@pytest.mark.parametrize("name", SHORT_RUNS)
def test_example_learns_and_says_so(name, run_example, capsys):
    if name == "fabric.py":
        pytest.importorskip("lightning")
    arguments, least = SHORT_RUNS[name]
    accuracy = run_example(name, *arguments)["final_test"]
    assert accuracy > least
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"test accuracy {accuracy:.3f} (")
