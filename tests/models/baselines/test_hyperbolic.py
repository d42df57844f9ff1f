"""What every hyperbolic baseline and HKN in flat space must do; what each is, its own file tests."""

import copy
import pickle
from functools import partial

import pytest
import torch
from baseline_cases import called
from hyperbolic_cases import (
    EDGES,
    NODES,
    assert_every_task_trains,
    assert_finite_with_gradients,
    close,
    graph_losses,
    link_losses,
    points,
    tree_accuracy,
)

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.models import H2HGCN, HGCN, WLHN, FlatHKN, H2HGCNConv, HGCNConv, HyboNet, HyboNetConv
from hkconv.models.tasks import TASKS
from hkconv.testing import assert_on_manifold, assert_permutation_equivariant

LAYERS = [HyboNetConv, HGCNConv, H2HGCNConv]
# Few centroids, because their distances are what takes time.
MODELS = [HyboNet, HGCN, partial(H2HGCN, num_centroids=8), WLHN, FlatHKN]
NAMES = ["HyboNet", "HGCN", "H2H-GCN", "WLHN", "flat"]

of_each_layer = pytest.mark.parametrize("layer_class", LAYERS, ids=NAMES[:3])
of_each_model = pytest.mark.parametrize("model_class", MODELS, ids=NAMES)
of_each_task = pytest.mark.parametrize("task", TASKS)


@of_each_layer
def test_gradients_are_those_of_the_layer(layer_class, generator):
    smooth = {} if layer_class is H2HGCNConv else {"act": "tanh"}
    layer = layer_class(3, 4, **smooth).double()
    space = points(generator, torch.float64)[:, 1:].requires_grad_()
    weight = torch.rand(EDGES.size(1), generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s, w: layer(lorentz.lift(s), EDGES, w), (space, weight))


@of_each_layer
def test_curvature_can_be_learned(layer_class, generator):
    curvature = torch.nn.Parameter(torch.tensor(-0.7))
    layer = layer_class(3, 4, curvature=curvature)
    layer(points(generator, torch.float32, curvature=-0.7), EDGES).square().sum().backward()
    assert curvature.grad.isfinite() and curvature.grad != 0


@of_each_layer
def test_is_permutation_equivariant_and_stays_on_the_manifold(layer_class, dtype, curvature, generator):
    layer = layer_class(3, 4, curvature=curvature).to(dtype)
    x = points(generator, dtype, curvature=curvature)
    assert_permutation_equivariant(layer, x, EDGES)
    assert_on_manifold(layer(x, EDGES), curvature)


@of_each_layer
@pytest.mark.parametrize("radius", [0, 1e-3, 8, 30])
def test_near_and_far_points_are_finite(layer_class, dtype, radius, generator):
    for edges in (EDGES, EDGES[:, :0]):
        assert_finite_with_gradients(layer_class(3, 4).to(dtype), points(generator, dtype, radius=radius), edges)


@of_each_layer
def test_edge_of_weight_zero_is_no_edge(layer_class, dtype, generator):
    layer, x = layer_class(3, 4).to(dtype), points(generator, dtype)
    weight = torch.tensor([1, 0, 1, 1, 1, 0, 1], dtype=dtype)
    torch.testing.assert_close(layer(x, EDGES, weight), layer(x, EDGES[:, weight > 0]), **close(dtype))


@of_each_layer
def test_dropout_acts_in_training_alone(layer_class, generator):
    layer, x = layer_class(3, 4, dropout=0.5), points(generator, torch.float32)
    dropped = layer(x, EDGES)
    assert_on_manifold(dropped)
    assert not torch.equal(dropped, layer(x, EDGES))
    layer.eval()
    assert torch.equal(layer(x, EDGES), layer(x, EDGES))


@of_each_layer
def test_repr_and_bad_options_of_a_layer(layer_class, generator):
    assert str(layer_class(3, 4)) == f"{layer_class.__name__}(3, 4)"
    with pytest.raises(InputError, match=r"dropout must lie in \[0, 1\), got 1"):
        layer_class(3, 4, dropout=1)
    with pytest.raises(InputError, match=r"out_dim.*[:,] got (3 and )?0"):
        layer_class(3, 0)
    with pytest.raises(InputError, match=r"edge_weight must have shape \(7,\), got \(3,\)"):
        layer_class(3, 4)(points(generator, torch.float32), EDGES, torch.ones(3))


@pytest.mark.parametrize("model, layer", zip(MODELS, LAYERS), ids=NAMES[:3])
def test_repr_of_a_network(model, layer):
    network = model(3, 4, 2, num_layers=1)
    assert str(network) == f"{type(network).__name__}(node, HEmbedding(3, 4), {layer.__name__}(4, 4))"


@of_each_model
def test_bad_input_of_a_network(model_class):
    with pytest.raises(InputError, match=r"edge_weight must have shape \(7,\), got \(3,\)"):
        model_class(3, 4, 2, num_layers=1)(torch.ones(NODES, 3), EDGES, torch.ones(3))
    with pytest.raises(InputError, match=r"pairs of shape \(2, P\) are needed for the link task"):
        model_class(3, 4, None, num_layers=1, task="link")(torch.ones(NODES, 3), EDGES)


@of_each_model
def test_every_task_trains(model_class, generator):
    assert_every_task_trains(model_class, generator)


@of_each_model
def test_dropout_of_a_network_acts_in_training_alone(model_class, generator):
    model, x = model_class(3, 8, 2, num_layers=2, dropout=0.5), torch.randn(NODES, 3, generator=generator)
    assert not torch.equal(model(x, EDGES), model(x, EDGES))
    model.eval()
    assert torch.equal(model(x, EDGES), model(x, EDGES))


@of_each_model
def test_learns_the_tree(model_class):
    accuracy, majority = tree_accuracy(model_class)
    assert accuracy > majority + 0.3


@of_each_model
def test_learns_graphs_and_links(model_class, generator):
    for first, last in (graph_losses(model_class, generator), link_losses(model_class, generator)):
        assert last < 0.7 * first


@of_each_model
@of_each_task
def test_copies_pickles_loads_and_resets(model_class, task, generator):
    model, fresh = (model_class(3, 5, 2, num_layers=2, task=task).eval() for _ in range(2))
    x = torch.randn(NODES, 3, generator=generator)
    before = called(model, x)
    assert not torch.equal(called(fresh, x), before)
    fresh.load_state_dict(model.state_dict())
    for twin in (fresh, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(called(twin, x), before)
    model.reset_parameters()
    assert not torch.equal(called(model, x), before)


@pytest.mark.nightly
@of_each_model
@of_each_task
def test_compiles_without_a_graph_break(model_class, task, generator):
    # All share code, of which but a few versions may be compiled.
    torch.compiler.reset()
    model = model_class(3, 5, 2, num_layers=1, task=task).eval()
    x = torch.randn(NODES, 3, generator=generator)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(called(compiled, x), called(model, x))
