from pathlib import Path

import pytest

from hkconv.data.folders import cache_folder, data_root
from hkconv.errors import InputError


def test_the_argument_comes_before_the_environment_and_that_before_the_cache(tmp_path, monkeypatch):
    named, in_environment = tmp_path / "named", tmp_path / "environment"
    named.mkdir()
    in_environment.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_root() == tmp_path / "cache" / "hkconv" / "data"
    monkeypatch.setenv("HKCONV_DATA", str(in_environment))
    assert data_root() == in_environment
    assert data_root(named) == named


def test_the_cache_is_under_home_without_xdg(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "hkconv"


def test_a_root_that_does_not_exist_is_refused_by_its_name(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"data root '.*nowhere' is not a folder"):
        data_root(tmp_path / "nowhere")
    monkeypatch.setenv("HKCONV_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"HKCONV_DATA '.*nowhere' is not a folder"):
        data_root()
