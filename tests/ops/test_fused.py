"""The fused operator against the reference in float64: values, every gradient, and what torch may ask of it.

Everything that can runs over both backends: native, and Triton, in its interpreter where there is no GPU.
"""

import math
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
import torch
from fused_cases import make_problem, outputs_and_gradients, random_edges, relative_error
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from hkconv.errors import InputError
from hkconv.geometry.lorentz import lift, ominus
from hkconv.nn import HKConv
from hkconv.ops import chunks, cpu, fused
from hkconv.ops.neighbors import Neighbors, neighbors

GRADIENT_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}
VALUE_TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}


def assert_equals_reference(problem, dtype, device):
    out, mass, gradients = outputs_and_gradients(problem, "fused", dtype, device)
    # The reference sees the same rounded numbers, in float64.
    rounded = {name: leaf.to(dtype).double() for name, leaf in problem.leaves.items()}
    expected_out, expected_mass, expected = outputs_and_gradients(replace(problem, leaves=rounded), "reference")
    assert relative_error(out, expected_out) < VALUE_TOLERANCE[dtype]
    assert relative_error(mass, expected_mass) < VALUE_TOLERANCE[dtype]
    # Some gradients vanish, as that of W for n = 1, where a direction is a sign: rounding is measured against the rest.
    floor = 0.01 * max(gradient.norm().item() for gradient in expected.values()) + 1e-3
    for name, gradient in gradients.items():
        assert relative_error(gradient, expected[name], floor) < GRADIENT_TOLERANCE[dtype], name


# Small, because Triton's interpreter takes a second for every few edges.
STAR = torch.stack([torch.arange(12), torch.zeros(12, dtype=torch.long)])
GRAPHS = {
    "plain": (random_edges(5, 5, 16), (5, 5)),
    "bipartite": (random_edges(5, 3, 12), (5, 3)),
    "isolated nodes": (random_edges(3, 3, 6), (5, 5)),
    "repeated edges": (torch.tensor([[0, 0, 0, 1, 1], [2, 2, 2, 2, 0]]), (3, 3)),
    "self loops": (torch.arange(4).repeat(2, 1), (4, 4)),
    "no edges": (torch.empty(2, 0, dtype=torch.long), (4, 4)),
    "one node": (torch.zeros(2, 3, dtype=torch.long), (1, 1)),
    "hub": (STAR, (12, 2)),
    "hub as source": (STAR.flip(0), (2, 12)),
}


with_and_without_relu = pytest.mark.parametrize("rectify", [False, True], ids=["linear", "relu"])


@pytest.mark.parametrize("graph", GRAPHS)
def test_equals_the_reference_on_every_kind_of_graph(graph, dtype, device):
    edge_index, size = GRAPHS[graph]
    assert_equals_reference(make_problem(edge_index, size, K=3, m=4, n=5, weighted=True), dtype, device)


@pytest.mark.parametrize(("K", "m", "n"), [(1, 3, 4), (4, 1, 3), (5, 3, 1), (1, 1, 1), (7, 5, 9), (2, 17, 33)], ids=str)
def test_equals_the_reference_for_odd_sizes(K, m, n, dtype, device):
    assert_equals_reference(make_problem(random_edges(5, 5, 14), (5, 5), K, m, n), dtype, device)


@pytest.mark.parametrize("relative", [True, False], ids=["relative", "direct"])
@pytest.mark.parametrize("weighted", [True, False], ids=["weighted", "equal"])
def test_equals_the_reference_for_every_option_and_curvature(relative, weighted, curvature, dtype, device):
    problem = make_problem(
        random_edges(4, 4, 12), (4, 4), K=3, m=4, n=4, weighted=weighted, relative=relative, curvature=curvature
    )
    assert_equals_reference(problem, dtype, device)


