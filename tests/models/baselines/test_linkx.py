import copy

import pytest
import torch
from baseline_cases import adjacency, batch_norm, built, held_out_accuracy, randomized
from hyperbolic_cases import EDGES, NODES

from hkconv.errors import InputError
from hkconv.models.baselines.linkx import LINKX


def linear(layer, x):
    return x @ layer.weight.T + layer.bias


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_equals_its_equations(training, weighted, dtype, generator):
    model = randomized(built(LINKX).to(dtype), generator).train(training)
    network = model.network
    x = torch.randn(NODES, 3, generator=generator).to(dtype)
    weight = torch.rand(EDGES.size(1), generator=generator).to(dtype) if weighted else None
    matrix = adjacency(torch.ones(EDGES.size(1), dtype=dtype) if weight is None else weight)
    of_edges = matrix @ network.edge_lin.weight + network.edge_lin.bias
    of_features = linear(network.node_mlp.lins[0], x)
    mixed = linear(network.cat_lin1, of_edges) + linear(network.cat_lin2, of_features) + of_edges + of_features
    first, last = network.final_mlp.lins
    hidden = batch_norm(network.final_mlp.norms[0], linear(first, mixed.relu()).relu())
    torch.testing.assert_close(model(x, EDGES, weight), linear(last, hidden))


def test_numbers_of_nodes_are_those_of_the_weights(dtype, generator):
    model = built(LINKX).to(dtype).eval()
    x = torch.randn(NODES, 3, generator=generator).to(dtype)
    order = torch.tensor([2, 0, 4, 3, 1])
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.network.edge_lin.weight.copy_(model.network.edge_lin.weight[order])
    torch.testing.assert_close(other(x[order], order.argsort()[EDGES]), model(x, EDGES)[order])


def test_learns_from_who_the_neighbours_are(generator):
    """Nodes of one class are linked from the same ten nodes, and all features are alike."""
    y = torch.randint(2, (300,), generator=generator)
    source = 10 * y.unsqueeze(1) + torch.randint(10, (300, 3), generator=generator)
    edge_index = torch.stack([source.flatten(), torch.arange(300).repeat_interleave(3)])
    x = torch.ones(300, 4)
    model = LINKX(4, 16, 2, num_layers=2, num_nodes=300)
    accuracy = held_out_accuracy(model, lambda m: m(x, edge_index), y, torch.arange(300) % 2 == 0, steps=60)
    assert accuracy > 0.9


def test_belongs_to_one_graph(generator):
    with pytest.raises(InputError, match="x must have a row for each of the 5 nodes, got 4 rows"):
        built(LINKX)(torch.randn(4, 3, generator=generator), EDGES[:, :2])
    with pytest.raises(InputError, match="num_nodes must be at least 1, got 0"):
        built(LINKX, num_nodes=0)
