import pytest
import torch

from hkconv.geometry import lorentz
from hkconv.nn import HKConv
from hkconv.testing import assert_on_manifold, assert_permutation_equivariant, assert_translation_invariant


@pytest.fixture
def graph():
    return lorentz.lift(torch.randn(6, 3, dtype=torch.float64)), torch.randint(6, (2, 15))


def test_on_manifold_accepts_points_and_rejects_others(dtype, curvature):
    x = lorentz.lift(torch.randn(6, 3, dtype=dtype) * 100, curvature)
    assert_on_manifold(x, curvature)
    with pytest.raises(AssertionError, match="off the manifold"):
        assert_on_manifold(x * torch.tensor([1.001, 1, 1, 1]), curvature)
    with pytest.raises(AssertionError, match="NaN or Inf"):
        assert_on_manifold(x / 0, curvature)


def test_permutation_assertion_catches_a_layer_that_looks_at_positions_in_the_tensor(graph):
    def numbered(x, edge_index):
        return x * torch.arange(len(x)).unsqueeze(1)

    with pytest.raises(AssertionError, match="permuting the nodes"):
        assert_permutation_equivariant(numbered, *graph)
    assert_permutation_equivariant(HKConv(3, 2, 4).double(), *graph)


def test_translation_assertion_catches_a_layer_that_sees_where_nodes_are(graph):
    def mean_of_sources(x, edge_index):
        source, target = x if isinstance(x, tuple) else (x, x)
        return torch.zeros_like(target).index_add(0, edge_index[1], source[edge_index[0]])

    with pytest.raises(AssertionError, match="moving a neighbourhood"):
        assert_translation_invariant(mean_of_sources, *graph)
    assert_translation_invariant(HKConv(3, 2, 4).double(), *graph)
