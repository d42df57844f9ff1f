import copy
import math

import literal
import mpmath
import pytest
import torch
from hyperbolic_cases import (
    EDGES,
    NODES,
    assert_equals_literal,
    neighbours,
    points,
    randomized,
)
from torch.nn import functional as F

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.models import HGCN, HGCNConv
from hkconv.models.baselines.hgcn import _log_factor


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
    assert_equals_literal(layer, literal_layer, curvature, dtype, generator)


def test_isolated_node_keeps_its_linear_map(dtype, generator):
    layer = HGCNConv(3, 3, act=None).to(dtype)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(3))
    x = points(generator, dtype)
    torch.testing.assert_close(layer(x, EDGES)[4], x[4])


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


def test_a_reach_shortens_every_tangent_vector_smoothly(generator):
    """An isolated node: both exp_o are taken of one vector, which is shortened twice."""
    layer = HGCNConv(3, 3, act=None, reach=2.0, curvature=-0.25).double()
    with torch.no_grad():
        layer.weight.copy_(torch.eye(3))
    x = points(generator, torch.float64, curvature=-0.25, radius=6)
    length = lorentz.log0(x[4], -0.25).norm()
    bound = 2.0 * 2.0
    expected = bound * torch.tanh(bound * torch.tanh(length / bound) / bound)
    found = layer(x, EDGES)[4]
    torch.testing.assert_close(lorentz.log0(found, -0.25).norm(), expected)
    torch.testing.assert_close(F.normalize(found[1:], dim=0), F.normalize(x[4, 1:], dim=0))


def test_the_network_stays_finite_however_large_its_weights_become(dtype, generator):
    """Trainings on Wisconsin came to radius 40 and ended there before tangent vectors had a bound."""
    network = HGCN(3, 4, 2, num_layers=3).to(dtype)
    with torch.no_grad():
        for parameter in [*network.embedding.parameters(), *network.convs.parameters()]:
            parameter.copy_(100 * torch.randn(parameter.shape, generator=generator))
    logits = network(torch.randn(NODES, 3, generator=generator).to(dtype), EDGES)
    logits.sum().backward()
    assert torch.isfinite(logits).all()
    assert all(torch.isfinite(parameter.grad).all() for parameter in network.parameters())
    with pytest.raises(InputError, match="reach must be a number above 0 or None, got 0"):
        HGCNConv(3, 4, reach=0)
