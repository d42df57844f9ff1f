import pytest
import torch
from hyperbolic_cases import EDGES, NODES

from hkconv.engine.reproducibility import deterministic_algorithms
from hkconv.ops import edge_sums
from hkconv.ops.neighbors import neighbors, neighbors_with_loops


@pytest.fixture(params=[3, 2**14], ids=["blocks", "one block"], autouse=True)
def block(request, monkeypatch):
    monkeypatch.setattr(edge_sums, "BLOCK", request.param)


@pytest.fixture
def edges():
    return neighbors_with_loops(EDGES, None, NODES, torch.float64)[0]


def assert_equal_with_gradients(function, plain, *inputs):
    torch.testing.assert_close(function(*inputs), plain(*inputs))
    assert torch.autograd.gradcheck(function, inputs)


def drawn(generator, *shape):
    return torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)


def test_sum_over_neighbors(edges, generator):
    def plain(x, weight):
        return torch.zeros_like(x).index_add(0, edges.target, weight.unsqueeze(-1) * x[edges.source])

    x, weight = drawn(generator, NODES, 3), drawn(generator, edges.source.numel())
    assert_equal_with_gradients(lambda x, w: edge_sums.neighbor_sum(x, w, edges), plain, x, weight)
    assert_equal_with_gradients(
        lambda x: edge_sums.neighbor_sum(x, None, edges), lambda x: plain(x, torch.ones_like(weight)), x
    )


def test_values_along_edges(edges, generator):
    source, target = edges.source, edges.target
    x, y = drawn(generator, NODES, 3), drawn(generator, NODES)
    assert_equal_with_gradients(
        lambda x, z: edge_sums.square_distance(x, z, edges),
        lambda x, z: (x[source] - z[target]).square().sum(-1),
        x,
        drawn(generator, NODES, 3),
    )
    assert_equal_with_gradients(
        lambda x: edge_sums.square_distance(x, x, edges), lambda x: (x[source] - x[target]).square().sum(-1), x
    )
    assert_equal_with_gradients(lambda y: edge_sums.at_source(y, edges), lambda y: y[source], y)
    assert_equal_with_gradients(lambda y: edge_sums.at_target(y, edges), lambda y: y[target], y)


def test_sum_and_maximum_at_targets(edges, generator):
    value = drawn(generator, edges.source.numel())
    empty = torch.zeros(NODES, dtype=torch.float64)
    assert_equal_with_gradients(
        lambda v: edge_sums.target_sum(v, edges), lambda v: empty.index_add(0, edges.target, v), value
    )
    expected = [value[edges.target == node].max().item() for node in range(NODES)]
    assert edge_sums.target_max(value, edges).tolist() == expected


def test_sums_go_from_sources_to_targets(generator):
    edge_index = torch.tensor([[4, 0, 2, 4, 4], [1, 2, 0, 0, 0]])
    found = neighbors(edge_index, (5, 4))
    x = torch.randn(5, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(5, generator=generator, dtype=torch.float64, requires_grad=True)

    def run(x, weight):
        return edge_sums.neighbor_sum(x, weight[found.order.long()], found)

    source, target = edge_index
    expected = torch.zeros(4, 3, dtype=torch.float64).index_add(0, target, weight[:, None] * x[source])
    torch.testing.assert_close(run(x, weight), expected)
    assert torch.autograd.gradcheck(run, (x, weight))
    plain = torch.zeros(4, 3, dtype=torch.float64).index_add(0, target, x[source])
    torch.testing.assert_close(edge_sums.neighbor_sum(x, None, found), plain)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_sums_on_a_gpu_repeat_to_the_last_bit_where_that_is_asked_for():
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(3000, (2, 200_000), generator=generator).cuda()
    x = torch.randn(3000, 33, generator=generator).cuda().requires_grad_()
    edges = neighbors(edge_index, 3000)
    weight = torch.rand(edges.source.numel(), generator=generator).cuda()
    with deterministic_algorithms():
        runs = []
        for _ in range(5):
            out = edge_sums.neighbor_sum(x, weight, edges)
            runs.append((out, torch.autograd.grad(out.square().sum(), x)[0]))
    for out, gradient in runs[1:]:
        assert torch.equal(out, runs[0][0]) and torch.equal(gradient, runs[0][1])


def test_mapped_over_networks_they_are_the_same(edges, generator):
    x, value = drawn(generator, 2, NODES, 3), drawn(generator, 2, edges.source.numel())
    cases = [
        (lambda x, v: edge_sums.neighbor_sum(x, v, edges), (x, value)),
        (lambda x: edge_sums.neighbor_sum(x, None, edges), (x,)),
        (lambda x: edge_sums.square_distance(x, x + 1, edges), (x,)),
        (lambda y: edge_sums.at_source(y, edges) * edge_sums.at_target(y, edges), (x[..., 0],)),
        (lambda v: edge_sums.target_sum(v, edges), (value,)),
        (lambda v: edge_sums.target_max(v, edges), (value.detach(),)),
    ]
    for function, inputs in cases:
        mapped = torch.func.vmap(function)(*inputs)
        one_by_one = torch.stack([function(*(each[row] for each in inputs)) for row in range(2)])
        torch.testing.assert_close(mapped, one_by_one)
        if mapped.requires_grad:
            found, expected = (
                torch.autograd.grad(out.sin().sum(), inputs[0], retain_graph=True) for out in (mapped, one_by_one)
            )
            torch.testing.assert_close(found, expected)
