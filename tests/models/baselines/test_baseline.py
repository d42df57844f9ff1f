import copy
import pickle

import pytest
import torch
from baseline_cases import BATCH, PAIRS, built, called
from hyperbolic_cases import EDGES, NODES, graph_losses, link_losses

from hkconv.errors import InputError
from hkconv.models import (
    ACMGCN,
    GAT,
    GCN,
    GCNII,
    GIN,
    GMT,
    H2HGCN,
    HGCN,
    HKN,
    LINKX,
    MLP,
    WLHN,
    WRGAT,
    DirGNN,
    FlatHKN,
    GeomGCN,
    GloGNN,
    GloGNNPlusPlus,
    GraphSAGE,
    HyboNet,
)
from hkconv.models.baselines.baseline import TaskHead
from hkconv.models.tasks import TASKS

BASELINES = [GCN, MLP, GAT, GraphSAGE, GCNII, ACMGCN, DirGNN, GIN, GMT, LINKX, GeomGCN, WRGAT, GloGNN, GloGNNPlusPlus]
OTHERS = [HGCN, HKN, HyboNet, H2HGCN, WLHN, FlatHKN]
CASES = [pytest.param(model, task, id=f"{model.__name__}-{task}") for model in BASELINES for task in model.tasks]


@pytest.mark.parametrize("model", [*BASELINES, *OTHERS])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "edge"}, "task must be one of node, graph, link, got 'edge'"),
        ({"num_classes": 1, "task": "graph"}, "num_classes must be at least 2 for the graph task, got 1"),
        ({"num_classes": None}, "num_classes must be at least 2 for the node task, got None"),
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_built(model, change, message):
    with pytest.raises(InputError, match=message):
        model(**{"in_features": 5, "hidden_dim": 4, "num_classes": 3, "num_layers": 2, **change})


@pytest.mark.parametrize("model", [*BASELINES, *OTHERS])
def test_width_must_be_positive_and_dropout_must_leave_something(model):
    task = getattr(model, "tasks", ("node",))[0]
    with pytest.raises(InputError, match="hidden_dim must be at least 1, got 0"):
        model(5, 0, 3, num_layers=2, task=task)
    with pytest.raises(InputError, match=r"dropout must lie in \[0, 1\), got 1"):
        built(model, task, dropout=1)


WITHOUT = [(model, task) for model in BASELINES for task in TASKS if task not in model.tasks]


@pytest.mark.parametrize("model, task", WITHOUT)
def test_task_that_a_system_does_not_have(model, task):
    message = f"task must be {' or '.join(model.tasks)} for {model.__name__}, got '{task}'"
    with pytest.raises(InputError, match=message):
        built(model, task)


@pytest.mark.parametrize("model", [GeomGCN, WRGAT, GloGNN])
def test_edges_to_nodes_that_there_are_not_are_refused(model):
    with pytest.raises(InputError, match="edge_index"):
        built(model)(torch.zeros(NODES, 3), EDGES + 3)


@pytest.mark.parametrize("model", [GAT, GraphSAGE, GIN, GeomGCN])
def test_weights_are_refused_where_they_would_be_ignored(model, generator):
    x = torch.randn(NODES, 3, generator=generator)
    with pytest.raises(InputError, match=f"edge_weight must be left out: {model.__name__} knows no weights of edges"):
        built(model)(x, EDGES, torch.ones(EDGES.size(1)))


def test_graphs_are_the_mean_of_their_nodes(dtype, generator):
    model = built(MLP, "graph").to(dtype)
    z = torch.randn(5, 8, generator=generator).to(dtype)
    batch = torch.tensor([0, 0, 2, 2, 2])
    means = torch.stack([z[:2].relu().mean(0), torch.zeros(8, dtype=dtype), z[2:].relu().mean(0)])
    torch.testing.assert_close(model.pool(z, batch, 3), means)
    torch.testing.assert_close(model.pool(z, None, None), z.relu().mean(0, keepdim=True))


@pytest.mark.parametrize("model, task", [case for case in CASES if not case.values[0].uses_num_nodes])
def test_numbers_of_nodes_do_not_matter(model, task, dtype, generator):
    network = built(model, task).to(dtype).eval()
    x = torch.randn(NODES, 3, generator=generator).to(dtype)
    order = torch.tensor([2, 0, 4, 3, 1])
    place = order.argsort()
    found = called(network, x[order], place[EDGES], BATCH[order], place[PAIRS])
    expected = called(network, x)
    torch.testing.assert_close(found, expected[order] if task == "node" else expected)


@pytest.mark.parametrize("model, task", CASES)
@pytest.mark.parametrize("edges", [EDGES, EDGES[:, :0]], ids=["isolated node", "no edges"])
@pytest.mark.parametrize("scale", [1.0, 0.0, 1e4])
def test_gradient_reaches_every_parameter(model, task, edges, scale, dtype, generator):
    network = built(model, task, dropout=0.2).to(dtype)
    x = (scale * torch.randn(NODES, 3, generator=generator)).to(dtype).requires_grad_()
    out = called(network, x, edges)
    assert out.isfinite().all() and out.shape == {"node": (NODES, 2), "graph": (2, 2), "link": (3,)}[task]
    out.square().sum().backward()
    assert x.grad.isfinite().all()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("model, task", CASES)
