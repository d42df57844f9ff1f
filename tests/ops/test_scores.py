"""Squared distances along edges and the attention made of them, against plain PyTorch in float64.

Everything that can runs over both backends: native, and Triton, in its interpreter where there is no GPU.
"""

import shutil
from itertools import pairwise

import pytest
import torch
from fused_cases import relative_error

from hkconv.geometry.lorentz import dist, lift
from hkconv.nn import HKConv
from hkconv.ops import chunks, scores
from hkconv.ops.neighbors import neighbors

GRADIENT_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}
VALUE_TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-13}


def random_edges(sources, targets, edges, generator):
    return torch.stack([torch.randint(count, (edges,), generator=generator) for count in (sources, targets)])


def spaces(targets, sources, n, generator, scale=1.0):
    return [scale * torch.randn(count, n, generator=generator, dtype=torch.float64) for count in (targets, sources)]


def values_and_gradients(run, leaves, grad):
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    values = run(*leaves)
    return [values.detach(), *torch.autograd.grad(values, leaves, grad.to(values))]


def plain(graph, curvature=-1.0):
    """Squared distances in the order by target, in plain PyTorch, of points given by their space."""
    edges = graph.edges()

    def run(query, key):
        ends = lift(query, curvature).index_select(0, edges.target), lift(key, curvature).index_select(0, edges.source)
        return dist(*ends, curvature).square()

    return run


def fused(graph, curvature=-1.0):
    return lambda query, key: scores.square_distances(lift(query, curvature), lift(key, curvature), graph, curvature)


def assert_equals_plain(edge_index, points, dtype, device, curvature=-1.0):
    """Against float64 on the same rounded points."""
    query, key = (x.to(dtype) for x in points)
    size = (len(key), len(query))
    grad = torch.linspace(-1, 2, edge_index.size(1), dtype=torch.float64)
    graph = neighbors(edge_index.to(device), size)
    found = values_and_gradients(fused(graph, curvature), (query.to(device), key.to(device)), grad)
    double = plain(neighbors(edge_index, size), curvature)
    expected = values_and_gradients(double, (query.double(), key.double()), grad)
    assert all(value.dtype == dtype for value in found)
    assert relative_error(found[0], expected[0]) < VALUE_TOLERANCE[dtype]
    assert relative_error(found[1], expected[1]) < GRADIENT_TOLERANCE[dtype]
    assert relative_error(found[2], expected[2]) < GRADIENT_TOLERANCE[dtype]


@pytest.mark.parametrize("n", [1, 2, 5, 16, 33])
def test_equals_plain_distances_in_any_dimension(n, dtype, device, generator):
    assert_equals_plain(random_edges(9, 9, 40, generator), spaces(9, 9, n, generator), dtype, device)


def test_equals_plain_distances_for_any_curvature(curvature, dtype, device, generator):
    points = spaces(6, 6, 3, generator)
    assert_equals_plain(random_edges(6, 6, 20, generator), points, dtype, device, curvature)


@pytest.mark.parametrize("scale", [1e-3, 3.0, 10.0])
def test_equals_plain_distances_near_and_far(scale, dtype, device, generator):
    points = spaces(8, 8, 4, generator, scale)
    assert_equals_plain(random_edges(8, 8, 30, generator), points, dtype, device)


def test_nearby_points_keep_their_precision(dtype, device, generator):
    """Points at distance 1e-2 around one at radius 2, where 1 - <x, y> would keep no digit of a float32 gradient."""
    around = torch.tensor([3.0, -1.0, 2.0], dtype=torch.float64)
    points = [around + x for x in spaces(7, 7, 3, generator, 1e-2)]
    assert_equals_plain(random_edges(7, 7, 25, generator), points, dtype, device)


def test_bipartite(dtype, device, generator):
    assert_equals_plain(random_edges(11, 4, 30, generator), spaces(4, 11, 3, generator), dtype, device)


