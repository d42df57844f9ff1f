"""Real datasets for the tests that need them, each loaded once."""

import functools

import pytest

import hkconv.data


@pytest.fixture(scope="session")
def load_real(real_data):
    """``hkconv.data.load`` from the real data, each call's result kept for the session."""
    return functools.lru_cache(maxsize=None)(functools.partial(hkconv.data.load, root=real_data))
