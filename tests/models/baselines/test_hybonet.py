import copy
import pickle

import literal
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

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.models import HyboNet, HyboNetConv
from hkconv.testing import assert_on_manifold, assert_permutation_equivariant


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


def test_gradients_are_those_of_the_layer(generator):
    layer = randomized(HyboNetConv(3, 2, act="tanh").double(), generator)
    space = points(generator, torch.float64)[:, 1:].requires_grad_()
    weight = torch.rand(EDGES.size(1), generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s, w: layer(lorentz.lift(s), EDGES, w), (space, weight))


def test_is_permutation_equivariant_and_stays_on_the_manifold(dtype, curvature, generator):
    layer = HyboNetConv(3, 4, curvature=curvature).to(dtype)
    x = points(generator, dtype, curvature=curvature)
    assert_permutation_equivariant(layer, x, EDGES)
    assert_on_manifold(layer(x, EDGES), curvature)


def test_isolated_node_keeps_its_linear_map(dtype, generator):
    layer = HyboNetConv(3, 4).to(dtype)
    x = points(generator, dtype)
    torch.testing.assert_close(layer(x, EDGES)[4], layer.linear(x[4]))
    assert_finite_with_gradients(layer, x, EDGES)
    assert_finite_with_gradients(layer, x, EDGES[:, :0])


@pytest.mark.parametrize("radius", [0, 1e-3, 8, 30])
def test_near_and_far_points_are_finite(dtype, radius, generator):
    layer = HyboNetConv(3, 4).to(dtype)
    assert_finite_with_gradients(layer, points(generator, dtype, radius=radius), EDGES)


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


def test_learns_the_tree():
    accuracy, majority = tree_accuracy(HyboNet)
    assert accuracy > majority + 0.3


def test_learns_graphs_and_links(generator):
    for first, last in (graph_losses(HyboNet, generator), link_losses(HyboNet, generator)):
        assert last < 0.7 * first


def test_copies_pickles_and_resets(generator):
    model = HyboNet(3, 5, 2, num_layers=2).eval()
    x = torch.randn(NODES, 3, generator=generator)
    before = model(x, EDGES)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(x, EDGES), before)
    model.reset_parameters()
    assert not torch.equal(model(x, EDGES), before)


def test_compiles_without_a_graph_break(generator):
    model = HyboNet(3, 5, 2, num_layers=2)
    x = torch.randn(NODES, 3, generator=generator)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, EDGES), model(x, EDGES))


def test_repr_and_bad_options(generator):
    assert str(HyboNetConv(3, 4)) == "HyboNetConv(3, 4)"
    assert str(HyboNet(3, 4, 2, num_layers=1)) == "HyboNet(node, HEmbedding(3, 4), HyboNetConv(4, 4))"
    with pytest.raises(InputError, match=r"dropout must lie in \[0, 1\), got 1"):
        HyboNetConv(3, 4, dropout=1)
    with pytest.raises(InputError, match=r"edge_weight must have shape \(7,\), got \(3,\)"):
        HyboNetConv(3, 4)(points(generator, torch.float32), EDGES, torch.ones(3))