def test_isolated_nodes_get_no_gradient(dtype, device, generator):
    edge_index = random_edges(3, 3, 6, generator)
    points = spaces(8, 8, 3, generator)
    assert_equals_plain(edge_index, points, dtype, device)
    leaves = [x.to(device, dtype) for x in points]
    graph = neighbors(edge_index.to(device), 8)
    _, *gradients = values_and_gradients(fused(graph), leaves, torch.ones(6, device=device))
    assert all((gradient[3:] == 0).all() for gradient in gradients)


def test_hubs_split_into_chunks(dtype, device, generator, monkeypatch):
    monkeypatch.setattr(chunks, "SHORTEST", 4)
    monkeypatch.setattr(chunks, "LONGEST", 8)
    into, out_of = random_edges(30, 1, 45, generator), random_edges(1, 30, 37, generator)
    edge_index = torch.cat([into, out_of, random_edges(30, 30, 10, generator)], dim=1)
    assert_equals_plain(edge_index, spaces(30, 30, 3, generator), dtype, device)


@pytest.mark.parametrize("size", [(4, 3), (0, 3), (4, 0), (0, 0)])
def test_no_edges(size, dtype, device):
    edge_index = torch.empty(2, 0, dtype=torch.long)
    points = [torch.ones(count, 3, dtype=torch.float64) for count in reversed(size)]
    assert_equals_plain(edge_index, points, dtype, device)


@pytest.mark.parametrize("scale", [0.0, 1.0, 100.0])
def test_coinciding_points_have_no_distance_and_no_gradient(scale, dtype, device, generator):
    loops = torch.arange(6).repeat(2, 1)
    space = spaces(6, 6, 3, generator, scale)[0].to(device, dtype)
    found = values_and_gradients(fused(neighbors(loops.to(device), 6)), (space, space), torch.ones(6, device=device))
    assert all((value == 0).all() for value in found)


def test_gradient_is_smooth_where_points_meet(dtype, device):
    """d² is |q - k|² there to leading order, so the gradient is twice the step, even one whose square vanishes."""
    tiny = torch.finfo(dtype).tiny ** 0.75
    step = torch.tensor([[1e-12, 0.0], [0.0, -tiny]], dtype=dtype, device=device)
    graph = neighbors(torch.arange(2, device=device).repeat(2, 1), 2)
    _, to_query, to_key = values_and_gradients(fused(graph), (step, torch.zeros_like(step)), torch.ones(2))
    torch.testing.assert_close(to_query, 2 * step, rtol=1e-5, atol=0)
    torch.testing.assert_close(to_key, -2 * step, rtol=1e-5, atol=0)


def test_strided_inputs(device, generator):
    edge_index = random_edges(5, 5, 12, generator).to(device)
    query, key = (lift(x.to(device)) for x in spaces(5, 5, 3, generator))
    graph = neighbors(edge_index, 5)
    strided = [x.T.contiguous().T for x in (query, key)]
    leaves = [x.detach().requires_grad_() for x in strided]
    value = scores.square_distances(*leaves, graph)
    value.sum().backward()  # a gradient of stride 0
    expected = scores.square_distances(query, key, graph)
    assert torch.equal(value, expected)
    dense = values_and_gradients(lambda q, k: scores.square_distances(q, k, graph), (query, key), torch.ones(12))
    assert all(torch.equal(leaf.grad, gradient) for leaf, gradient in zip(leaves, dense[1:]))


def test_gradient_of_one_end_alone(device, generator):
    edge_index = random_edges(5, 5, 12, generator).to(device)
    query, key = (x.to(device) for x in spaces(5, 5, 3, generator))
    run, grad = fused(neighbors(edge_index, 5)), torch.ones(12, dtype=torch.float64, device=device)
    _, to_query, to_key = values_and_gradients(run, (query, key), grad)
    for create_graph in (False, True):
        leaf = query.detach().requires_grad_()
        (found,) = torch.autograd.grad(run(leaf, key), leaf, grad, create_graph=create_graph)
        torch.testing.assert_close(found.detach(), to_query, rtol=1e-9, atol=1e-12)
        leaf = key.detach().requires_grad_()
        (found,) = torch.autograd.grad(run(query, leaf), leaf, grad, create_graph=create_graph)
        torch.testing.assert_close(found.detach(), to_key, rtol=1e-9, atol=1e-12)


