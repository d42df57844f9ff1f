import torch
from baseline_cases import built, held_out_accuracy, randomized
from hyperbolic_cases import EDGES, NODES
from torch_geometric.nn import SAGEConv

from hkconv.models.baselines.sage import GraphSAGE


def literal_layer(conv, x):
    rows = []
    for i in range(NODES):
        near = [x[j] for j, target in EDGES.T if target == i]
        mean = sum(near) / len(near) if near else torch.zeros_like(x[0])
        rows.append(conv.own.weight @ x[i] + conv.own.bias + conv.other.weight @ mean)
    return torch.stack(rows)


def test_equals_its_equation(dtype, generator):
    model = randomized(built(GraphSAGE, dropout=0.5).to(dtype), generator)
    x = torch.randn(NODES, 3, generator=generator).to(dtype)
    first, last = model.network
    torch.testing.assert_close(model(x, EDGES), literal_layer(last, literal_layer(first, x).relu()))


def test_layer_is_that_of_pyg(dtype, generator):
    layer = built(GraphSAGE, num_layers=1).to(dtype).network[0]
    other = SAGEConv(3, 2).to(dtype)
    with torch.no_grad():
        other.lin_r.weight.copy_(layer.own.weight)
        other.lin_l.weight.copy_(layer.other.weight)
        other.lin_l.bias.copy_(layer.own.bias)
    x = torch.randn(NODES, 3, generator=generator).to(dtype)
    torch.testing.assert_close(layer(x, EDGES), other(x, EDGES))


def test_learns_to_compare_a_node_with_its_neighbours(generator):
    """The label is whether the node has another sign than its neighbours: neither alone says anything."""
    sign = 1 - 2.0 * torch.randint(2, (400,), generator=generator)
    group = [torch.nonzero(sign == s).squeeze() for s in (-1, 1)]
    side = torch.randint(2, (400,), generator=generator)
    source = torch.stack([group[s][torch.randint(len(group[s]), (3,), generator=generator)] for s in side.tolist()])
    edge_index = torch.stack([source.flatten(), torch.arange(400).repeat_interleave(3)])
    x = sign.unsqueeze(1) + 0.3 * torch.randn(400, 2, generator=generator)
    y = (side != (sign > 0)).long()
    model = GraphSAGE(2, 16, 2, num_layers=2)
    accuracy = held_out_accuracy(model, lambda m: m(x, edge_index), y, torch.arange(400) % 2 == 0, steps=150)
    assert accuracy > 0.9


def test_attributes_are_added_to_the_messages(dtype, generator):
    model = built(GraphSAGE, num_layers=1, edge_dim=2).to(dtype)
    x, attr = (torch.randn(n, d, generator=generator).to(dtype) for n, d in ((NODES, 3), (EDGES.size(1), 2)))
    conv, rows = model.network[0], []
    for i in range(NODES):
        near = [
            torch.relu(conv.other.weight @ x[j] + conv.of_edges.weight @ e)
            for (j, target), e in zip(EDGES.T, attr)
            if target == i
        ]
        mean = sum(near) / len(near) if near else torch.zeros(2, dtype=dtype)
        rows.append(conv.own.weight @ x[i] + conv.own.bias + mean)
    torch.testing.assert_close(model(x, EDGES, edge_attr=attr), torch.stack(rows))
