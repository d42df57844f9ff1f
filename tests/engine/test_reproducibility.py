import os
import platform
import random
import shutil
import subprocess

import numpy as np
import pytest
import torch

import hkconv
from hkconv.engine import reproducibility
from hkconv.engine.reproducibility import (
    deterministic_algorithms,
    seed_everything,
    source_commit,
    stream_seed,
    versions,
)


def draw():
    return random.random(), np.random.rand(), torch.rand(()).item()


def test_equal_seeds_give_equal_numbers():
    seed_everything(5)
    first = draw()
    seed_everything(5)
    assert draw() == first
    seed_everything(6)
    assert all(a != b for a, b in zip(draw(), first))


def test_every_seed_and_split_has_a_stream_of_its_own():
    seeds = [stream_seed(seed, split) for seed in range(20) for split in range(20)]
    assert len(set(seeds)) == 400
    assert stream_seed(3, 4) == stream_seed(3, 4)


def test_deterministic_algorithms_end_with_the_block():
    assert not torch.are_deterministic_algorithms_enabled()
    with deterministic_algorithms(False):
        assert not torch.are_deterministic_algorithms_enabled()
    with deterministic_algorithms():
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.utils.deterministic.fill_uninitialized_memory


def test_versions_name_what_a_result_depends_on():
    found = versions()
    assert found["python"] == platform.python_version()
    assert found["hkconv"] == hkconv.__version__
    assert found["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert {"torch-geometric", "geoopt", "numpy"} < set(found)


def git_that_says(monkeypatch, **answers):
    source_commit.cache_clear()
    monkeypatch.setattr(reproducibility, "_git", lambda _folder, *arguments: answers[arguments[0].replace("-", "_")])
    return source_commit()


def test_a_checkout_is_known_by_its_commit(monkeypatch):
    assert git_that_says(monkeypatch, ls_files="__init__.py", rev_parse="abc", status="") == "abc"
    assert git_that_says(monkeypatch, ls_files="__init__.py", rev_parse="abc", status=" M loop.py") == "abc+changes"
    assert git_that_says(monkeypatch, ls_files=None) is None
    source_commit.cache_clear()


def test_no_git_no_commit(monkeypatch):
    source_commit.cache_clear()
    monkeypatch.setenv("PATH", "")
    assert source_commit() is None
    source_commit.cache_clear()


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_asking_git_leaves_the_index_alone(tmp_path):
    """Git would write it anew, under a lock, where a file's time has changed and its contents have not."""
    file, index = tmp_path / "loop.py", tmp_path / ".git" / "index"
    file.write_text("pass")
    for command in (["init", "-q"], ["add", "loop.py"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    os.utime(file, (1, 1))
    before = index.read_bytes()
    assert reproducibility._git(tmp_path, "status", "--porcelain") == "A  loop.py"
    assert index.read_bytes() == before
