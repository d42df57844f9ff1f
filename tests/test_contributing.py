"""CONTRIBUTING's steps of adding something, followed to the letter in a copy of the package that is then trained."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
STEPS = TEXT[TEXT.index("## Add something") : TEXT.index("## How we write")]
BLOCK = re.compile(r"^( *)```(python|diff)\n((?:.*\n)*?)\1```", re.M)


def apply_diff(root: Path, diff: str) -> None:
    """Change a file as a diff says, whose pieces are found by their lines and not by numbers."""
    head, *pieces = re.split(r"^@@\n", diff, flags=re.M)
    path = root / re.match(r"--- (\S+)\n", head)[1]
    text = path.read_text(encoding="utf-8")
    for piece in pieces:
        lines = piece.splitlines(keepends=True)
        old, new = ("".join(line[1:] for line in lines if line[0] in signs) for signs in (" -", " +"))
        assert text.count(old) == 1, f"{path.name} must have this once:\n{old}"
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


def follow(root: Path) -> list[str]:
    """Write and change every file that the steps name; returns the paths of new ones."""
    made = []
    for block in BLOCK.finditer(STEPS):
        code = textwrap.dedent(block[3])
        if block[2] == "diff":
            apply_diff(root, code)
            continue
        # A file of its own: the last path that the text above names.
        made.append(re.findall(r"`((?:hkconv|tests)/[\w/]+\.py)`", STEPS[: block.start()])[-1])
        path = root / made[-1]
        assert not path.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code, encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """A folder with a changed copy of the package."""
    root = tmp_path_factory.mktemp("copy")
    # With what was compiled: kernels take a minute.
    shutil.copytree(ROOT / "hkconv", root / "hkconv")
    assert follow(root) == [
        "hkconv/models/baselines/sgc.py",
        "tests/models/baselines/test_sgc.py",
        "hkconv/data/ring.py",
        "tests/data/test_ring.py",
    ]
    return root


def run_in(root: Path, *arguments: str) -> str:
    """Run Python there, where it finds the copy."""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


SHORT = ("--epochs", "2", "--num-splits", "1", "--device", "cpu")


def test_a_new_baseline_and_a_new_option_train(copy):
    shown = run_in(copy, "hkconv", "train", "tree", "--models", "sgc,hkn", "--feature-scale", "0.5", *SHORT)
    (folder,) = (copy / "runs").glob("tree-*")
    assert shown.count("sgc") >= 1 and str(folder.relative_to(copy)) in shown
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {"sgc", "hkn"}
    (config,) = (folder / "hkn").glob("*/config.json")
    assert json.loads(config.read_text(encoding="utf-8"))["config"]["feature_scale"] == 0.5


def test_a_new_dataset_trains(copy):
    shown = run_in(copy, "hkconv", "train", "ring", "--models", "mlp", *SHORT)
    assert "mlp" in shown and len(list((copy / "runs").glob("ring-*"))) == 1


def test_the_tests_that_the_steps_write_pass(copy):
    shown = run_in(copy, "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(copy), "tests")
    assert "2 passed" in shown
