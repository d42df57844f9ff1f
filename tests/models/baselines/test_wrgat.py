import copy
import math

import numpy as np
import pytest
import torch
from heterophily_cases import (
    assert_equivariant,
    fitted_accuracy,
    noisy_labels,
    random_graph,
)
from hyperbolic_cases import EDGES, NODES, close, randomized
from torch.nn import functional as F
from torch_geometric.utils import to_torch_csr_tensor

from hkconv.data import load
from hkconv.errors import InputError
from hkconv.models.baselines import wrgat
from hkconv.models.baselines.degree_sequences import ComparedPairs, compare_degrees
from hkconv.models.baselines.simple_graph import simple_graph
from hkconv.models.baselines.wrgat import WRGAT, computation_graph


def literal_relations(edge_index, weight, nodes, hops):
    """For each relation the neighbours of each node, with weights."""
    relations = [[[] for _ in range(nodes)] for _ in range(hops + 2)]
    for j, i, w in zip(*edge_index.tolist(), weight.tolist()):
        relations[0][i].append((j, w))
    pairs = compare_degrees(simple_graph(*edge_index, nodes), hops)
    for u, v, distance in zip(pairs.first.tolist(), pairs.second.tolist(), pairs.distance.tolist()):
        for level, f in enumerate(distance):
            if not math.isnan(f) and f < math.inf:
                relations[1 + level][u].append((v, math.exp(-f)))
                relations[1 + level][v].append((u, math.exp(-f)))
    for relation in relations[1:]:
        for i, neighbours in enumerate(relation):
            total = sum(w for _, w in neighbours)
            relation[i] = [(j, w / total) for j, w in neighbours]
    return relations


def literal_layer(layer, x, relations):
    """The equations of the layer, node by node, in float64."""
    p = {name: value.detach().double() for name, value in layer.named_parameters()}
    out = x @ p["root.weight"].T + p["root.bias"]
    for r, relation in enumerate(relations):
        mapped = x @ p["weight"][r]
        q, own = p["attention"][r].view(2, -1)
        for i, neighbours in enumerate(relation):
            share = [math.exp(F.leaky_relu(own @ mapped[i] + q @ mapped[j], 0.2)) for j, _ in neighbours]
            for (j, w), s in zip(neighbours, share):
                out[i] += w * s / sum(share) * mapped[j]
    return out


@pytest.mark.parametrize("hops", [0, 2])
def test_equals_its_equations(hops, dtype, generator):
    edge_index = random_graph(generator, 20, 30)[:, 3:]
    model = randomized(WRGAT(3, 4, 2, num_layers=2, dropout=0.5, hops=hops).to(dtype), generator)
    x = torch.randn(20, 3, generator=generator).to(dtype)
    weight = torch.rand(edge_index.size(1), generator=generator).to(dtype)
    for given, same in ((weight, weight), (None, torch.ones_like(weight))):
        relations = literal_relations(edge_index, same, 20, hops)
        first, last = model.network.convs
        expected = literal_layer(last, literal_layer(first, x.double(), relations).relu(), relations)
        torch.testing.assert_close(model(x, edge_index, given).double(), expected, **close(dtype))


def test_a_matrix_brings_its_weights(dtype, generator):
    model = randomized(WRGAT(3, 4, 2, num_layers=1).to(dtype), generator)
    x, weight = torch.randn(NODES, 3, generator=generator).to(dtype), torch.rand(2, generator=generator).to(dtype)
    edge_index = torch.tensor([[0, 1], [2, 2]])
    matrix = to_torch_csr_tensor(edge_index, weight, (NODES, NODES)).t().to_sparse_csr()
    torch.testing.assert_close(model(x, matrix), model(x, edge_index, weight))
    assert not torch.allclose(model(x, matrix), model(x, edge_index))


def test_weights_have_gradients(generator):
    model = randomized(WRGAT(2, 3, 2, num_layers=1).double(), generator)
    x = torch.randn(NODES, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(EDGES.size(1), generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, w: model(x, EDGES, w), (x, weight))


def test_learns_roles_that_edges_do_not_join(generator, monkeypatch):
    """Half of the nodes link to ten others, half to one, whoever they are; the feature is right for two in three.

    Without the edges between nodes of like structure no more than the feature is learned.
    """
    nodes = 240
    y = torch.arange(nodes) % 2
    ends = torch.arange(nodes).repeat_interleave(1 + 9 * y)
    others = torch.randint(nodes, ends.shape, generator=generator)
    edge_index = torch.cat([torch.stack([ends, others]), torch.stack([others, ends])], dim=1)
    x = noisy_labels(y, generator)
    train = torch.rand(nodes, generator=generator) < 0.5
    assert fitted_accuracy(WRGAT(1, 8, 2, num_layers=2), x, edge_index, y, train) > 0.9
    nobody = ComparedPairs(*np.empty((2, 0), np.int64), np.empty((0, 3)))
    monkeypatch.setattr(wrgat, "compare_degrees", lambda graph, hops: nobody)
    assert fitted_accuracy(WRGAT(1, 8, 2, num_layers=2), x, edge_index.clone(), y, train) < 0.75


def test_is_permutation_equivariant(dtype, generator):
    assert_equivariant(WRGAT(3, 8, 2, num_layers=2, hops=3), generator, dtype)


def test_a_node_that_hears_nobody_keeps_its_own_map(dtype, generator):
    model = randomized(WRGAT(3, 6, 2, num_layers=1).to(dtype), generator)
    x = torch.randn(1, 3, generator=generator).to(dtype)
    torch.testing.assert_close(model(x, EDGES[:, :0]), model.network.convs[0].root(x))


def test_reset_draws_every_layer_anew(generator):
    model = WRGAT(3, 6, 2, num_layers=2)
    before = copy.deepcopy(model.state_dict())
    model.reset_parameters()
    after = model.state_dict()
    assert not any(torch.equal(after[name], before[name]) for name in before)


def test_real_graph_gets_a_bounded_number_of_edges(real_data):
    graph = load("chameleon", root=real_data, num_splits=1).graph
    nodes = graph.num_nodes
    found = computation_graph(graph.edge_index, None, nodes, 2)
    relation = (found.edges.source // nodes).bincount(minlength=4)
    assert relation[0] == graph.edge_index.size(1)
    assert (relation[1:] <= 2 * nodes * math.ceil(math.log2(nodes))).all() and (relation[1:] > nodes).all()
    into = torch.zeros(4 * nodes, dtype=torch.float64).index_add(
        0, found.edges.target.long(), found.weight[found.edges.order]
    )[nodes:]
    torch.testing.assert_close(into[into > 0], torch.ones_like(into[into > 0]))


def test_what_cannot_be_built():
    with pytest.raises(InputError, match="hops must be at least 0, got -1"):
        WRGAT(3, 6, 2, num_layers=1, hops=-1)
