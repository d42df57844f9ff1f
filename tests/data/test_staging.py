import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hkconv.data.staging import cache_folder, data_root, made_once, staged
from hkconv.errors import InputError

RAW = "family/member/raw"


@pytest.fixture
def root(tmp_path):
    raw = tmp_path / "root" / RAW
    raw.mkdir(parents=True)
    (raw / "numbers.txt").write_text("1 2 3")
    return tmp_path / "root"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "hkconv" / "staged"


def process(folder: Path) -> None:
    processed = folder / "family/member/processed"
    processed.mkdir()
    (processed / "sum.txt").write_text(str(sum(map(int, (folder / RAW / "numbers.txt").read_text().split()))))


def result(folder: Path) -> str:
    return (folder / "family/member/processed/sum.txt").read_text()


def test_processing_happens_in_the_cache_and_the_root_stays_as_it_was(root, cache):
    folder = staged(root, RAW, process)
    assert result(folder) == "6" and folder.parent == cache
    assert [path.name for path in (root / "family/member").iterdir()] == ["raw"]


def test_it_is_processed_once_and_again_when_the_raw_files_change(root):
    first = staged(root, RAW, process)
    assert staged(root, RAW, lambda folder: pytest.fail("processed twice")) == first
    (root / RAW / "numbers.txt").write_text("10 20 30")
    assert result(staged(root, RAW, process)) == "60"


def test_equal_folders_in_other_places_are_kept_apart(root, tmp_path):
    other = tmp_path / "other"
    (other / RAW).mkdir(parents=True)
    (other / RAW / "numbers.txt").write_text("7 7 7")
    assert result(staged(root, RAW, process)) == "6"
    assert result(staged(other, RAW, process)) == "21"


def test_many_at_once_agree_and_leave_nothing_behind(root, cache):
    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(lambda _: staged(root, RAW, process), range(16)))
    assert len(folders) == 1 and result(folders.pop()) == "6"
    assert len(list(cache.iterdir())) == 1


def test_a_failure_leaves_nothing_behind(root, cache):
    def fail(folder):
        process(folder)
        raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        staged(root, RAW, fail)
    assert list(cache.iterdir()) == []
    assert result(staged(root, RAW, process)) == "6"


def test_what_is_made_is_made_once_for_each_identity(cache):
    def writer(text):
        return lambda folder: (folder / "made.txt").write_text(text)

    first = made_once(("numbers", 1), writer("first"))
    assert made_once(("numbers", 1), lambda folder: pytest.fail("made twice")) == first
    second = made_once(("numbers", 2), writer("second"))
    assert [(folder / "made.txt").read_text() for folder in (first, second)] == ["first", "second"]
    assert first.parent == cache


def test_files_are_copied_where_links_are_not_allowed(root, monkeypatch):
    def refuse(*arguments, **options):
        raise OSError("no links here")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    folder = staged(root, RAW, process)
    assert result(folder) == "6" and not (folder / RAW).is_symlink()


def test_an_unwritable_cache_is_named(root, tmp_path, monkeypatch):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file, not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    with pytest.raises(InputError, match=r"cannot write to the cache folder .*blocked.*set XDG_CACHE_HOME"):
        staged(root, RAW, process)


def test_the_staged_folder_still_sees_the_raw_files(root):
    folder = staged(root, RAW, process)
    assert os.path.samefile(folder / RAW / "numbers.txt", root / RAW / "numbers.txt")


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
