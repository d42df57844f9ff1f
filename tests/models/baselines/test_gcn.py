import copy
import pickle

import pytest
import torch

from hkconv.errors import InputError
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


def test_is_permutation_equivariant(dtype, generator):
    model = GCN(3, 5, 2, num_layers=2).to(dtype)
    x = torch.randn(4, 3, generator=generator).to(dtype)
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(model(x[order], order.argsort()[EDGES]), model(x, EDGES)[order])


def test_copies_and_reset(generator):
    model = GCN(3, 5, 2, num_layers=2).eval()
    x = torch.randn(4, 3, generator=generator)
    before = model(x, EDGES)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(x, EDGES), before)
    model.reset_parameters()
    assert not torch.equal(model(x, EDGES), before)


def test_no_layers():
    with pytest.raises(InputError, match="num_layers must be at least 1, got 0"):
        GCN(3, 5, 2, num_layers=0)
