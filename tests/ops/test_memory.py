"""What the fused operator holds: nothing of size edges x kernel points x n."""

import pytest

from hkconv.benchmarking.child import probe_memory
from hkconv.benchmarking.shapes import Shape


@pytest.mark.parametrize("targets", ["uniform", "power-law"])
def test_extra_memory_is_a_small_part_of_one_tensor_of_edges_by_kernels_by_n(targets):
    shape = Shape(nodes=1000, edges=200_000, kernels=8, dim=32)
    one_tensor = 4 * shape.edges * shape.kernels * shape.dim
    found = probe_memory("fused", shape, targets, seed=0, limit=300)
    assert found["bytes"] < 0.15 * one_tensor, found


def test_extra_memory_grows_with_nodes_by_kernels_by_n():
    small, large = (
        probe_memory("fused", Shape(1000, 200_000, 8, dim), "uniform", seed=0, limit=300)["bytes"] for dim in (16, 64)
    )
    grown = 4 * 1000 * 8 * (64 - 16)
    assert large - small < 12 * grown
