import random

import numpy as np
import torch

from hkconv.engine.seeds import deterministic_algorithms, seed_everything, stream_seed


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
    assert not torch.are_deterministic_algorithms_enabled()
