import importlib
import multiprocessing
import os

import pytest
import torch
from safetensors.torch import load_file, save_file

from hkconv.points import cache, kernel_points


@pytest.fixture
def solve_count(monkeypatch):
    """How often the search behind ``kernel_points`` has run."""
    module = importlib.import_module("hkconv.points.kernel_points")  # the name in the package is the function
    calls, search = [], module.best_of_many_starts
    monkeypatch.setattr(module, "best_of_many_starts", lambda *a: calls.append(a) or search(*a))
    return calls


def forget(monkeypatch):
    monkeypatch.setattr(cache, "_solved", {})


def only_file(folder):
    (file,) = folder.iterdir()
    return file


def test_solved_once_in_memory_and_once_on_disk(own_cache, solve_count, monkeypatch):
    first = kernel_points(4, 2)
    assert torch.equal(kernel_points(4, 2), first) and len(solve_count) == 1
    forget(monkeypatch)
    assert torch.equal(kernel_points(4, 2), first) and len(solve_count) == 1
    assert torch.equal(load_file(only_file(own_cache))["points"], first)


def test_every_argument_has_its_own_entry(own_cache, solve_count):
    for arguments in [(4, 2), (5, 2), (5, 3), (4, 2, -1.0000000000000002), (4, 2, -0.3)]:
        kernel_points(*arguments)
    kernel_points(4, 2, seed=1)
    assert len(list(own_cache.iterdir())) == 6


def test_mutating_a_result_does_not_reach_the_cache(monkeypatch):
    first = kernel_points(4, 2)
    kept = first.clone()
    first.zero_()
    second = kernel_points(4, 2)
    assert torch.equal(second, kept)
    second.zero_()
    forget(monkeypatch)
    assert torch.equal(kernel_points(4, 2), kept)


def corrupt(file):
    file.write_bytes(b"not a safetensors file")


def truncate(file):
    content = file.read_bytes()
    file.write_bytes(content[: len(content) - 7])


def empty(file):
    file.write_bytes(b"")


def wrong_shape(file):
    save_file({"points": torch.ones(3, 3, dtype=torch.float64)}, file, metadata={"key": file.name})


def wrong_dtype(file):
    save_file({"points": load_file(file)["points"].float()}, file, metadata={"key": file.name})


def off_manifold(file):
    save_file({"points": load_file(file)["points"] * 1.01}, file, metadata={"key": file.name})


def not_a_number(file):
    save_file({"points": load_file(file)["points"] * float("nan")}, file, metadata={"key": file.name})


def other_key(file):
    save_file(load_file(file), file, metadata={"key": "another"})


def other_tensor(file):
    save_file({"other": load_file(file)["points"]}, file, metadata={"key": file.name})


def folder_instead(file):
    file.unlink()
    file.mkdir()


BROKEN = [corrupt, truncate, empty, wrong_shape, wrong_dtype, off_manifold, not_a_number, other_key, other_tensor]


@pytest.mark.parametrize("damage", BROKEN, ids=lambda damage: damage.__name__)
def test_a_broken_file_is_ignored_and_rewritten(damage, own_cache, solve_count, monkeypatch):
    expected = kernel_points(4, 2)
    file = only_file(own_cache)
    damage(file)
    forget(monkeypatch)
    assert torch.equal(kernel_points(4, 2), expected) and len(solve_count) == 2
    assert torch.equal(load_file(only_file(own_cache))["points"], expected)


def test_a_file_that_cannot_be_replaced_is_passed_over(own_cache, monkeypatch):
    expected = kernel_points(4, 2)
    folder_instead(only_file(own_cache))
    forget(monkeypatch)
    assert torch.equal(kernel_points(4, 2), expected)
    assert [path.suffix for path in own_cache.iterdir()] == [".safetensors"]  # no temporary file stays behind


def test_no_cache_folder_is_no_reason_to_fail(own_cache, monkeypatch):
    expected = kernel_points(4, 2)
    forget(monkeypatch)
    occupied = own_cache.parent / "a file"
    occupied.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(occupied))
    assert torch.equal(kernel_points(4, 2), expected)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write to read-only folders")
def test_read_only_cache_folder(own_cache):
    own_cache.mkdir(parents=True)
    own_cache.chmod(0o500)
    try:
        assert kernel_points(4, 2).shape == (4, 3)
        assert list(own_cache.iterdir()) == []
    finally:
        own_cache.chmod(0o700)


def test_a_failing_write_is_passed_over(own_cache, monkeypatch):
    opened = os.open

    def refuse(path, *rest, **options):
        if str(path).endswith(".part"):
            raise PermissionError("read-only file system")
        return opened(path, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)
    assert kernel_points(4, 2).shape == (4, 3)
    assert list(own_cache.iterdir()) == []


def test_a_write_cut_short_leaves_no_file(own_cache, monkeypatch):
    def cut(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cache.os, "replace", cut)
    with pytest.raises(KeyboardInterrupt):
        kernel_points(4, 2)
    assert list(own_cache.iterdir()) == []


def test_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / ".cache" / "hkconv" / "points"


def solve_in_another_process(barrier, results):
    barrier.wait()
    results.put(kernel_points(6, 2).tolist())


def test_two_processes_at_once(own_cache):
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    processes = [context.Process(target=solve_in_another_process, args=(barrier, results)) for _ in range(2)]
    for process in processes:
        process.start()
    first, second = results.get(timeout=120), results.get(timeout=120)
    for process in processes:
        process.join(timeout=60)
        assert process.exitcode == 0
    assert first == second == load_file(only_file(own_cache))["points"].tolist()