@with_and_without_relu
def test_equals_the_reference_without_biases(rectify, device):
    problem = make_problem(random_edges(4, 4, 12), (4, 4), 3, 4, 4, bias=False, rectify=rectify)
    assert_equals_reference(problem, torch.float64, device)


@pytest.mark.parametrize("relative", [True, False], ids=["relative", "direct"])
def test_a_map_without_a_direction_gives_the_origin(relative, dtype, device):
    """Where W x + b = 0 the gate has nothing to open, and the points of the other maps are averaged with the origin."""
    problem = make_problem(random_edges(4, 4, 12), (4, 4), K=3, m=4, n=4, relative=relative)
    problem.leaves["weight"][1] = problem.leaves["bias"][1] = 0
    out, mass, gradients = outputs_and_gradients(problem, "fused", dtype, device)
    expected_out, expected_mass, expected = outputs_and_gradients(problem, "reference")
    assert relative_error(out, expected_out) < VALUE_TOLERANCE[dtype]
    assert relative_error(mass, expected_mass) < VALUE_TOLERANCE[dtype]
    # A length does not matter where there is no direction; the map itself has no derivative there.
    for name in ("x_source", "x_target", "points", "gate_weight", "gate_bias", "log_scale"):
        assert relative_error(gradients[name], expected[name], 0.1) < 10 * GRADIENT_TOLERANCE[dtype], name
    assert all(gradient.isfinite().all() for gradient in gradients.values())


@pytest.mark.parametrize("relative", [True, False], ids=["relative", "direct"])
@pytest.mark.parametrize(("K", "m", "n"), [(1, 3, 4), (5, 3, 1), (7, 5, 9), (2, 17, 33), (3, 16, 16)], ids=str)
def test_relu_equals_the_reference(relative, K, m, n, dtype, device):
    edge_index = random_edges(9, 9, 70)
    assert_equals_reference(
        make_problem(edge_index, (9, 9), K, m, n, weighted=True, relative=relative, rectify=True), dtype, device
    )


def test_relu_of_any_curvature_equals_the_reference(curvature, dtype, device):
    problem = make_problem(random_edges(9, 9, 70), (9, 9), 3, 4, 4, curvature=curvature, rectify=True)
    assert_equals_reference(problem, dtype, device)


@pytest.mark.parametrize("act", ["relu", torch.relu], ids=["by name", "by function"])
@pytest.mark.parametrize("relative", [True, False], ids=["relative", "direct"])
def test_a_layer_with_relu_has_second_derivatives(act, relative):
    conv, x, edge_index = make_layer(act=act, relative=relative)
    found = []
    for backend in ("cpu", "reference"):
        conv.backend = backend
        point = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(conv(point, edge_index).square().sum(), point, create_graph=True)
        found.append([first.detach(), *torch.autograd.grad(first.square().sum(), conv.linear.weight)])
    for ours, expected in zip(*found):
        assert relative_error(ours, expected) < 1e-9


@with_and_without_relu
def test_hubs_cut_into_chunks_change_nothing(rectify, monkeypatch, device):
    monkeypatch.setattr(chunks, "SHORTEST", 4)
    monkeypatch.setattr(chunks, "LONGEST", 8)
    edge_index = torch.cat([random_edges(12, 12, 12), STAR, STAR.flip(0)], dim=1)
    problem = make_problem(edge_index, (12, 12), 3, 4, 5, weighted=True, rectify=rectify)
    assert_equals_reference(problem, torch.float64, device)


@with_and_without_relu
@pytest.mark.parametrize("device", ["triton"], indirect=True)
def test_programs_that_take_several_chunks_each_change_nothing(rectify, monkeypatch, device):
    monkeypatch.setattr("hkconv.ops.cuda.PROGRAMS", 3)
    problem = make_problem(random_edges(7, 2, 20), (7, 2), 3, 4, 5, weighted=True, rectify=rectify)
    assert_equals_reference(problem, torch.float64, device)


