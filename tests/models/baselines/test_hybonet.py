import copy

import literal
import pytest
import torch
from hyperbolic_cases import (
    EDGES,
    NODES,
    assert_finite_with_gradients,
    close,
    neighbours,
    points,
    randomized,
)

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.models import HyboNet, HyboNetConv


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
    x = points(generator, dtype, curvature=curvature)
    weight = torch.rand(EDGES.size(1), generator=generator).to(dtype)
    expected = literal_layer(layer, x, weight, curvature)
    torch.testing.assert_close(layer(x, EDGES, weight).double(), expected, **close(dtype))
    expected = literal_layer(layer, x, torch.ones_like(weight), curvature)
    torch.testing.assert_close(layer(x, EDGES).double(), expected, **close(dtype))


def test_isolated_node_keeps_its_linear_map(dtype, generator):
    layer = HyboNetConv(3, 4).to(dtype)
    x = points(generator, dtype)
    torch.testing.assert_close(layer(x, EDGES)[4], layer.linear(x[4]))
    assert_finite_with_gradients(layer, x, EDGES)
    assert_finite_with_gradients(layer, x, EDGES[:, :0])


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


def test_repr_and_bad_options(generator):
    assert str(HyboNetConv(3, 4)) == "HyboNetConv(3, 4)"
    assert str(HyboNet(3, 4, 2, num_layers=1)) == "HyboNet(node, HEmbedding(3, 4), HyboNetConv(4, 4))"
    with pytest.raises(InputError, match=r"dropout must lie in \[0, 1\), got 1"):
        HyboNetConv(3, 4, dropout=1)
    with pytest.raises(InputError, match=r"edge_weight must have shape \(7,\), got \(3,\)"):
        HyboNetConv(3, 4)(points(generator, torch.float32), EDGES, torch.ones(3))
