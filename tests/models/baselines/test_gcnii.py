import math

import pytest
import torch
from baseline_cases import built, held_out_accuracy, normalized_adjacency, randomized
from hyperbolic_cases import EDGES, NODES

from hkconv.errors import InputError
from hkconv.models.baselines.gcnii import GCNII


@pytest.mark.parametrize("weighted", [True, False])
def test_equals_its_equations(weighted, dtype, generator):
    model = randomized(built(GCNII, alpha=0.3, theta=1.5, dropout=0.5).to(dtype), generator)
    x = torch.randn(NODES, 3, generator=generator).to(dtype)
    weight = torch.rand(EDGES.size(1), generator=generator).to(dtype) if weighted else None
    smooth = normalized_adjacency(torch.ones(EDGES.size(1), dtype=dtype) if weight is None else weight)
    first, last = model.network["first"], model.network["last"]
    start = h = (x @ first.weight.T + first.bias).relu()
    for number, conv in enumerate(model.network["convs"], start=1):
        beta = math.log(1.5 / number + 1)
        mapping = (1 - beta) * torch.eye(8, dtype=dtype) + beta * conv.weight1
        h = ((0.7 * smooth @ h + 0.3 * start) @ mapping).relu()
    torch.testing.assert_close(model(x, EDGES, weight), h @ last.weight.T + last.bias)


def test_learns_with_sixteen_layers(generator):
    """Two groups of nodes with eight times as many edges within as across; a node's own features are mostly noise."""
    y = torch.arange(200) % 2
    same = y.unsqueeze(0) == y.unsqueeze(1)
    edge_index = (torch.rand(200, 200, generator=generator) < torch.where(same, 0.08, 0.01)).nonzero().T
    x = 0.5 * (1 - 2.0 * y.unsqueeze(1)) + torch.randn(200, 2, generator=generator)
    model = GCNII(2, 16, 2, num_layers=16)
    test = torch.arange(200) % 4 > 1
    assert held_out_accuracy(model, lambda m: m(x, edge_index), y, test) > 0.9


def test_bad_options():
    with pytest.raises(InputError, match=r"alpha must lie in \[0, 1\], got 1.5"):
        built(GCNII, alpha=1.5)
    with pytest.raises(InputError, match="theta must be above 0, got 0"):
        built(GCNII, theta=0)
