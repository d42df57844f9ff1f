"""Runs that are trained once, and a server of each kind that many tests ask."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from served import arrays_run, papers_run, serving, shapes_run


@pytest.fixture(scope="session")
def papers(tmp_path_factory) -> Path:
    return papers_run(tmp_path_factory.mktemp("papers"))


@pytest.fixture(scope="session")
def arrays(tmp_path_factory) -> Path:
    return arrays_run(tmp_path_factory.mktemp("arrays"))


@pytest.fixture(scope="session")
def shapes(tmp_path_factory) -> Path:
    return shapes_run(tmp_path_factory.mktemp("shapes"))


@pytest.fixture(scope="session")
def clients(papers, arrays, shapes) -> Iterator[dict[str, httpx.Client]]:
    """A client of a server of each run, by its name."""
    with contextlib.ExitStack() as stack:
        runs = {"papers": papers, "arrays": arrays, "shapes": shapes}
        yield {name: stack.enter_context(serving(run)) for name, run in runs.items()}