def test_gradcheck(generator):
    graph = neighbors(random_edges(4, 5, 9, generator), (4, 5))
    leaves = [x.requires_grad_() for x in spaces(5, 4, 3, generator)]
    assert torch.autograd.gradcheck(fused(graph), leaves)
    assert torch.autograd.gradgradcheck(fused(graph), leaves)


def test_gradient_to_be_differentiated_counts_a_point_at_both_ends_once(generator):
    graph = neighbors(random_edges(5, 5, 12, generator), 5)
    x = lift(spaces(5, 5, 3, generator)[0]).requires_grad_()
    square = scores.square_distances(x, x, graph)
    (once,) = torch.autograd.grad(square.sum(), x, retain_graph=True)
    (again,) = torch.autograd.grad(square.sum(), x, create_graph=True)
    torch.testing.assert_close(again.detach(), once, rtol=1e-9, atol=1e-12)


def large_problem(generator):
    """Enough work for several threads."""
    graph = neighbors(random_edges(200, 300, 20000, generator), (200, 300))
    leaves = [x.float() for x in spaces(300, 200, 8, generator)]
    return lambda: values_and_gradients(fused(graph), leaves, torch.linspace(-1, 1, 20000))


def test_same_bits_twice(device, dtype, generator):
    graph = neighbors(random_edges(6, 6, 30, generator).to(device), 6)
    leaves = [x.to(device, dtype) for x in spaces(6, 6, 3, generator)]
    runs = [values_and_gradients(fused(graph), leaves, torch.linspace(-1, 1, 30)) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(*runs))


def test_same_bits_for_any_number_of_threads(generator):
    run, before, found = large_problem(generator), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(run())
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(first, other) for values in zip(*found) for first, other in [values[:2], values[1:]])


def softmax_by_target(values, graph):
    """Target by target."""
    bounds = graph.target_pointer.tolist()
    return torch.cat([values[:0], *(values[a:b].softmax(0) for a, b in pairwise(bounds))])


@pytest.mark.parametrize("edges", [0, 1, 25])
def test_softmax_of_each_target(edges, dtype, generator):
    """Targets without edges among them, and scores whose exponentials overflow."""
    graph = neighbors(random_edges(9, 9, edges, generator), (9, 9))
    values = (300 * torch.randn(edges, generator=generator, dtype=torch.float64)).to(dtype)
    grad = torch.linspace(-1, 2, edges)
    found = values_and_gradients(lambda v: scores.segment_softmax(v, graph), [values], grad)
    expected = values_and_gradients(lambda v: softmax_by_target(v, graph), [values.double()], grad)
    tolerance = VALUE_TOLERANCE[dtype]
    for value, wanted in zip(found, expected):
        torch.testing.assert_close(value.double(), wanted, rtol=tolerance, atol=tolerance)


def test_softmax_can_be_differentiated_twice(generator):
    graph = neighbors(random_edges(4, 4, 10, generator), 4)
    values = torch.randn(10, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: scores.segment_softmax(v, graph), values)
    assert torch.autograd.gradgradcheck(lambda v: scores.segment_softmax(v, graph), values)


def make_layers(dtype=torch.float64, **options):
    """A layer on the fused path and its copy on the reference, with nothing left at zero."""
    layers = [HKConv(4, 3, 3, attention="distance", backend=name, **options).to(dtype) for name in ("cpu", "reference")]
    with torch.no_grad():
        for name, parameter in layers[0].named_parameters():
            if name != "curvature":
                parameter.add_(0.3 * torch.randn_like(parameter))
    layers[1].load_state_dict(layers[0].state_dict())
    return layers


def layer_problem(generator, curvature=-1.0):
    """Points and edges with self loops, repeated edges and, in node 6, a target without neighbors."""
    edge_index = torch.cat([random_edges(7, 6, 25, generator), torch.arange(3).repeat(2, 1)], dim=1)
    weight = torch.rand(28, generator=generator, dtype=torch.float64)
    weight[edge_index[1] == 2] = 0
    return lift(spaces(7, 7, 4, generator)[0], curvature), edge_index, weight