@pytest.mark.parametrize("graph", ["no edges", "isolated nodes", "bipartite"])
def test_relu_equals_the_reference_where_nodes_have_no_edges(graph, device):
    edge_index, size = GRAPHS[graph]
    problem = make_problem(edge_index, size, K=3, m=4, n=5, rectify=True)
    assert_equals_reference(problem, torch.float64, device)


def test_targets_whose_weights_all_vanish_count_their_neighbors_alike(device):
    problem = make_problem(random_edges(6, 6, 30), (6, 6), 3, 4, 5, weighted=True)
    problem.leaves["edge_weight"][problem.edge_index[1] < 3] = 0
    assert_equals_reference(problem, torch.float64, device)


def test_a_kernel_point_at_the_origin_meets_self_loops(device):
    problem = make_problem(torch.arange(6).repeat(2, 1), (6, 6), 3, 4, 5)
    problem.leaves["points"][0] = 0
    problem.leaves["x_target"].copy_(problem.leaves["x_source"])
    assert_equals_reference(problem, torch.float64, device)


@pytest.mark.parametrize("radius", [8.0, 20.0])
@pytest.mark.parametrize("shared", [True, False], ids=["one graph", "bipartite"])
def test_self_loops_far_out_are_right(radius, shared, device):
    """x ⊖ x is the origin wherever x is, for other neighbors beside it too."""
    edge_index = torch.tensor([[0, 1, 2, 3, 1, 2], [0, 1, 2, 3, 0, 1]])
    problem = make_problem(edge_index, (4, 4), K=3, m=4, n=5)
    space = torch.nn.functional.normalize(problem.leaves["x_source"], dim=-1) * math.sinh(radius)
    problem.leaves["x_source"] = space.float().double()
    problem.leaves["x_target"] = problem.leaves["x_source"] if shared else problem.leaves["x_source"].clone()
    out, _, _ = outputs_and_gradients(problem, "fused", torch.float32, device)
    expected, _, _ = outputs_and_gradients(problem, "reference")
    assert relative_error(out, expected) < 1e-6


@pytest.mark.parametrize("unit", [1e-40, 1e38], ids=str)
def test_tiny_and_huge_weights_leave_gradients_as_they_are(unit, device):
    """Only the gradient of the weights themselves may leave the range of float32, and never as NaN."""
    problem = make_problem(random_edges(3, 3, 8), (3, 3), 3, 4, 5)
    problem.grads[1].zero_()  # of the masses, which do have the unit of the weights
    _, _, expected = outputs_and_gradients(problem, "fused", torch.float32, device)
    problem.leaves["edge_weight"] = torch.full((8,), unit, dtype=torch.float64)
    for backend in ("fused", "reference"):
        out, _, found = outputs_and_gradients(problem, backend, torch.float32, device)
        assert out.isfinite().all()
        assert not found.pop("edge_weight").isnan().any()
        for name, gradient in found.items():
            assert relative_error(gradient, expected[name], 1e-2) < 1e-4, name


@pytest.mark.parametrize("field", ["source", "target_pointer"])
@pytest.mark.parametrize("bad", [-1, 10**8])
def test_a_structure_with_indices_outside_of_its_graph_is_refused_inside_the_operator(field, bad):
    conv, x, edge_index = make_layer(backend="cpu")
    structure = neighbors(edge_index, 7)
    getattr(structure, field)[3] = bad
    with pytest.raises(InputError, match=r"hkconv\.neighbors"):
        conv(x, structure)


def test_a_structure_with_sources_outside_of_its_graph_is_refused_in_the_backward_pass():
    conv, x, edge_index = make_layer(backend="cpu")
    structure = neighbors(edge_index, 7)
    out = conv(x, structure)
    structure.source.data[3] = 10**8
    with pytest.raises(InputError, match=r"hkconv\.neighbors"):
        out.sum().backward()


