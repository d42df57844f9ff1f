"""Fixtures of the whole suite."""

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")

if "PYTEST_XDIST_WORKER" in os.environ:
    # Each core has its worker: more threads, here or in a process that a test starts, would wait for each other.
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")

if not torch.cuda.is_available():
    # Triton reads this when it is first imported, which PyG does.
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def dtype(request) -> torch.dtype:
    return request.param


@pytest.fixture(params=[-1.0, -0.3, -2.5], ids=lambda k: f"k={k}")
def curvature(request) -> float:
    return request.param


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(autouse=True)
def seed() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory):
    """No test reads or writes the user's cache folders; what was compiled serves all processes of the run.

    What Numba compiles lies beside the sources, as anywhere.
    """
    folder = tmp_path_factory.mktemp("cache")
    base = tmp_path_factory.getbasetemp()
    compiled = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compiled"
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_CACHE_HOME", "TORCH_HOME"):
            patch.setenv(name, str(folder / name.lower()))
        for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            patch.setenv(name, str(compiled / name.lower()))
        patch.delenv("HKCONV_DATA", raising=False)
        yield folder


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real datasets. Read it, never write to it."""
    folder = Path(os.environ.get("HKCONV_TEST_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("real datasets not found: set HKCONV_TEST_DATA to a folder laid out as docs/data.md says")
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator:
    """Chromium without a window. A machine of the continuous integration must have it."""
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        message = "Chromium not found: install it (apt-get install chromium) to test the pages"
        pytest.fail(message) if os.environ.get("CI") == "true" else pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()
