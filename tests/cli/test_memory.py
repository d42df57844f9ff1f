"""Memory that runs out at any operation of a training: one line, and it goes on to the end of one that had enough."""

from pathlib import Path

import pytest
import torch
from own_files import write_papers
from torch.utils._python_dispatch import TorchDispatchMode
from toy_translation import SMALL, write_toy

from .test_kills import check_files, resumed, trained, translated

ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 1 GiB."),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:119] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 4096 bytes. Error code 12 (Cannot allocate memory)"
    ),
    MemoryError("Unable to allocate 7.28 TiB for an array with shape (1000000, 1000000) and data type float64"),
    MemoryError(),
]
LINES = [
    "the memory of the GPU ran out (20.00 MiB more were asked for); ",
    "the memory of this machine ran out (4096 bytes more were asked for); ",
    "the memory of this machine ran out (7.28 TiB more were asked for); ",
    "the memory of this machine ran out; ",
]
TRAIN = ("train", "papers/", "--models", "gcn", "--epochs", 4, "--num-splits", 1, "--hidden-dim", 4)
TRAIN = (*TRAIN, "--device", "cpu", "--keep-every", 0, "--out", "run")
PACE = {**SMALL, "steps": 4, "validate_every": 2, "log_every": 1, "keep": 2}
TRANSLATE = (
    *("translate", "train", "--train", "train", "--valid", "valid", "--out", "run"),
    *(text for name, value in PACE.items() for text in (f"--{name.replace('_', '-')}", value)),
)
CASES = {
    "train": (lambda folder: write_papers(folder / "papers"), TRAIN, resumed(TRAIN, "recipe.json"), trained),
    "translate": (write_toy, TRANSLATE, resumed(TRANSLATE, "config.json"), translated),
}


class Scarce(TorchDispatchMode):
    """Counts the operations of PyTorch, forward and backward, and has no memory for one of them, from 1."""

    def __init__(self, at: int = 0, error: Exception | None = None):
        super().__init__()
        self.at, self.error, self.count = at, error, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        if self.count == self.at:
            raise self.error
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("places", [5, pytest.param(40, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", CASES)
def test_memory_that_runs_out_anywhere_costs_a_line_and_nothing_else(hkconv, tmp_path, monkeypatch, name, places):
    """Data, network, steps, validation and files: the operations are spread over the whole of a run."""
    prepare, begin, go_on, outcome = CASES[name]

    def new_folder(number: int) -> Path:
        folder = tmp_path / str(number)
        folder.mkdir()
        prepare(folder)
        monkeypatch.chdir(folder)
        return folder

    whole = new_folder(0)
    with Scarce() as counted:
        result = hkconv(*begin)
    assert result.exit_code == 0, result.output
    expected = outcome(whole)
    had_begun = 0
    for number in range(1, places + 1):
        folder = new_folder(number)
        which = number % len(ERRORS)
        with Scarce(counted.count * number // (places + 1), ERRORS[which]):
            result = hkconv(*begin)
        assert result.exit_code == 2, result.output
        line = result.stderr.splitlines()[-1]
        assert line.startswith(f"error: {LINES[which]}") and "Traceback" not in result.output, result.output
        check_files(folder)
        assert not list(folder.rglob("*.part")) and not list(folder.rglob(".hkconv-lock"))
        command = go_on(folder)
        if "--resume" in command:
            had_begun += 1
            words = " ".join(map(str, command))
            assert f"what was kept is safe, and hkconv {words} goes on when there is more" in line
        assert hkconv(*command).exit_code == 0
        assert outcome(folder) == expected
    assert had_begun >= places // 2
