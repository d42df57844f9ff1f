"""Help, lists and errors in options come without waiting for PyTorch and what it brings."""

import json
import subprocess
import sys

import pytest
from typer.main import get_command

from hkconv.cli.main import app

HEAVY = ("torch", "torch_geometric", "numba", "optuna", "matplotlib", "geoopt")

# Runs commands one after the other in a process in which nothing heavy can be imported, and notes each try.
PROGRAM = """
import json, sys
from importlib.abc import MetaPathFinder

heavy, lines = json.load(sys.stdin)
tried = []

class Refusal(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in heavy:
            tried.append(name)
            raise ImportError(f"{name} is not to be had here")

sys.meta_path.insert(0, Refusal())
from typer.testing import CliRunner
from hkconv.cli.main import app

found = []
for line in lines:
    tried.clear()
    result = CliRunner().invoke(app, line, prog_name="hkconv")
    found.append([result.exit_code, result.stdout, result.stderr, list(tried)])
print(json.dumps(found))
"""


def paths(command, path=()):
    """What a user types for each command, and for each group of them."""
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from paths(inner, (*path, name))


HELP = [(*path, "--help") for path in paths(get_command(app))]
LISTS = [("--version",), ("datasets",)]
# With a word of what each is answered.
ERRORS = {
    ("trian",): "No such command 'trian'",
    ("plot", "pie"): "No such command 'pie'",
    ("train", "--depth", "3"): "No such option: --depth",
    ("evaluate",): "Missing argument",
    ("train", "--epochs", "many"): "valid integer",
    ("train", "--epochs", "-1"): "epochs must be a whole number of at least 1",
    ("train", "--models", "GCN"): "unknown model 'GCN'; did you mean 'gcn'? accepted: hkn, mlp, gcn,",
    ("train", "--log", "tensorbord"): "unknown logger 'tensorbord'; did you mean 'tensorboard'?",
    ("train", "--direction", "up"): "direction must be in or out or both",
    ("train", "--recipe", "absent.yaml"): "recipe absent.yaml cannot be read",
    ("train", "--resume", "absent"): "which does not exist",
    ("train", "txas"): "unknown dataset 'txas': did you mean texas?",
    ("search", "txas"): "unknown dataset 'txas': did you mean texas?",
    ("search", "--model", "GCN"): "unknown model 'GCN'; did you mean 'gcn'?",
    ("search", "--space", "huge"): "space must be grid or wide",
    ("audit", "txas"): "unknown dataset 'txas': did you mean texas?",
    ("audit", "texas", "--protocol", "fair"): "protocol must be clean or published",
    ("hyperbolicity", "txas"): "unknown dataset 'txas': did you mean texas?",
    ("hyperbolicity", "tree", "--sample", "3"): "sample must be a whole number of at least 4",
    ("datasets", "--data", "absent"): "data root 'absent' is not a folder",
    ("evaluate", "absent"): "which does not exist",
    ("predict", "absent", "papers"): "which does not exist",
    ("serve", "absent"): "which does not exist",
    ("serve", ".", "--port", "-1"): "port must be a whole number",
    ("export", "absent", "--out", "model.pt2"): "which does not exist",
    ("plot", "confusion", "absent"): "which does not exist",
    ("explore", "absent"): "nothing to explore",
    ("points", "0", "3"): "k must be a whole number of at least 1",
    ("points", "4", "3", "--method", "best"): "method must be optimal or gradient or random",
    ("reproduce", "nodes"): "unknown table 'nodes'; did you mean 'node'?",
    ("bench", "--out", "figures.txt"): "out must end in .json",
    ("translate", "train"): "train must be the common beginning",
    ("translate", "train", "--train", "a", "--valid", "b", "--model", "HKN"): "did you mean 'hkn'?",
    ("translate", "score", "--weights", "worst"): "weights must be best or last or average",
}


def ids(line):
    return " ".join(line)


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    lines = [*HELP, *LISTS, *ERRORS]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([HEAVY, lines]),
        cwd=tmp_path_factory.mktemp("empty"),
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(zip(lines, json.loads(done.stdout)))


@pytest.mark.parametrize("line", [*HELP, *LISTS], ids=ids)
def test_is_answered_without_anything_heavy(answers, line):
    code, stdout, stderr, tried = answers[line]
    assert (code, stderr, tried) == (0, "", [])
    assert stdout


@pytest.mark.parametrize("line", ERRORS, ids=ids)
def test_is_refused_without_anything_heavy(answers, line):
    code, stdout, stderr, tried = answers[line]
    assert (code, stdout, tried) == (2, "", [])
    assert ERRORS[line] in stderr


def test_groups_of_options_are_imported_without_anything_heavy():
    modules = ("options", "data.options", "data.catalog", "models.options", "engine.settings", "tasks.recipe")
    imports = "\n".join(f"import hkconv.{module}" for module in (*modules, "language.recipe", "cli.recipe_options"))
    program = f"import sys\n{imports}\nprint(*({set(HEAVY)!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
