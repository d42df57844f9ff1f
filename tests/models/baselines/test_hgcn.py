import copy
import math
import pickle

import literal
import mpmath
import pytest
import torch
from hyperbolic_cases import (
    EDGES,
    NODES,
    assert_finite_with_gradients,
    close,
    graph_losses,
    link_losses,
    neighbours,
    points,
    randomized,
    tree_accuracy,
)
from torch.nn import functional as F

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.models import HGCN, HGCNConv
from hkconv.models.baselines.hgcn import _log_factor
from hkconv.testing import assert_on_manifold, assert_permutation_equivariant


def literal_layer(layer, x, weight, k):
    """The equations of the paper, node by node, in float64."""
    p = {name: value.detach().double() for name, value in layer.named_parameters()}
    o_in, o = literal.origin(layer.in_dim, k), literal.origin(layer.out_dim, k)
    h = []
    for point in x.double():
        linear = literal.exp(o, F.pad(p["weight"] @ literal.log(o_in, point, k)[1:], (1, 0)), k)
        h.append(literal.exp(linear, literal.transport(o, linear, F.pad(p["bias"], (1, 0)), k), k))
    at_origin = [literal.log(o, point, k)[1:] for point in h]
    q, own = p["attention_weight"]
    out = []
    for node in range(NODES):
        found, weights = zip(*neighbours(node, weight.double()))
        score = [F.leaky_relu(own @ at_origin[node] + q @ at_origin[j] + p["attention_bias"], 0.2) for j in found]
        share = torch.stack([w * math.exp(s) for w, s in zip(weights, score)])
        share = share / share.sum()
        mean = sum(
            (s * literal.log(h[node], h[j], k) for s, j in zip(share, found) if j != node), torch.zeros_like(h[node])
        )
        moved = literal.exp(h[node], mean, k)
        out.append(literal.exp(o, F.relu(literal.log(o, moved, k)), k))
    return torch.stack(out)


def test_equals_its_equations(dtype, curvature, generator):
    layer = randomized(HGCNConv(3, 4, dropout=0.5, curvature=curvature).to(dtype), generator)
    x = points(generator, dtype, curvature=curvature)
    weight = torch.rand(EDGES.size(1), generator=generator).to(dtype)
    expected = literal_layer(layer, x, weight, curvature)
    torch.testing.assert_close(layer(x, EDGES, weight).double(), expected, **close(dtype))
    expected = literal_layer(layer, x, torch.ones_like(weight), curvature)
    torch.testing.assert_close(layer(x, EDGES).double(), expected, **close(dtype))


def test_gradients_are_those_of_the_layer(generator):
    layer = randomized(HGCNConv(3, 2, act=None).double(), generator)
    space = points(generator, torch.float64)[:, 1:].requires_grad_()
    weight = torch.rand(EDGES.size(1), generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s, w: layer(lorentz.lift(s), EDGES, w), (space, weight))


def test_curvature_can_be_learned(generator):
    curvature = torch.nn.Parameter(torch.tensor(-0.7))
    layer = randomized(HGCNConv(3, 4, curvature=curvature), generator)
    with torch.no_grad():
        curvature.fill_(-0.7)
    layer(points(generator, torch.float32, curvature=-0.7), EDGES).square().sum().backward()
    assert curvature.grad.isfinite() and curvature.grad != 0


def test_is_permutation_equivariant_and_stays_on_the_manifold(dtype, curvature, generator):
    layer = HGCNConv(3, 4, curvature=curvature).to(dtype)
    x = points(generator, dtype, curvature=curvature)
    assert_permutation_equivariant(layer, x, EDGES)
    assert_on_manifold(layer(x, EDGES), curvature)


def test_isolated_node_keeps_its_linear_map(dtype, generator):
    layer = HGCNConv(3, 3, act=None).to(dtype)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(3))
    x = points(generator, dtype)
    torch.testing.assert_close(layer(x, EDGES)[4], x[4])
    assert_finite_with_gradients(layer, x, EDGES)
    assert_finite_with_gradients(layer, x, EDGES[:, :0])


@pytest.mark.parametrize("radius", [0, 1e-3, 8, 30])
def test_near_and_far_points_are_finite(dtype, radius, generator):
    layer = HGCNConv(3, 4).to(dtype)
    assert_finite_with_gradients(layer, points(generator, dtype, radius=radius), EDGES)


