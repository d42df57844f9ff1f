"""One number that every random choice of a training run follows from."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


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
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
