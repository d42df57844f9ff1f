import pytest
import torch
from baseline_cases import built, held_out_accuracy, randomized
from hyperbolic_cases import EDGES, NODES
from torch.nn import functional as F

from hkconv.errors import InputError
from hkconv.models.baselines.gat import GAT


def literal_heads(conv, x):
    """Every head of a layer, node by node."""
    mapped = (x @ conv.lin.weight.T).view(NODES, conv.heads, -1)
    rows = []
    for i in range(NODES):
        # A double edge counts twice, the node itself once, though node 3 has an edge to itself.
        near = [int(j) for j, target in EDGES.T if target == i and j != i] + [i]
        heads = []
        for k in range(conv.heads):
            own, other = conv.att_dst[0, k], conv.att_src[0, k]
            score = [F.leaky_relu(own @ mapped[i, k] + other @ mapped[j, k], 0.2) for j in near]
            share = torch.stack(score).softmax(0)
            heads.append(sum(share[n] * mapped[j, k] for n, j in enumerate(near)))
        rows.append(torch.stack(heads))
    return torch.stack(rows)


def test_equals_its_equations(dtype, generator):
    model = randomized(built(GAT, heads=4, dropout=0.5).to(dtype), generator)
    x = torch.randn(NODES, 3, generator=generator).to(dtype)
    first, last = model.network.convs
    hidden = F.elu(literal_heads(first, x).flatten(1) + first.bias)
    torch.testing.assert_close(model(x, EDGES), literal_heads(last, hidden).mean(1) + last.bias)


def test_learns_to_attend_to_the_neighbour_that_counts(generator):
    """Each node has one marked neighbour, whose sign is its label, and four others; its own features say nothing."""
    marked = torch.arange(400) < 100
    sign = 1 - 2.0 * torch.randint(2, (400,), generator=generator)
    x = torch.stack([marked.float(), sign, torch.ones(400)], dim=1)
    right = torch.randint(100, (400,), generator=generator)
    others = torch.randint(100, 400, (4, 400), generator=generator)
    edge_index = torch.stack([torch.cat([right, others.flatten()]), torch.arange(400).repeat(5)])
    model = GAT(3, 16, 2, num_layers=2)
    test = torch.arange(400) % 2 == 0
    accuracy = held_out_accuracy(model, lambda m: m(x, edge_index), (sign[right] > 0).long(), test, steps=150)
    assert accuracy > 0.9


def test_heads_must_divide_the_width():
    with pytest.raises(InputError, match="heads must be at least 1 and divide hidden_dim, got 3 heads for 8"):
        built(GAT, heads=3)
    with pytest.raises(InputError, match="heads must be at least 1 and divide hidden_dim, got 0 heads for 8"):
        built(GAT, heads=0)
    assert GAT(3, 5, 2, num_layers=1).network.convs[0].heads == 8


def test_attributes_change_the_attention(dtype, generator):
    model = randomized(built(GAT, heads=2, num_layers=1, edge_dim=2).to(dtype), generator)
    x, attr = (torch.randn(n, d, generator=generator).to(dtype) for n, d in ((NODES, 3), (EDGES.size(1), 2)))
    (conv,) = model.network.convs
    torch.testing.assert_close(model(x, EDGES, edge_attr=attr), conv(x, EDGES, attr))
    assert not torch.allclose(model(x, EDGES, edge_attr=attr), model(x, EDGES, edge_attr=0 * attr))
