"""Real datasets for the tests that need them, read from a folder that the tests must leave as it was."""

import functools
import os
from pathlib import Path

import pytest

import hkconv.data


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory):
    """A cache folder for this run alone, so that nothing is written to the home folder."""
    patch = pytest.MonkeyPatch()
    folder = tmp_path_factory.mktemp("cache")
    patch.setenv("XDG_CACHE_HOME", str(folder))
    patch.delenv("HKCONV_DATA", raising=False)
    yield folder
    patch.undo()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the raw datasets; the test is skipped where there is none."""
    checkout = Path(__file__).resolve().parents[2]
    folder = Path(os.environ.get("HKCONV_TEST_DATA", checkout.parent / "shared" / "data"))
    if not (folder / "webkb").is_dir():
        pytest.skip("real datasets not found: set HKCONV_TEST_DATA to a folder laid out as PyG expects them")
    return folder


@pytest.fixture(scope="session")
def load_real(real_data):
    """``hkconv.data.load`` from the real data, each call's result kept for the session."""
    return functools.lru_cache(maxsize=None)(functools.partial(hkconv.data.load, root=real_data))
