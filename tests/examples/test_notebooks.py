"""Every notebook is made of its script, and runs from top to bottom in a kernel of Jupyter."""

import tempfile
from pathlib import Path

import jupytext
import nbformat
import pytest
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[2] / "examples"
# What each notebook shows, checked in its kernel after its last cell.
CLAIMS = {
    "node": """
        assert min(final_test.values()) > 0.9 > 0.2 > chance
    """,
    "own_data": """
        scores = {model.model: model.test.mean for model in summary.models}
        assert scores["hkn"] > summary.chance.mean + 0.1 and scores["hkn"] > max(scores["gcn"], scores["mlp"])
        assert advice.facts.homophily < 0.05 and advice.trials
        roles = dict(zip(predictions.ids, predictions.predicted))
        assert [roles[name] for name in joined] == ["engineer", "engineer", "manager", "engineer"]
        assert len((folder / "predictions.csv").read_text().splitlines()) == len(staff) + len(joined) + 1
    """,
    "tree_distances": """
        falling = [found.average_distortion for found in drawn.values()]
        assert falling == sorted(falling, reverse=True) and falling[0] > 0.3 and falling[-1] < 0.05
        assert drawn[0.01].mean_average_precision < 0.5 and drawn[4].mean_average_precision == 1
        assert learned["hkn"].average_distortion < learned["gcn"].average_distortion
        assert "<html" in page.read_text(encoding="utf-8")
    """,
}

of_each_notebook = pytest.mark.parametrize("name", CLAIMS)


def read(name: str) -> nbformat.NotebookNode:
    return nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)


def test_every_script_of_cells_is_a_notebook_here():
    of_cells = {path.stem for path in EXAMPLES.glob("*.py") if path.read_text(encoding="utf-8").startswith("# %%")}
    assert of_cells == {path.stem for path in EXAMPLES.glob("*.ipynb")} == CLAIMS.keys()


@of_each_notebook
def test_a_notebook_has_the_cells_of_its_script_and_no_outputs(name):
    written = [(cell.cell_type, cell.source) for cell in read(name).cells]
    expected = [(cell.cell_type, cell.source) for cell in jupytext.read(EXAMPLES / f"{name}.py").cells]
    assert written == expected, "run `make notebooks`"
    assert [cell for cell in read(name).cells if cell.get("outputs") or cell.get("execution_count")] == []


@pytest.fixture
def run_notebook(tmp_path):
    """Runs a notebook and then a cell of ours, in a folder of their own, and returns the notebook with its outputs."""

    def run(name: str, last: str) -> nbformat.NotebookNode:
        notebook = read(name)
        notebook.cells.append(nbformat.v4.new_code_cell("if True:\n" + last))
        # Sockets in a folder, with short paths: no other test can take a port meanwhile.
        with tempfile.TemporaryDirectory() as sockets:
            kernel = AsyncKernelManager(
                kernel_name="python3", transport="ipc", connection_file=str(Path(sockets, "kernel.json"))
            )
            NotebookClient(notebook, km=kernel, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
        return notebook

    return run


@of_each_notebook
def test_a_notebook_shows_what_it_says_and_warns_of_nothing(name, run_notebook):
    outputs = [output for cell in run_notebook(name, CLAIMS[name]).cells for output in cell.get("outputs", ())]
    assert any(output.output_type == "stream" for output in outputs)
    # PyG's progress bars say once that ipywidgets are not installed.
    warnings = [output.text for output in outputs if output.get("name") == "stderr"]
    assert [text for text in warnings if "TqdmWarning" not in text] == []
    assert any("image/png" in output.get("data", {}) for output in outputs) == (name == "tree_distances")
