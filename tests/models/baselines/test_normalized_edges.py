import torch
from baseline_cases import adjacency, normalized_adjacency
from hyperbolic_cases import EDGES, NODES

from hkconv.models.baselines.normalized_edges import normalized_edges


def test_is_the_normalized_adjacency(dtype, generator):
    weight = torch.rand(EDGES.size(1), generator=generator).to(dtype)
    for given, same in ((None, torch.ones_like(weight)), (weight, weight)):
        edge_index, value = normalized_edges(EDGES, given, NODES, dtype)
        torch.testing.assert_close(adjacency(value, edge_index), normalized_adjacency(same))


def test_is_computed_once_while_the_tensor_is_the_same():
    edge_index = EDGES.clone()
    first = normalized_edges(edge_index, None, NODES, torch.float32)
    assert normalized_edges(edge_index, None, NODES, torch.float32) is first
    assert normalized_edges(edge_index, None, NODES, torch.float64)[1].dtype == torch.float64
    edge_index[0, 0] = 4
    found = normalized_edges(edge_index, None, NODES, torch.float32)
    assert found[0][0, 0] == 4


def test_gradient_reaches_the_weights(generator):
    weight = torch.rand(EDGES.size(1), generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda w: normalized_edges(EDGES, w, NODES, w.dtype)[1], weight)