def test_one_node_can_be_trained_on(model, task, generator):
    network = built(model, task, num_nodes=1)
    x = torch.randn(1, 3, generator=generator)
    out = network(x, EDGES[:, :0], pairs=torch.zeros(2, 1, dtype=torch.long))
    assert out.isfinite().all() and out.size(0) == 1
    out.square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


@pytest.mark.parametrize("model", [model for model in BASELINES if len(model.tasks) == 3])
def test_learns_graphs_and_links(model, generator):
    for first, last in (graph_losses(model, generator), link_losses(model, generator)):
        assert last < 0.7 * first


@pytest.mark.parametrize("model, task", CASES)
def test_dropout_acts_in_training_alone(model, task, generator):
    network = built(model, task, dropout=0.5)
    x = torch.randn(NODES, 3, generator=generator)
    assert not torch.equal(called(network, x), called(network, x))
    network.eval()
    assert torch.equal(called(network, x), called(network, x))


@pytest.mark.parametrize("model, task", CASES)
def test_copies_pickles_and_resets(model, task, generator):
    network = built(model, task).eval()
    x = torch.randn(NODES, 3, generator=generator)
    before = called(network, x)
    for twin in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert torch.equal(called(twin, x), before)
    old = copy.deepcopy(network.state_dict())
    network.reset_parameters()
    assert not torch.equal(called(network, x), before)
    drawn = [name for name, value in old.items() if value.is_floating_point() and value.dim() > 1 and value.any()]
    assert drawn and not any(torch.equal(network.state_dict()[name], old[name]) for name in drawn)


def test_node_head_changes_nothing(dtype, generator):
    head = TaskHead(8, 3, "node")
    z = torch.randn(5, head.in_features, generator=generator).to(dtype)
    assert head.in_features == 3
    assert torch.equal(head(z), z)


def test_graph_head_is_a_linear_classifier(dtype, generator):
    head = TaskHead(4, 2, "graph").to(dtype)
    z = torch.randn(5, head.in_features, generator=generator).to(dtype)
    torch.testing.assert_close(head(z), z @ head.linear.weight.T + head.linear.bias)


def test_link_head_is_the_inner_product(dtype, generator):
    head = TaskHead(4, None, "link")
    z = torch.randn(5, 4, generator=generator).to(dtype)
    pairs = torch.tensor([[0, 1], [4, 1]])
    torch.testing.assert_close(head(z, pairs=pairs), torch.stack([z[0] @ z[4], z[1] @ z[1]]))
    with pytest.raises(InputError, match="pairs must be given for a link task"):
        head(z)


@pytest.mark.parametrize("model", [GCN, GAT, GraphSAGE, GIN])
def test_attributes_of_edges_must_be_those_it_was_built_for(model, generator):
    x, attr = torch.randn(NODES, 3, generator=generator), torch.randn(EDGES.size(1), 2, generator=generator)
    attributed = built(model, edge_dim=2)
    assert attributed.reads_edges
    with pytest.raises(InputError, match=r"edge_attr must have shape .*, got none"):
        attributed(x, EDGES)
    with pytest.raises(InputError, match="edge_attr must be left out where edge_dim is None"):
        built(model)(x, EDGES, edge_attr=attr)


@pytest.mark.parametrize("model", [GCN, GAT, GraphSAGE, GIN, FlatHKN, HKN])
def test_attributes_of_edges_in_half_precision_are_close_to_those_in_full(model, generator):
    x, attr = torch.randn(NODES, 3, generator=generator), torch.randn(EDGES.size(1), 2, generator=generator)
    network, weight = built(model, edge_dim=2).eval(), torch.rand(EDGES.size(1), generator=generator)
    weights = (weight,) if getattr(network, "uses_edge_weight", True) else ()
    expected = network(x, EDGES, *weights, edge_attr=attr)
    with torch.autocast("cpu", torch.bfloat16):
        found = network(x, EDGES, *weights, edge_attr=attr)
    torch.testing.assert_close(found.float(), expected, rtol=0.1, atol=0.1 * expected.abs().max().item())


@pytest.mark.parametrize("model", [MLP, GCNII, GMT, HGCN, HyboNet])
def test_others_take_no_attributes_of_edges(model, generator):
    x, attr = torch.randn(NODES, 3, generator=generator), torch.randn(EDGES.size(1), 2, generator=generator)
    assert not model.reads_edges
    with pytest.raises(InputError, match="edge_attr must be left out where edge_dim is None"):
        model(3, 8, 2, num_layers=2, task="graph")(x, EDGES, batch=BATCH, batch_size=2, edge_attr=attr)
