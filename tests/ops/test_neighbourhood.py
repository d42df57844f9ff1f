import gc

import pytest
import torch
from torch_geometric.utils import to_torch_csr_tensor

from hkconv.models import HGCNConv, HyboNetConv
from hkconv.ops import neighbourhood as module
from hkconv.ops.edge_sums import neighbour_sum
from hkconv.ops.neighbors import neighbors
from hkconv.ops.neighbourhood import neighbourhood, sort_ends, without_loops

LAYERS = [HyboNetConv, HGCNConv]


def test_is_sorted_once_while_the_tensor_is_the_same():
    edge_index = torch.tensor([[0, 1], [1, 2]])
    first = neighbourhood(edge_index, None, 3)
    assert neighbourhood(edge_index, None, 3) is first
    assert neighbourhood(edge_index.clone(), None, 3) is not first
    assert neighbourhood(edge_index, None, 4) is not first


def test_self_loops_are_added_and_both_orders_agree():
    edges = neighbourhood(torch.tensor([[2, 0, 0], [1, 2, 0]]), None, 3)
    assert edges.target.tolist() == [0, 0, 1, 1, 2, 2]
    assert edges.source.tolist() == [0, 0, 2, 1, 0, 2]
    assert edges.start.tolist() == [0, 2, 4, 6]
    assert edges.source[edges.by_source.long()].tolist() == [0, 0, 0, 1, 2, 2]
    assert edges.source_start.tolist() == [0, 3, 4, 6]
    assert torch.equal(edges.target_by_source, edges.target[edges.by_source.long()])
    assert edges.weights(torch.tensor([5.0, 6.0, 7.0]), torch.float32).tolist() == [7, 1, 5, 1, 6, 1]


def test_given_ends_are_all_the_edges():
    edges = sort_ends(torch.tensor([2, 0, 0]), torch.tensor([1, 2, 0]), 3)
    assert list(zip(edges.source.tolist(), edges.target.tolist())) == [(0, 0), (2, 1), (0, 2)]
    assert edges.order.tolist() == [2, 0, 1]


@pytest.mark.parametrize("layer", LAYERS)
def test_edges_and_weights_written_in_place_are_seen(layer, generator):
    conv = layer(2, 2)
    x = torch.nn.functional.pad(torch.randn(3, 2, generator=generator), (1, 0))
    x[:, 0] = (1 + x[:, 1:].square().sum(-1)).sqrt()
    edge_index, weight = torch.tensor([[0, 1], [1, 2]]), torch.rand(2, generator=generator)
    conv(x, edge_index, weight)
    edge_index[0, 0], weight[1] = 2, 0.9
    assert torch.equal(conv(x, edge_index, weight), conv(x, edge_index.clone(), weight.clone()))


@pytest.mark.parametrize("layer", LAYERS)
def test_takes_every_form_of_edges(layer, generator):
    conv = layer(2, 2)
    x = torch.nn.functional.pad(torch.zeros(3, 2), (1, 0), value=1.0)
    edge_index, weight = torch.tensor([[0, 1], [1, 2]]), torch.rand(2, generator=generator)
    matrix = to_torch_csr_tensor(edge_index, weight, (3, 3)).t().to_sparse_csr()
    expected = conv(x, edge_index, weight)
    torch.testing.assert_close(conv(x, edge_index.int(), weight), expected)
    torch.testing.assert_close(conv(x, matrix), expected)
    with torch.inference_mode():
        torch.testing.assert_close(conv(x, edge_index.clone(), weight.clone()), expected)


def test_without_loops_has_the_given_edges_in_both_orders_and_no_others():
    edges = without_loops(neighbors(torch.tensor([[4, 0, 2, 4], [1, 2, 0, 0]]), (5, 3)))
    assert edges.target.tolist() == [0, 0, 1, 2]
    assert edges.source.tolist() == [2, 4, 4, 0]
    assert edges.order.tolist() == [2, 3, 0, 1]
    assert edges.start.tolist() == [0, 2, 3, 4]
    assert edges.source[edges.by_source.long()].tolist() == [0, 2, 4, 4]
    assert edges.source_start.tolist() == [0, 1, 1, 2, 2, 4]
    assert edges.target_by_source.tolist() == [2, 0, 0, 1]
    assert edges.num_nodes == 3 and edges.given_weight is None


def test_without_loops_keeps_a_loop_that_is_given():
    edges = without_loops(neighbors(torch.tensor([[1, 0], [1, 1]]), 2))
    assert list(zip(edges.source.tolist(), edges.target.tolist())) == [(1, 1), (0, 1)]


def test_sums_without_loops_go_from_sources_to_targets(generator):
    edge_index = torch.tensor([[4, 0, 2, 4, 4], [1, 2, 0, 0, 0]])
    found = neighbors(edge_index, (5, 4))
    x = torch.randn(5, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(5, generator=generator, dtype=torch.float64, requires_grad=True)

    def run(x, weight):
        return neighbour_sum(x, weight[found.order.long()], without_loops(found))

    source, target = edge_index
    expected = torch.zeros(4, 3, dtype=torch.float64).index_add(0, target, weight[:, None] * x[source])
    torch.testing.assert_close(run(x, weight), expected)
    assert torch.autograd.gradcheck(run, (x, weight))
    plain = torch.zeros(4, 3, dtype=torch.float64).index_add(0, target, x[source])
    torch.testing.assert_close(neighbour_sum(x, None, without_loops(found)), plain)


def test_without_loops_is_remembered_as_long_as_the_neighbors_live():
    found = neighbors(torch.tensor([[0, 1], [1, 2]]), 3)
    gc.collect()
    before, first = len(module._loopless), without_loops(found)
    assert without_loops(found) is first and len(module._loopless) == before + 1
    assert without_loops(neighbors(torch.tensor([[0, 1], [1, 2]]), 3)) is not first
    del found
    gc.collect()
    assert len(module._loopless) == before
    assert first.order.tolist() == [0, 1]
