import pytest
import torch

from hkconv.models import MLP

EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])


def test_equals_its_equation_and_ignores_edges(dtype, generator):
    model = MLP(3, 5, 2, num_layers=2, dropout=0.5).to(dtype).eval()
    x = torch.randn(4, 3, generator=generator).to(dtype)
    first, last = model.network.lins
    expected = (x @ first.weight.T + first.bias).relu() @ last.weight.T + last.bias
    torch.testing.assert_close(model(x, EDGES), expected)
    assert torch.equal(model(x, EDGES), model(x, EDGES.flip(0), torch.rand(3)))


@pytest.mark.parametrize("num_layers", [1, 3])
@pytest.mark.parametrize("task, shape", [("node", (4, 2)), ("graph", (2, 2)), ("link", (3,))])
def test_shapes(task, shape, num_layers, generator):
    model = MLP(3, 5, 2, num_layers=num_layers, task=task)
    x = torch.randn(4, 3, generator=generator)
    out = model(x, EDGES, batch=torch.tensor([0, 0, 1, 1]), batch_size=2, pairs=EDGES)
    assert out.shape == shape
    assert len(model.network.lins) == num_layers