def layer_gradients(layer, x, edge_index, weight):
    curvature = layer.curvature
    leaves = [x[:, 1:].detach().requires_grad_(), *layer.parameters()]
    if weight is not None:
        leaves.append(weight.detach().requires_grad_())
    out = layer(lift(leaves[0], curvature), edge_index, None if weight is None else leaves[-1])
    return out.detach(), torch.autograd.grad((out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum(), leaves)


@pytest.mark.parametrize(
    "weighted, curvature, learned", [(False, -1.0, False), (True, -0.4, False), (False, -0.4, True), (True, -1.0, True)]
)
def test_layer_equals_the_reference(weighted, curvature, learned, device, generator):
    if device == "cuda":
        pytest.skip("the layers here are on the CPU")
    x, edge_index, weight = layer_problem(generator, curvature)
    given = torch.nn.Parameter(torch.tensor(curvature, dtype=torch.float64)) if learned else curvature
    found, expected = (
        layer_gradients(layer, x, edge_index, weight if weighted else None)
        for layer in make_layers(curvature=given, points="trainable", mass=True)
    )
    torch.testing.assert_close(found[0], expected[0], rtol=0, atol=1e-11)
    for gradient, wanted in zip(found[1], expected[1]):
        torch.testing.assert_close(gradient, wanted, rtol=1e-9, atol=1e-11)


def test_layer_stores_nothing_of_edges_times_dimension(generator):
    """What autograd keeps for the attention is a few numbers an edge, and the points."""
    T, E, n = 10, 5000, 8
    graph = neighbors(random_edges(T, T, E, generator), T)
    query, key = (lift(x).requires_grad_() for x in spaces(T, T, n, generator))
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        scores.attention(query, key, graph)
    assert kept
    assert max(kept) <= E


def operator_arguments(generator):
    graph = neighbors(random_edges(6, 5, 14, generator), (6, 5))
    return graph, [lift(x).requires_grad_() for x in spaces(5, 6, 3, generator)]


def test_operators_keep_torchs_rules(generator):
    graph, points = operator_arguments(generator)
    torch.library.opcheck(torch.ops.hkconv.edge_square_distances, (*points, *graph))
    grad = torch.linspace(-1, 1, 14, dtype=torch.float64)
    detached = [x.detach() for x in points]
    torch.library.opcheck(torch.ops.hkconv.edge_square_distances_backward, (*detached, *graph, grad))
    segments = graph.target_pointer, graph.target
    torch.library.opcheck(torch.ops.hkconv.edge_totals, (grad.requires_grad_(), *segments))


@pytest.fixture
def fresh_compiler():
    """All layers share one forward, of which torch keeps only so many compiled variants."""
    torch.compiler.reset()


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("weighted", [False, True])
def test_layer_compiles_as_one_graph(weighted, generator):
    x, edge_index, weight = layer_problem(generator)
    layer, _ = make_layers()
    weight = weight if weighted else None
    graph = neighbors(edge_index, 7)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    out, expected = compiled(x, graph, weight), layer(x, graph, weight)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-11)
    parameters = list(layer.parameters())
    found, wanted = (torch.autograd.grad(value.square().sum(), parameters) for value in (out, expected))
    for gradient, other in zip(found, wanted):
        torch.testing.assert_close(gradient, other, rtol=1e-9, atol=1e-11)


@pytest.mark.nightly
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.skipif(shutil.which("c++") is None, reason="torch.compile's default backend needs a C++ compiler")
def test_attention_compiles_with_the_default_backend(generator):
    graph, points = operator_arguments(generator)
    found, expected = (
        values_and_gradients(run, points, torch.linspace(-1, 1, 14))
        for run in (
            torch.compile(lambda query, key: scores.attention(query, key, graph), fullgraph=True),
            lambda query, key: scores.attention(query, key, graph),
        )
    )
    for value, wanted in zip(found, expected):
        torch.testing.assert_close(value, wanted, rtol=0, atol=1e-12)
