"""One seed, many independent random streams: split 3 must not depend on how many splits were asked for."""

import numpy as np
import torch

from hkconv.errors import InputError


def seeded_generator(seed: int, *stream: int) -> torch.Generator:
    """A CPU generator for one numbered stream of a seed.

    Args:
        seed: the user's seed, zero or larger.
        stream: non-negative numbers naming the use, such as the index of a split.

    Returns:
        A generator that is equal for equal arguments and unrelated for different ones.
    """
    if seed < 0:
        raise InputError(f"seed must be zero or larger, got {seed}")
    state = np.random.SeedSequence(seed, spawn_key=stream).generate_state(1, dtype=np.uint64)[0]
    return torch.Generator().manual_seed(int(state) >> 1)
