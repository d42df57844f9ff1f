import pytest
import torch
from baseline_cases import BATCH, batch_norm, built, called, held_out_accuracy, randomized, together
from hyperbolic_cases import EDGES, NODES
from torch_geometric.data import Data
from torch_geometric.nn import GINConv, GINEConv

from hkconv.models.baselines.gin import GIN, GINSum
from hkconv.models.baselines.sage import GraphSAGE


def literal_layers(model, x):
    """The features before and after every layer."""
    layers = [x]
    for conv in model.network["convs"]:
        h = layers[-1]
        h = torch.stack([h[i] + sum(h[j] for j, target in EDGES.T if target == i) for i in range(NODES)])
        for linear, norm in zip(conv.nn.lins, conv.nn.norms):
            h = batch_norm(norm, h @ linear.weight.T + linear.bias).relu()
        layers.append(h)
    return layers


@pytest.mark.parametrize("training", [True, False])
def test_nodes_equal_the_equations(training, dtype, generator):
    model = randomized(built(GIN).to(dtype), generator).train(training)
    x = torch.randn(NODES, 3, generator=generator).to(dtype)
    last = model.network["last"]
    torch.testing.assert_close(model(x, EDGES), literal_layers(model, x)[-1] @ last.weight.T + last.bias)


def test_graphs_are_classified_by_the_sums_of_every_layer(dtype, generator):
    model = randomized(built(GIN, "graph").to(dtype), generator)
    x = torch.randn(NODES, 3, generator=generator).to(dtype)
    classifiers = model.head.linear.weight.split([3, 8, 8], dim=1)
    expected = model.head.linear.bias.expand(2, 2)
    for layer, classifier in zip(literal_layers(model, x), classifiers):
        sums = torch.stack([layer[BATCH == 0].sum(0), layer[BATCH == 1].sum(0)])
        expected = expected + sums @ classifier.T
    torch.testing.assert_close(called(model, x), expected)


def test_the_sum_of_features_is_pygs_to_the_last_bit(dtype, generator, monkeypatch):
    x = torch.randn(40, 9, generator=generator).to(dtype)
    # In no order, with repeated edges and self loops.
    edges = torch.randint(40, (2, 500), generator=generator)
    theirs = GINConv(torch.nn.Identity())(x, edges)
    # Whatever PyG would gather, a row for each edge, is not gathered.
    monkeypatch.setattr(GINConv, "propagate", None)
    assert torch.equal(GINSum(torch.nn.Identity())(x, edges), theirs)


def test_layers_further_on_have_pygs_gradients_to_the_last_bit(dtype, generator):
    edges = torch.randint(40, (2, 500), generator=generator)
    gradients = []
    for layer in (GINSum, GINConv):
        x = torch.randn(40, 9, generator=generator.manual_seed(0)).to(dtype).requires_grad_()
        (layer(torch.nn.Identity())(x, edges) ** 2).sum().backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)


def ring(nodes, chord):
    """A ring without features of its own, or with one edge across it."""
    around = torch.arange(nodes)
    edges = torch.stack([around, (around + 1) % nodes])
    if chord:
        edges = torch.cat([edges, torch.tensor([[0], [nodes // 2]])], dim=1)
    return Data(x=torch.ones(nodes, 1), edge_index=torch.cat([edges, edges.flip(0)], dim=1))


def test_learns_from_degrees_which_a_mean_does_not_see(generator):
    y = torch.randint(2, (80,), generator=generator)
    sizes = torch.randint(6, 15, (80,), generator=generator)
    inputs, graphs = together([ring(int(size), bool(chord)) for size, chord in zip(sizes, y)])
    test = torch.arange(80) % 2 == 0
    model = GIN(1, 8, 2, num_layers=2, task="graph")
    assert held_out_accuracy(model, lambda m: m(*inputs, **graphs), y, test, steps=100) > 0.95
    blind = GraphSAGE(1, 8, 2, num_layers=2, task="graph")(*inputs, **graphs)
    torch.testing.assert_close(blind, blind[:1].expand_as(blind))


def test_a_single_node_leaves_the_running_statistics(generator):
    model = built(GIN, "graph")
    x = torch.randn(1, 3, generator=generator)
    before = {name: value.clone() for name, value in model.named_buffers()}
    trained = model(x, EDGES[:, :0])
    assert all(torch.equal(value, before[name]) for name, value in model.named_buffers())
    assert torch.equal(trained, model.eval()(x, EDGES[:, :0]))


def test_a_hub_and_a_large_graph_stay_finite(generator):
    leaves = torch.arange(1, 50_000)
    edge_index = torch.stack([leaves, torch.zeros_like(leaves)])
    x = torch.rand(50_000, 3, generator=generator)
    model = built(GIN, "graph")
    for edges in (edge_index, torch.cat([edge_index, edge_index.flip(0)], dim=1)):
        model.zero_grad()
        model(x, edges).logsumexp(1).sum().backward()
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
        assert model(x, edges).isfinite().all()
    assert model.eval()(x, edge_index).isfinite().all()


def test_attributes_make_it_gine(dtype, generator):
    model = randomized(built(GIN, edge_dim=2).to(dtype), generator)
    x, attr = (torch.randn(n, d, generator=generator).to(dtype) for n, d in ((NODES, 3), (EDGES.size(1), 2)))
    h = x
    for conv, of_edges in zip(model.network["convs"], model.network["of_edges"]):
        theirs = GINEConv(conv.nn)
        h = theirs(h, EDGES, attr @ of_edges.weight.T)
    last = model.network["last"]
    torch.testing.assert_close(model(x, EDGES, edge_attr=attr), h @ last.weight.T + last.bias)
