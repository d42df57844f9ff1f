import pytest
import torch

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.nn import HKConv, knn_graph
from hkconv.nn import knn as knn_module


def brute_force(x, k, batch, loop, curvature):
    edges = set()
    for i in range(len(x)):
        others = [j for j in range(len(x)) if batch[j] == batch[i] and (loop or j != i)]
        others.sort(key=lambda j: lorentz.dist(x[i].double(), x[j].double(), curvature).item())
        edges |= {(j, i) for j in others[:k]}
    return edges


@pytest.mark.parametrize("loop", [False, True])
@pytest.mark.parametrize("batched", [False, True])
def test_equals_brute_force(curvature, loop, batched):
    x = lorentz.lift(torch.randn(25, 3, dtype=torch.float64), curvature)
    batch = torch.randint(3, (25,)) if batched else torch.zeros(25, dtype=torch.long)
    edges = knn_graph(x, 4, batch if batched else None, loop=loop, curvature=curvature)
    assert {tuple(e) for e in edges.t().tolist()} == brute_force(x, 4, batch, loop, curvature)


def test_hyperbolic_neighbors_differ_from_euclidean_ones():
    """Far out, a point straight inward is nearer than one at the same height to the side, though Euclid disagrees."""
    x = lorentz.lift(torch.tensor([[100.0, 0.0], [60.0, 0.0], [96.0, 28.0]]))
    assert torch.cdist(x[:1, 1:], x[1:, 1:]).argmin() == 1
    assert knn_graph(x, 1)[0, 0] == 1


def test_small_blocks_give_the_same(monkeypatch):
    x = lorentz.lift(torch.randn(25, 3, dtype=torch.float64))
    whole = knn_graph(x, 4)
    monkeypatch.setattr(knn_module, "BLOCK_ELEMENTS", 250)
    assert torch.equal(knn_graph(x, 4), whole)


def test_fewer_candidates_than_k_and_none_at_all():
    x = lorentz.lift(torch.randn(3, 2))
    assert knn_graph(x, 10).size(1) == 6
    assert knn_graph(x[:0], 2).shape == (2, 0)
    with pytest.raises(InputError, match="k must be at least 1, got 0"):
        knn_graph(x, 0)


def test_feeds_hkconv():
    x = lorentz.lift(torch.randn(20, 3))
    out = HKConv(3, 5, 4)(x, knn_graph(x, 3))
    assert (lorentz.dist(out, lorentz.origin(5)) > 0).all()
