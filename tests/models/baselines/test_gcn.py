import torch

from hkconv.models import GCN

EDGES = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]])


def test_equals_its_equation(dtype, generator):
    model = GCN(3, 5, 2, num_layers=2, dropout=0.5).to(dtype).eval()
    x = torch.randn(4, 3, generator=generator).to(dtype)
    weight = torch.rand(4, generator=generator).to(dtype)
    adjacency = torch.eye(4, dtype=dtype)
    adjacency[EDGES[1], EDGES[0]] += weight
    scale = adjacency.sum(1).rsqrt()
    normalized = scale[:, None] * adjacency * scale[None]
    first, last = model.network.convs
    hidden = (normalized @ x @ first.lin.weight.T + first.bias).relu()
    expected = normalized @ hidden @ last.lin.weight.T + last.bias
    torch.testing.assert_close(model(x, EDGES, weight), expected)


def test_attributes_are_added_to_the_messages(dtype, generator):
    model = GCN(3, 5, 2, num_layers=1, edge_dim=2).to(dtype).eval()
    x, attr = (torch.randn(n, d, generator=generator).to(dtype) for n, d in ((4, 3), (5, 2)))
    edges = torch.cat([EDGES, torch.tensor([[1], [1]])], dim=1)  # a self loop beside the added one
    (conv,) = model.network.convs
    looped = torch.cat([edges, torch.arange(4).expand(2, -1)], dim=1)
    degree = looped[1].bincount().to(dtype)
    expected = conv.bias.repeat(4, 1).detach()
    for (j, i), e in zip(looped.T.tolist(), [*attr, *torch.zeros(4, 2, dtype=dtype)]):
        message = torch.relu(conv.linear.weight @ x[j] + conv.of_edges.weight @ e)
        expected[i] += (message / (degree[i] * degree[j]).sqrt()).detach()
    torch.testing.assert_close(model(x, edges, edge_attr=attr), expected)
    weighted = model(x, edges, torch.ones(5, dtype=dtype), edge_attr=attr)
    torch.testing.assert_close(weighted, expected)