@pytest.mark.parametrize("radius, tolerance", [(4, 2e-5), (8, 1e-3)])
def test_float32_is_right_for_far_neighbours(radius, tolerance, generator):
    """Within a distance of about 2 of each other: exp of a long vector magnifies any rounding of its direction."""
    layer = HGCNConv(8, 8, act=None)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(8))
        layer.bias.copy_(0.1 * torch.randn(8, generator=generator))
    around = points(generator, torch.float64, dim=8, nodes=200, radius=1)
    centre = points(generator, torch.float64, dim=8, nodes=1, radius=radius)
    x = lorentz.lift(lorentz.oplus(around, centre)[:, 1:].float())
    edge_index = torch.randint(200, (2, 2000), generator=generator)
    exact = copy.deepcopy(layer).double()(lorentz.lift(x[:, 1:].double()), edge_index)
    found = lorentz.lift(layer(x, edge_index)[:, 1:].double())
    assert lorentz.dist(found, exact).max() < tolerance


def test_attention_without_preference_is_the_tangent_mean(generator):
    layer = randomized(HGCNConv(3, 3, act=None).double(), generator)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(3))
        layer.bias.zero_()
        layer.attention_weight.zero_()
    x = points(generator, torch.float64)
    mean = (lorentz.log(x[2], x[1]) + lorentz.log(x[2], x[0])) / 3
    torch.testing.assert_close(layer(x, EDGES)[2], lorentz.exp(x[2], mean))


def test_edge_of_weight_zero_is_no_edge(dtype, generator):
    layer = randomized(HGCNConv(3, 4).to(dtype), generator)
    x = points(generator, dtype)
    weight = torch.tensor([1, 0, 1, 1, 1, 0, 1], dtype=dtype)
    torch.testing.assert_close(layer(x, EDGES, weight), layer(x, EDGES[:, weight > 0]), **close(dtype))


def test_dropout_acts_in_training_alone(generator):
    layer = HGCNConv(3, 4, dropout=0.5)
    x = points(generator, torch.float32)
    assert not torch.equal(layer(x, EDGES), layer(x, EDGES))
    layer.eval()
    assert torch.equal(layer(x, EDGES), layer(x, EDGES))


def test_learns_the_tree():
    accuracy, majority = tree_accuracy(HGCN)
    assert accuracy > majority + 0.3


def test_learns_graphs_and_links(generator):
    for first, last in (graph_losses(HGCN, generator), link_losses(HGCN, generator)):
        assert last < 0.7 * first


def test_copies_pickles_and_resets(generator):
    model = HGCN(3, 5, 2, num_layers=2).eval()
    x = torch.randn(NODES, 3, generator=generator)
    before = model(x, EDGES)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(x, EDGES), before)
    model.reset_parameters()
    assert not torch.equal(model(x, EDGES), before)


def test_compiles_without_a_graph_break(generator):
    model = HGCN(3, 5, 2, num_layers=2)
    x = torch.randn(NODES, 3, generator=generator)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, EDGES), model(x, EDGES))


def test_repr_and_bad_options():
    assert str(HGCNConv(3, 4)) == "HGCNConv(3, 4)"
    assert str(HGCN(3, 4, 2, num_layers=1)) == "HGCN(node, HEmbedding(3, 4), HGCNConv(4, 4))"
    with pytest.raises(InputError, match=r"dropout must lie in \[0, 1\), got 1"):
        HGCNConv(3, 4, dropout=1)
    with pytest.raises(InputError, match="out_dim must be at least 1, got 0"):
        HGCNConv(3, 0)


def test_the_factor_of_the_logarithm_and_its_slope_are_right_however_near_two_points_are(dtype):
    delta = torch.logspace(-14, 2, 65, dtype=dtype).requires_grad_()
    factor = _log_factor(delta)
    (slope,) = torch.autograd.grad(factor.sum(), delta)
    with mpmath.workdps(60):

        def exact(d):
            return mpmath.acosh(1 + d) / mpmath.sqrt(d * (d + 2))

        values = [float(exact(mpmath.mpf(d))) for d in delta.tolist()]
        slopes = [float(mpmath.diff(exact, mpmath.mpf(d), h=mpmath.mpf(10) ** -25)) for d in delta.tolist()]
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(factor, torch.tensor(values, dtype=dtype), rtol=tolerance, atol=0)
    torch.testing.assert_close(slope, torch.tensor(slopes, dtype=dtype), rtol=tolerance, atol=0)
    assert _log_factor(torch.zeros(1, dtype=dtype)) == 1