@pytest.mark.parametrize("seed", range(25))
def test_fuzz(seed, dtype, monkeypatch):
    """Random sizes, degrees and options on the native backend."""
    generator = torch.Generator().manual_seed(seed)
    sources, targets, K, m, n = (int(torch.randint(1, 20, (), generator=generator)) for _ in range(5))
    edges = int(torch.randint(0, 120, (), generator=generator))
    edge_index = random_edges(sources, targets, edges, seed)
    edge_index[1] = edge_index[1] ** 2 // targets  # some targets get many edges, some none
    problem = make_problem(
        edge_index, (sources, targets), K, m, n, weighted=seed % 2 == 0, relative=seed % 3 > 0, radius=2.0, seed=seed,
        rectify=seed % 5 == 0,
    )  # fmt: skip
    assert_equals_reference(problem, dtype, "cpu")
    monkeypatch.setattr(cpu, "LARGEST_MAP", 0)
    assert_equals_reference(problem, dtype, "cpu")


@pytest.mark.parametrize(("radius", "tolerance"), [(4.0, 2e-5), (8.0, 1e-3)])
@pytest.mark.parametrize("separation", [0.01, 0.3, 3.0])
def test_float32_is_right_far_from_the_origin(radius, tolerance, separation, device):
    """Neighbors at a given distance from their target, itself ``radius`` away from the origin."""
    generator = torch.Generator().manual_seed(1)
    m, n, K, count = 6, 6, 4, 8
    base = torch.nn.functional.normalize(torch.randn(count, m, generator=generator, dtype=torch.float64), dim=-1)
    x = lift(torch.sinh(torch.tensor(radius)) * base)
    step = torch.nn.functional.normalize(torch.randn(count, m, generator=generator, dtype=torch.float64), dim=-1)
    z = lift(torch.sinh(torch.tensor(separation)) * step)
    u = ominus(z, torch.cat([x[:, :1], -x[:, 1:]], -1))
    problem = make_problem(torch.arange(count).repeat(2, 1), (count, count), K, m, n)
    problem.leaves.update(x_source=u[:, 1:].float().double(), x_target=x[:, 1:].float().double())
    out, _, _ = outputs_and_gradients(problem, "fused", torch.float32, device)
    rounded = {name: leaf.float().double() for name, leaf in problem.leaves.items()}
    expected, _, _ = outputs_and_gradients(
        type(problem)(rounded, problem.edge_index, problem.size, True, problem.grads), "reference"
    )
    assert (out.cpu() - expected).abs().max() < tolerance


def test_points_at_one_radius_are_right(device):
    """Which of two points is nearer to the origin is then for rounding to say, and all coordinates must agree on it.

    On a GPU, threads that hold the same row may have rounded its norm differently, if the compiler lets them.
    """
    problem = make_problem(random_edges(20, 6, 60), (20, 6), K=4, m=16, n=16)
    for name in ("x_source", "x_target"):
        space = torch.nn.functional.normalize(problem.leaves[name], dim=-1) * math.sinh(4)
        problem.leaves[name] = space.float().double()
    assert_equals_reference(problem, torch.float32, device)


def test_finite_with_finite_gradients_for_points_as_far_as_float32_goes(device):
    far = torch.tensor([[1e15, 0, 0], [-1e15, 0, 0], [0, 1e15, 0], [0.0, 0, 0]], dtype=torch.float64)
    problem = make_problem(random_edges(4, 4, 16), (4, 4), 3, 3, 4)
    problem.leaves.update(x_source=far, x_target=far.clone())
    out, mass, gradients = outputs_and_gradients(problem, "fused", torch.float32, device)
    assert out.isfinite().all() and mass.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients.values())


