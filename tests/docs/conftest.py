"""The site, built once, and the modules that help to build it."""

import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> SimpleNamespace:
    """The folder of the site and what its build said; takes about ten seconds."""
    folder = tmp_path_factory.mktemp("site")
    result = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return SimpleNamespace(folder=folder, output=result.stdout + result.stderr, code=result.returncode)


@pytest.fixture(scope="session")
def site(built) -> Path:
    """The folder of the site."""
    assert built.code == 0, built.output
    return built.folder


@pytest.fixture(scope="session")
def hook():
    """The names of a module in docs/hooks."""
    return lambda name: SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "hooks" / f"{name}.py")))
