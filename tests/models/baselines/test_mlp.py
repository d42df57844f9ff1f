import torch

from hkconv.models import MLP

EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])


def test_equals_its_equation_and_ignores_edges(dtype, generator):
    model = MLP(3, 5, 2, num_layers=2, dropout=0.5).to(dtype).eval()
    x = torch.randn(4, 3, generator=generator).to(dtype)
    assert len(MLP(3, 5, 2, num_layers=3).network.lins) == 3
    first, last = model.network.lins
    expected = (x @ first.weight.T + first.bias).relu() @ last.weight.T + last.bias
    torch.testing.assert_close(model(x, EDGES), expected)
    assert torch.equal(model(x, EDGES), model(x, EDGES.flip(0), torch.rand(3)))