# Coordinates of 1e6 are themselves known to 0.06.
@pytest.mark.parametrize(("scale", "tolerance"), [(1e2, 2e-5), (1e4, 3e-4), (1e6, 5e-3)])
@pytest.mark.parametrize("apart", [0.0, 1e-3])
def test_messages_far_out_and_close_together_keep_their_precision(scale, tolerance, apart, device):
    """Where directions of all kernel points and neighbors nearly agree, a difference of squares would be 0 or NaN.

    One target has enough edges to be a hub.
    """
    edge_index = torch.stack([torch.arange(100) % 6, torch.tensor([0, *[1] * 96, 2, 2, 3])])
    problem = make_problem(edge_index, (6, 4), 2, 3, 4)
    K, leaves = 2, problem.leaves
    leaves["weight"] *= apart
    leaves["bias"] = torch.tensor([3.0, -2.0, 1.0, 5.0], dtype=torch.float64).repeat(K, 1)
    leaves["log_scale"] = torch.full((K,), math.log(scale), dtype=torch.float64)
    rounded = {name: leaf.float().double() for name, leaf in leaves.items()}
    problem = type(problem)(rounded, problem.edge_index, problem.size, True, problem.grads)
    out, mass, gradients = outputs_and_gradients(problem, "fused", torch.float32, device)
    expected, expected_mass, _ = outputs_and_gradients(problem, "reference")
    assert ((out.cpu() - expected) / expected[:, :1]).abs().max() < tolerance
    assert ((mass.cpu() - expected_mass) / expected_mass).abs().max() < tolerance
    assert all(gradient.isfinite().all() for gradient in gradients.values())


@pytest.mark.parametrize("gate", [-87.5, -88.5, -200.0])
def test_gates_that_are_all_but_closed_give_the_origin_and_no_nan(gate, device):
    """Lengths have less than full precision there, and the inverse of their sum is infinite."""
    problem = make_problem(torch.tensor([[0, 1, 2], [0, 0, 1]]), (3, 2), 2, 4, 5)
    problem.leaves["gate_weight"].zero_()
    problem.leaves["gate_bias"].fill_(gate)
    problem.leaves["log_scale"].fill_(-2)
    out, mass, gradients = outputs_and_gradients(problem, "fused", torch.float32, device)
    torch.testing.assert_close(out.cpu(), lift(torch.zeros(2, 5)))
    torch.testing.assert_close(mass.cpu(), torch.tensor([2.0, 1.0]))
    assert all(gradient.isfinite().all() for gradient in gradients.values())


@pytest.mark.parametrize("size", [1e-19, 1e-22, 1e-30, 1e-40])
def test_points_that_are_all_but_equal_are_told_apart_or_not_but_give_no_nan(size, device):
    """The square of their gap has less than full precision, or is 0."""
    problem = make_problem(torch.tensor([[0, 1, 2], [0, 0, 1]]), (3, 2), 2, 4, 5)
    problem.leaves.update(x_source=size * torch.eye(3, 4, dtype=torch.float64), x_target=torch.zeros(2, 4).double())
    out, _, gradients = outputs_and_gradients(problem, "fused", torch.float32, device)
    expected, _, _ = outputs_and_gradients(problem, "reference")
    assert (out.cpu() - expected).abs().max() < 1e-6
    assert all(gradient.isfinite().all() for gradient in gradients.values())


@pytest.mark.parametrize("options", [{}, {"act": "relu"}], ids=str)
@pytest.mark.parametrize(
    "types",
    [("float64", "float32"), ("float32", "float64"), ("bfloat16", "float32"), ("float64", "float64", "float32")],
    ids=str,
)
def test_numbers_of_another_type_are_refused(types, options):
    """Kernels would read the bits of one as the other's, beyond their end too."""
    conv, x, edge_index = make_layer(**options)
    kind, *ends = (getattr(torch, name) for name in types)
    given = [x.to(end) for end in ends]
    with pytest.raises(InputError, match=r"must have one type, got \w+ and \w+"):
        conv.to(kind)(tuple(given) if len(given) > 1 else given[0], edge_index)


