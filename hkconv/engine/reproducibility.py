"""Seeds, deterministic algorithms and versions: what a result follows from, and what is written beside it."""

import os
import platform
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

import hkconv


def seed_everything(seed: int) -> None:
    """Seed Python's, NumPy's and PyTorch's generators, on every device."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def stream_seed(seed: int, split: int) -> int:
    """The seed of one training. It depends on the split, or one lucky start would count once for every split."""
    return int(np.random.SeedSequence([seed, split]).generate_state(1)[0])


@contextmanager
def deterministic_algorithms(enabled: bool = True) -> Iterator[None]:
    """Within this block PyTorch uses algorithms that repeat exactly, or raises where it has none.

    Args:
        enabled: False leaves everything as it is.
    """
    if not enabled:
        yield
        return
    # cuBLAS repeats only with a fixed workspace; it reads this when it is first used.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # Torch makes its attribute when it is imported, where mypy does not see it.
    memory: Any = torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled(), memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    # Else every new tensor is filled with NaN first, thousands of operations an epoch; a result needs none of them.
    memory.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        memory.fill_uninitialized_memory = before[1]


PACKAGES = ("torch", "torch-geometric", "geoopt", "numpy")


def versions() -> dict[str, str]:
    """The version of Python, of this library and of every package that a result depends on."""
    packages = {name: version(name) for name in PACKAGES}
    return {"python": platform.python_version(), "hkconv": hkconv.__version__, **packages}


@cache
def source_commit() -> str | None:
    """The commit this package is run from, with ``+changes`` where its files differ; None where it is not a checkout.

    An installed package may lie within somebody's repository, whose commit says nothing about it.
    """
    folder = Path(hkconv.__file__).parent
    if _git(folder, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit = _git(folder, "rev-parse", "HEAD")
    is_changed = commit is not None and _git(folder, "status", "--porcelain", "--", ".") != ""
    return f"{commit}+changes" if is_changed else commit


def _git(folder: Path, *arguments: str) -> str | None:
    """Return what git prints, None where it fails or is not there."""
    try:
        # A training that is killed while git holds a lock would leave it behind, and the user could not commit.
        command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
        # Nothing that a user gave is in it, and git is found as every program is.
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # nosec B603
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
