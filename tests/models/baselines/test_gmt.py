import math

import pytest
import torch
from baseline_cases import BATCH, built, called, held_out_accuracy, normalized_adjacency, randomized, together
from hyperbolic_cases import EDGES, NODES
from torch.nn import functional as F
from torch_geometric.data import Data

from hkconv.errors import InputError
from hkconv.models.baselines.gmt import GMT


def literal_attention(block, q, y):
    """A block of the set transformer, one head at a time."""
    width, heads = q.size(1), block.heads
    maps = zip(block.attn.in_proj_weight.chunk(3), block.attn.in_proj_bias.chunk(3), (q, y, y))
    query, key, value = ((z @ weight.T + bias).chunk(heads, dim=1) for weight, bias, z in maps)
    share = [(a @ b.T / math.sqrt(width / heads)).softmax(1) for a, b in zip(query, key)]
    joined = torch.cat([s @ v for s, v in zip(share, value)], dim=1)
    out = joined @ block.attn.out_proj.weight.T + block.attn.out_proj.bias
    u = literal_layer_norm(block.layer_norm1, q + out)
    return literal_layer_norm(block.layer_norm2, u + (u @ block.lin.weight.T + block.lin.bias).relu())


def literal_layer_norm(norm, x):
    centred = x - x.mean(1, keepdim=True)
    return norm.weight * centred / (centred.square().mean(1, keepdim=True) + norm.eps).sqrt() + norm.bias


def literal_pool(pool, y):
    return literal_attention(pool.mab, pool.seed[0], (y @ pool.lin.weight.T + pool.lin.bias).relu())


def test_equals_its_equations(dtype, generator):
    model = randomized(built(GMT, "graph", heads=4, num_seeds=3, dropout=0.5).to(dtype), generator)
    x = torch.randn(NODES, 3, generator=generator).to(dtype)
    weight = torch.rand(EDGES.size(1), generator=generator).to(dtype)
    smooth = normalized_adjacency(weight)
    layers = [x]
    for conv in model.network["convs"]:
        layers.append((smooth @ layers[-1] @ conv.lin.weight.T + conv.bias).relu())
    h = torch.cat(layers[1:], dim=1)
    pool = model.network["pool"]
    (between,) = pool.encoders
    for graph in range(2):
        few = literal_pool(pool.pma1, h[graph == BATCH])
        z = literal_pool(pool.pma2, literal_attention(between.mab, few, few))
        found = model(x, EDGES, weight, batch=BATCH, batch_size=2)[graph]
        torch.testing.assert_close(found, (z @ model.head.linear.weight.T + model.head.linear.bias)[0])


def test_learns_to_compare_the_nodes_of_a_graph(generator):
    """All nodes have one sign, of either kind, or every second has the other: no mean of what nodes or their
    neighbours are tells which, for edges run between nodes of the same sign."""
    y = torch.randint(2, (100,), generator=generator)
    graphs = []
    for label, size in zip(y.tolist(), torch.randint(6, 12, (100,), generator=generator).tolist()):
        node = torch.arange(size)
        sign = 1 - 2 * torch.randint(2, (1,), generator=generator).expand(size) if label else 1 - 2 * (node % 2)
        x = sign.unsqueeze(1) + 0.3 * torch.randn(size, 2, generator=generator)
        graphs.append(Data(x=x, edge_index=torch.stack([node[:-2], node[2:]])))
    inputs, batch = together(graphs)
    model = GMT(2, 8, 2, num_layers=2, task="graph")
    test = torch.arange(100) % 2 == 0
    assert held_out_accuracy(model, lambda m: m(*inputs, **batch), y, test, steps=100, lr=0.005) > 0.9


def test_other_graphs_of_the_batch_change_nothing(dtype, generator):
    model = randomized(built(GMT, "graph").to(dtype), generator)
    x = torch.randn(NODES, 3, generator=generator).to(dtype)
    alone = model(x[:3], EDGES[:, (EDGES < 3).all(0)])
    torch.testing.assert_close(called(model, x)[:1], alone)


def test_a_graph_without_nodes_is_finite(generator):
    model = built(GMT, "graph")
    x = torch.randn(NODES, 3, generator=generator)
    out = model(x, EDGES, batch=2 * BATCH, batch_size=4)
    F.cross_entropy(out, torch.tensor([0, 1, 1, 0])).backward()
    assert out.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_bad_options():
    message = r"heads must be at least 1 and divide num_layers \* hidden_dim, got 3 heads for 16"
    with pytest.raises(InputError, match=message):
        built(GMT, "graph", heads=3)
    with pytest.raises(InputError, match="num_seeds must be at least 1, got 0"):
        built(GMT, "graph", num_seeds=0)
