"""Every test of this folder has a cache of its own, on disk and in memory."""

import pytest

from hkconv.points import cache


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache, "_solved", {})
    return tmp_path / "hkconv" / "points"
