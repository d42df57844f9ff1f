import copy

import literal
import torch
from hyperbolic_cases import (
    EDGES,
    NODES,
    assert_equals_literal,
    neighbours,
    points,
    randomized,
)

from hkconv.geometry import lorentz
from hkconv.models import HyboNetConv


def literal_layer(layer, x, weight, curvature):
    """The equations of the paper, node by node, in float64."""
    linear = {name: value.detach().double() for name, value in layer.linear.named_parameters()}
    y = [literal.hlinear(point, **linear, k=curvature, act=torch.relu) for point in x.double()]
    out = []
    for node in range(NODES):
        found, weights = zip(*neighbours(node, weight.double()))
        out.append(literal.centroid([y[j] for j in found], [w / sum(weights) for w in weights], curvature))
    return torch.stack(out)


def test_equals_its_equations(dtype, curvature, generator):
    layer = randomized(HyboNetConv(3, 4, act="relu", dropout=0.5, curvature=curvature).to(dtype), generator)
    assert_equals_literal(layer, literal_layer, curvature, dtype, generator)


def test_isolated_node_keeps_its_linear_map(dtype, generator):
    layer = HyboNetConv(3, 4).to(dtype)
    x = points(generator, dtype)
    torch.testing.assert_close(layer(x, EDGES)[4], layer.linear(x[4]))


def test_float32_is_right_for_far_points(generator):
    layer = randomized(HyboNetConv(8, 8), generator)
    x = points(generator, torch.float32, dim=8, nodes=200, radius=8)
    edge_index = torch.randint(200, (2, 2000), generator=generator)
    exact = copy.deepcopy(layer).double()(lorentz.lift(x[:, 1:].double()), edge_index)
    torch.testing.assert_close(layer(x, edge_index).double(), exact, rtol=1e-4, atol=1e-4)


def test_dropout_leaves_the_gate_alone(generator):
    layer = randomized(HyboNetConv(3, 4, dropout=0.5), generator)
    x, none = points(generator, torch.float32), EDGES[:, :0]
    length = layer(x, none)[:, 0]
    layer.train()
    dropped = layer(x, none)
    assert not torch.equal(dropped, layer(x, none))
    torch.testing.assert_close(dropped[:, 0], length)
