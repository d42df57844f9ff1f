import copy

import literal
import pytest
import torch
from torch_geometric import EdgeIndex

import hkconv
from hkconv.geometry import lorentz
from hkconv.nn import HKConv, TwoWayConv
from hkconv.ops import neighbors
from hkconv.testing import assert_on_manifold, assert_permutation_equivariant

# Node 0 has no edge, 5 points to nobody, 6 is pointed to by nobody; a double edge and a self loop.
EDGES = torch.tensor([[2, 3, 4, 6, 2, 1, 4, 4, 3], [1, 1, 1, 1, 3, 5, 5, 5, 3]])
BACKENDS = ["reference", "cpu"]


def cloud(curvature=-1.0, dtype=torch.float64):
    return lorentz.lift(torch.randn(7, 3, dtype=dtype), curvature)


def make(curvature=-1.0, dtype=torch.float64, backend="auto", root=False, **options):
    parts = [HKConv(3, 2, 3, curvature=curvature, backend=backend, root=r, **options) for r in (root, False)]
    layer = TwoWayConv(*parts).to(dtype)
    with torch.no_grad():
        layer.outgoing_logit.fill_(0.7)
    return layer


def literal_conv(conv, x, edges, weights, curvature):
    linear = {name: value.detach().double() for name, value in conv.linear.named_tensors().items()}
    points = [literal.lift(p[1:].detach().double(), curvature) for p in conv.points]
    return literal.hkconv(
        list(x.double()), list(x.double()), edges.t().tolist(), weights.tolist(), linear, points, curvature
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_is_the_centroid_of_both_directions(backend, weighted, dtype, curvature):
    layer, x = make(curvature, dtype, backend), cloud(curvature, dtype)
    weight = torch.rand(EDGES.size(1), dtype=torch.float64) if weighted else torch.ones(EDGES.size(1))
    into = literal_conv(layer.incoming, x, EDGES, weight, curvature)
    out_of = literal_conv(layer.outgoing, x, EDGES.flip(0), weight, curvature)
    share = torch.sigmoid(torch.tensor(0.7, dtype=torch.float64))
    expected = torch.stack([literal.centroid([i, o], [1 - share, share], curvature) for i, o in zip(into, out_of)])
    out = layer(x, EDGES, weight.to(dtype) if weighted else None)
    tolerance = 2e-5 if dtype == torch.float32 else 1e-11
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)
    assert torch.equal(out[0], lorentz.origin(2, curvature, dtype=dtype))


def test_flipping_all_edges_exchanges_the_two_parts():
    layer, x = make(), cloud()
    other = copy.deepcopy(layer)
    other.incoming, other.outgoing = layer.outgoing, layer.incoming
    with torch.no_grad():
        other.outgoing_logit.neg_()
    torch.testing.assert_close(other(x, EDGES.flip(0)), layer(x, EDGES))
    assert not torch.allclose(layer(x, EDGES.flip(0)), layer(x, EDGES))


@pytest.mark.filterwarnings("ignore:Sparse")
def test_takes_every_form_of_edges():
    layer, x = make(), cloud()
    distinct, weight = EDGES[:, [0, 1, 2, 3, 4, 5, 6, 8]], torch.rand(8, dtype=torch.float64)
    dense = torch.zeros(7, 7, dtype=torch.float64).index_put((distinct[1], distinct[0]), weight)
    expected = layer(x, distinct, weight)
    torch.testing.assert_close(layer(x, EdgeIndex(distinct), weight), expected)
    torch.testing.assert_close(layer(x, hkconv.neighbors(distinct, 7), weight), expected)
    for matrix in (dense.to_sparse_coo(), dense.to_sparse_csr(), dense.to_sparse_csc()):
        torch.testing.assert_close(layer(x, matrix), expected)


def test_is_sorted_once_for_both_directions_and_all_epochs(monkeypatch):
    sorts, sort = [], neighbors.sort_edges
    monkeypatch.setattr(neighbors, "sort_edges", lambda *given: sorts.append(1) or sort(*given))
    flips, flip = [], neighbors._flip
    monkeypatch.setattr(neighbors, "_flip", lambda found: flips.append(1) or flip(found))
    edges, x = EDGES.clone(), cloud()
    for layer in (make(), make(), make(attention="distance")):
        for _ in range(3):
            layer(x, edges)
    assert (len(sorts), len(flips)) == (1, 1)


@pytest.mark.parametrize("options", [{}, {"root": True, "mass": True}, {"attention": "distance"}, {"act": "relu"}])
def test_is_equivariant_and_on_the_manifold(options, dtype):
    layer, x = make(dtype=dtype, **options), cloud(dtype=dtype)
    assert_permutation_equivariant(layer, x, EDGES)
    assert_on_manifold(layer(x, EDGES))


def test_gradcheck(curvature):
    layer = make(curvature, mass=True)
    space = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    edges = EDGES[:, :-1]  # a self loop sits at the tip of a cone, where there is no derivative
    inputs = (space, *layer.parameters())
    assert torch.autograd.gradcheck(lambda s, *_: layer(lorentz.lift(s, curvature), edges), inputs)


def test_compiles_without_a_graph_break():
    layer, x = make(dtype=torch.float32, root=True), cloud(dtype=torch.float32)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, EDGES), layer(x, EDGES))


def test_reset_parameters_and_repr():
    layer, x = make(), cloud()
    before = layer(x, EDGES)
    layer.reset_parameters()
    assert layer.outgoing_logit == 0 and not torch.allclose(layer(x, EDGES), before)
    assert str(layer) == "TwoWayConv(HKConv(3, 2, kernel_size=3), HKConv(3, 2, kernel_size=3))"
