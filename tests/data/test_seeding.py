import pytest
import torch

from hkconv.data.seeding import seeded_generator
from hkconv.errors import InputError


def draw(*arguments):
    return torch.rand(8, generator=seeded_generator(*arguments))


def test_equal_arguments_give_equal_numbers():
    assert torch.equal(draw(3, 1), draw(3, 1))


def test_seed_and_stream_both_matter():
    arguments = [(0,), (0, 0), (0, 1), (1,), (1, 0), (0, 0, 0), (2**40, 1), (2**40 + 1,)]
    assert len({tuple(draw(*choice).tolist()) for choice in arguments}) == len(arguments)


def test_a_negative_seed_is_refused():
    with pytest.raises(InputError, match="seed must be zero or larger, got -1"):
        seeded_generator(-1)