def test_nan_in_one_node_reaches_only_its_neighbors(device):
    problem = make_problem(torch.tensor([[0, 1, 2], [1, 2, 3]]), (5, 5), 3, 4, 5)
    problem.leaves["x_source"][0] = torch.nan
    out, _, _ = outputs_and_gradients(problem, "fused", torch.float32, device)
    assert out.isnan().any(-1).tolist() == [False, True, False, False, False]


def make_layer(**options):
    torch.manual_seed(0)
    conv = HKConv(4, 5, 3, **options).double()
    for parameter in conv.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    return conv, lift(torch.randn(7, 4, dtype=torch.float64)), random_edges(7, 7, 25)


@pytest.mark.parametrize("relative", [True, False])
def test_gradcheck(relative):
    conv, x, edge_index = make_layer(relative=relative, backend="cpu")
    weight = torch.rand(25, dtype=torch.float64, requires_grad=True)
    space = x[:, 1:].clone().requires_grad_()
    names = [name for name, _ in conv.named_parameters()]

    def layer(space, weight, *parameters):
        return torch.func.functional_call(conv, dict(zip(names, parameters)), (lift(space), edge_index, weight))

    assert torch.autograd.gradcheck(layer, (space, weight, *(p.detach().requires_grad_() for p in conv.parameters())))


@pytest.mark.parametrize("options", [{}, {"attention": "distance"}, {"attention": "distance", "mass": True}], ids=str)
def test_second_derivatives_equal_those_of_the_reference(options):
    conv, x, edge_index = make_layer(**options)
    space = x[:, 1:].clone().requires_grad_()
    found = []
    for backend in ("cpu", "reference"):
        conv.backend = backend
        (first,) = torch.autograd.grad(conv(lift(space), edge_index).square().sum(), space, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), space)[0])
    assert relative_error(*found) < 1e-9


@pytest.mark.parametrize("weighted", [True, False], ids=["weighted", "equal"])
@pytest.mark.parametrize("relative", [True, False], ids=["relative", "direct"])
def test_gradients_to_be_differentiated_again_are_the_same(relative, weighted):
    """Of targets with no edge, one edge, several, and several of which only one weighs anything."""
    edge_index = torch.tensor([[0, 1, 2, 3, 4, 0, 1], [1, 2, 2, 2, 3, 3, 3]])
    problem = make_problem(edge_index, (5, 4), K=3, m=4, n=5, weighted=weighted, relative=relative)
    if weighted:
        problem.leaves["edge_weight"][-2:] = 0
    expected = outputs_and_gradients(problem, "fused")[2]
    for name, gradient in outputs_and_gradients(problem, "fused", create_graph=True)[2].items():
        assert relative_error(gradient.detach(), expected[name]) < 1e-9, name


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_a_search_for_nan_finds_none_in_gradients_to_be_differentiated_again():
    """Not even where they lead nowhere, at targets without an edge."""
    problem = make_problem(torch.tensor([[0, 1], [1, 1]]), (3, 3), K=3, m=4, n=5, weighted=True)
    with torch.autograd.detect_anomaly():
        found = outputs_and_gradients(problem, "fused", create_graph=True)[2]
    assert all(gradient.isfinite().all() for gradient in found.values())


@pytest.mark.parametrize("k", [-1.0, -0.25, -4.0])
def test_layer_of_fixed_curvature_gives_the_same_by_every_backend(k, dtype):
    conv, x, edge_index = make_layer(curvature=k)
    conv, x = conv.to(dtype), lift(x[:, 1:].to(dtype), k)
    out = {}
    for backend in ("cpu", "reference"):
        conv.backend = backend
        out[backend] = conv(x, edge_index).detach()
    assert relative_error(out["cpu"], out["reference"]) < VALUE_TOLERANCE[dtype]


