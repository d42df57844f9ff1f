"""What the fused operators hold: nothing of size edges x kernel points x n, or of pairs of positions."""

from functools import lru_cache

import pytest
from attention import Sequences, peak_bytes
from nights import nightly

from hkconv.engine.measuring import ask
from hkconv.experiments.bench import Shape, probe_memory


@pytest.mark.parametrize("targets", [*nightly("uniform"), "power-law"])
def test_extra_memory_is_a_small_part_of_one_tensor_of_edges_by_kernels_by_n(targets):
    shape = Shape(nodes=1000, edges=200_000, kernels=8, dim=32)
    one_tensor = 4 * shape.edges * shape.kernels * shape.dim
    found = probe_memory("fused", shape, targets, seed=0, limit=300)
    assert found["bytes"] < 0.15 * one_tensor, found


@pytest.mark.nightly
def test_extra_memory_grows_with_nodes_by_kernels_by_n():
    small, large = (
        probe_memory("fused", Shape(1000, 200_000, 8, dim), "uniform", seed=0, limit=300)["bytes"] for dim in (16, 64)
    )
    grown = 4 * 1000 * 8 * (64 - 16)
    assert large - small < 12 * grown


@lru_cache
def attention_bytes(variant, length):
    order = {"variant": variant, "sequences": {"batch": 1, "length": length, "dim": 64}, "seed": 0}
    return ask("attention:measure_here", order, 300)["bytes"]


def test_attention_needs_little_beside_its_plain_form_and_not_much_more_than_hybonets():
    long = attention_bytes("kernel", 1024)
    assert long < 0.02 * peak_bytes(Sequences(1, 1024, 64))
    assert long < 3 * attention_bytes("centroid", 1024)


@pytest.mark.parametrize("variant", ["kernel", *nightly("centroid")])
def test_memory_of_attention_grows_with_the_length_and_not_with_its_square(variant):
    short, long = (attention_bytes(variant, length) for length in (256, 1024))
    assert long < 1.2 * 4 * short
