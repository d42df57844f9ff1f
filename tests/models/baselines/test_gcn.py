import pytest
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


@pytest.mark.parametrize("num_layers", [1, 3])
@pytest.mark.parametrize("task, shape", [("node", (4, 2)), ("graph", (2, 2)), ("link", (4,))])
def test_shapes(task, shape, num_layers, generator):
    model = GCN(3, 5, 2, num_layers=num_layers, task=task)
    x = torch.randn(4, 3, generator=generator)
    out = model(x, EDGES, batch=torch.tensor([0, 0, 0, 1]), batch_size=2, pairs=EDGES)
    assert out.shape == shape
    assert len(model.network.convs) == num_layers