@pytest.mark.parametrize("options", [{}, {"relative": False}, {"mass": True}], ids=str)
def test_layer_gives_the_same_by_every_backend(options, dtype, device):
    conv, x, edge_index = make_layer(**options)
    conv, x = conv.to(device, dtype), x.to(device, dtype)
    found = []
    for backend in ("auto", "reference"):
        conv.backend = backend
        point = x.clone().requires_grad_()
        out = conv(point, edge_index.to(device))
        found.append([out, *torch.autograd.grad(out[:, 1:].square().sum(), [point, *conv.parameters()])])
    for fused_value, expected in zip(*found):
        assert relative_error(fused_value.detach(), expected.detach()) < GRADIENT_TOLERANCE[dtype]


@pytest.mark.parametrize("act", [None, "relu"])
def test_a_layer_that_is_computed_again_for_its_gradients_has_the_same(act):
    conv, x, edge_index = make_layer(act=act)
    found = []
    for call in (conv, partial(checkpoint, conv, use_reentrant=False)):
        point = x.clone().requires_grad_()
        found.append(torch.autograd.grad(call(point, edge_index).square().sum(), [point, *conv.parameters()]))
    assert all(torch.equal(one, other) for one, other in zip(*found))


def test_gradient_with_respect_to_x_lies_along_space_by_every_backend():
    conv, x, edge_index = make_layer()
    for backend in ("cpu", "reference"):
        conv.backend = backend
        point = x.clone().requires_grad_()
        conv(point, edge_index).sum().backward()
        assert (point.grad[:, 0] == 0).all() and (point.grad[:, 1:] != 0).any()


def test_same_bits_every_time(dtype, device):
    problem = make_problem(random_edges(4, 4, 30), (4, 4), 4, 6, 6, weighted=True)
    first = outputs_and_gradients(problem, "fused", dtype, device)
    second = outputs_and_gradients(problem, "fused", dtype, device)
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])
    assert all(torch.equal(first[2][name], second[2][name]) for name in first[2])


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_repeats_its_bits_and_agrees_with_one_thread(threads, monkeypatch):
    """Each thread has its own sums for sources and parameters."""
    monkeypatch.setattr(cpu, "WORTH_A_THREAD", 1)
    problem = make_problem(random_edges(50, 50, 600), (50, 50), 4, 6, 6, weighted=True)
    expected = outputs_and_gradients(problem, "reference", torch.float64)[2]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        first, second = (outputs_and_gradients(problem, "fused", torch.float64)[2] for _ in range(2))
    finally:
        torch.set_num_threads(before)
    for name, gradient in expected.items():
        assert torch.equal(first[name], second[name])
        assert relative_error(first[name], gradient) < GRADIENT_TOLERANCE[torch.float64], name


def test_takes_as_many_threads_as_torch(monkeypatch):
    from hkconv.ops import native

    asked = []
    call = native.call_typed
    take = {"aggregate_edges": 0, "pull_edges": 1}
    monkeypatch.setattr(native, "call_typed", lambda name, *a: asked.append(a[1 + take[name]]) or call(name, *a))
    problem = make_problem(random_edges(50, 50, 600), (50, 50), 4, 6, 6)
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            outputs_and_gradients(problem, "fused", torch.float32)
    finally:
        torch.set_num_threads(before)
    assert asked == [1, 1, 3, 3]


def call_arguments(weighted=True, relative=True):
    conv, x, edge_index = make_layer()
    weight = torch.rand(25, dtype=torch.float64) if weighted else None
    linear = {name: value.detach().requires_grad_() for name, value in conv.linear.named_tensors().items()}
    inputs = fused.Inputs(x.requires_grad_(), x, points=conv.points, edge_weight=weight, **linear)
    return (*inputs, *neighbors(edge_index, 7), relative, False)


