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
    HGCN,
    HKN,
    LINKX,
    MLP,
    WRGAT,
    DirGNN,
    GeomGCN,
    GloGNN,
    GloGNNPlusPlus,
    GraphSAGE,
    HyboNet,
)
from hkconv.models.baselines.baseline import TaskHead

BASELINES = [GCN, MLP, GAT, GraphSAGE, GCNII, ACMGCN, DirGNN, GIN, GMT, LINKX, GeomGCN, WRGAT, GloGNN, GloGNNPlusPlus]
HYPERBOLIC = [HGCN, HKN, HyboNet]
CASES = [pytest.param(model, task, id=f"{model.__name__}-{task}") for model in BASELINES for task in model.tasks]


@pytest.mark.parametrize("model", [*BASELINES, *HYPERBOLIC])
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


@pytest.mark.parametrize("model", [*BASELINES, HGCN, HyboNet])
def test_width_must_be_positive(model):
    task = getattr(model, "tasks", ("node",))[0]
    with pytest.raises(InputError, match="hidden_dim must be at least 1, got 0"):
        model(5, 0, 3, num_layers=2, task=task)


@pytest.mark.parametrize("model", BASELINES)
def test_dropout_must_leave_something(model):
    with pytest.raises(InputError, match=r"dropout must lie in \[0, 1\), got 1"):
        built(model, model.tasks[0], dropout=1)


@pytest.mark.parametrize("model, task", [(GMT, "node"), (GMT, "link"), (LINKX, "graph"), (LINKX, "link")])
def test_task_that_a_system_does_not_have(model, task):
    with pytest.raises(InputError, match=f"task must be {model.tasks[0]} for {model.__name__}, got '{task}'"):
        built(model, task)


@pytest.mark.parametrize("model", [GAT, GraphSAGE, GIN])
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
def test_gradient_reaches_every_parameter(model, task, edges, generator):
    network = built(model, task, dropout=0.2)
    x = torch.randn(NODES, 3, generator=generator, requires_grad=True)
    out = called(network, x, edges)
    assert out.isfinite().all()
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