@pytest.mark.parametrize("weighted", [True, False])
def test_operator_keeps_torchs_rules(weighted):
    torch.library.opcheck(torch.ops.hkconv.hk_conv, call_arguments(weighted))


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("points_too", [True, False])
def test_operator_of_the_gradients_keeps_torchs_rules(weighted, points_too):
    arguments = [value.detach() if torch.is_tensor(value) else value for value in call_arguments(weighted)]
    out, mass = torch.ops.hkconv.hk_conv(*arguments)
    gradients = (torch.randn_like(out), torch.randn_like(mass))
    torch.library.opcheck(torch.ops.hkconv.hk_conv_backward, (*arguments, out, mass, *gradients, points_too))


def test_a_record_of_what_is_done_to_tensors_can_be_played_for_others():
    *first, relative, _ = call_arguments()
    first = [value.detach() for value in first]
    split = len(fused.Inputs._fields)

    def aggregate(*values):
        return fused.hk_conv(fused.Inputs(*values[:split]), Neighbors(*values[split:]), relative)

    record = make_fx(aggregate, tracing_mode="fake")(*first)
    second = [value * 1.1 if value.is_floating_point() else value for value in first]
    for found, expected in zip(record(*second), aggregate(*second)):
        assert torch.allclose(found, expected, atol=1e-12)


def test_compiles_and_exports_as_one_graph():
    conv, x, edge_index = make_layer()
    graph = neighbors(edge_index, 7)
    expected = conv(x, graph)
    assert torch.allclose(torch.compile(conv, fullgraph=True)(x, graph), expected, atol=1e-12)
    exported = torch.export.export(conv, (x, edge_index))
    assert torch.allclose(exported.module()(x, edge_index), expected, atol=1e-12)
    nodes = [node for module in exported.graph_module.modules() for node in module.graph.nodes]
    assert any("hk_conv" in str(node.target) for node in nodes)


def test_compiled_gradients_equal_the_others():
    conv, x, edge_index = make_layer()
    graph = neighbors(edge_index, 7)
    found = []
    for layer in (conv, torch.compile(conv, fullgraph=True)):
        conv.zero_grad()
        layer(x, graph).square().sum().backward()
        found.append([parameter.grad.clone() for parameter in conv.parameters()])
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(*found))


@pytest.mark.parametrize("is_sorted", [True, False], ids=["neighbors", "edge_index"])
def test_functional_gradient_equals_autograd(is_sorted):
    conv, x, edge_index = make_layer()
    graph = neighbors(edge_index, 7) if is_sorted else edge_index
    parameters = {name: value.detach() for name, value in conv.named_parameters()}

    def loss(parameters):
        return torch.func.functional_call(conv, parameters, (x, graph)).square().sum()

    # First, for what is remembered of the edges must be found inside of it.
    functional = torch.func.grad(loss)(parameters)
    conv(x, graph).square().sum().backward()
    for name, gradient in functional.items():
        assert torch.allclose(gradient, conv.get_parameter(name).grad, atol=1e-12), name


def test_functional_derivative_along_a_direction_equals_the_gradients():
    conv, x, edge_index = make_layer()
    space, along = x[:, 1:], torch.ones_like(x[:, 1:])
    _, slope = torch.func.jvp(lambda space: conv(lift(space), edge_index).square().sum(), (space,), (along,))
    space.requires_grad_()
    conv(lift(space), edge_index).square().sum().backward()
    assert torch.allclose(slope, space.grad.sum())


def test_half_precision_inputs_and_autocast_compute_in_float32(device):
    conv, x, edge_index = make_layer()
    conv, x, edge_index = conv.float().to(device), x.to(device, torch.bfloat16), edge_index.to(device)
    expected = conv(lift(x[:, 1:].float()), edge_index)
    with torch.autocast(device, dtype=torch.bfloat16):
        out = conv(x, edge_index)
    assert out.dtype == torch.float32
    assert relative_error(out.detach(), expected.detach()) < 1e-6


def test_nothing_is_compiled_when_layers_are_imported():
    code = (
        "import sys, hkconv.nn, hkconv.models; sys.exit(bool({'hkconv.ops.cpu', 'hkconv.ops.cuda'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
