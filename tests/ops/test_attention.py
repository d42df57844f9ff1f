"""The fused operator of attention against its reference in float64: values, every gradient, memory.

Everything that can runs over both backends: native, and Triton, in its interpreter where there is no GPU.
"""

import pytest
import torch
from fused_cases import relative_error

from hkconv.geometry.lorentz import lift
from hkconv.ops import attention, reference

GRADIENT_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}
VALUE_TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-11}
POINTS = ("query", "key", "value", "own", "points")


@pytest.fixture(params=["kernel", "centroid"])
def aggregation(request):
    return request.param


def make_leaves(H, B, T, S, n, K, *, radius=1.0, curvature=-1.0, seed=0):
    """Everything with a gradient by name, in float64, points by their space; without ``own`` for K = 0."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def points(length):
        distance = radius * torch.rand(H, B, length, 1, generator=generator, dtype=torch.float64)
        return torch.sinh(distance) * torch.nn.functional.normalize(normal(H, B, length, n), dim=-1)

    leaves = {"query": points(T), "key": points(S), "value": points(S)}
    leaves["curvature"] = torch.tensor(curvature, dtype=torch.float64)
    if K:
        leaves |= {
            "own": points(T),
            "points": 0.8 * normal(K, n),
            "weight": 0.5 * normal(H, K, n, n + 1),
            "bias": 0.3 * normal(H, K, n),
            "gate_weight": 0.3 * normal(H, K, n + 1),
            "gate_bias": 0.3 * normal(H, K),
            "log_scale": 0.3 * normal(H, K) + 0.5,
        }
    return leaves


def output_and_gradients(attend, leaves, dtype=torch.float64, device="cpu", shared=False, **masks):
    """The outputs and the gradient of every leaf. ``shared`` values are also those of the queries, as in a layer."""
    leaves = {name: leaf.to(device, dtype).detach().requires_grad_() for name, leaf in leaves.items()}
    curvature = leaves["curvature"]
    given = {name: lift(leaves[name], curvature) for name in POINTS if name in leaves}
    if shared:
        given["own"] = given["value"]
    if "weight" in leaves:
        given["linear"] = {name: leaves.get(name) for name in attention.LINEAR}
    masks = {name: mask.to(device) if isinstance(mask, torch.Tensor) else mask for name, mask in masks.items()}
    out = attend(**given, **masks, curvature=curvature)
    generator = torch.Generator().manual_seed(9)
    cotangent = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out)
    found = torch.autograd.grad(out, list(leaves.values()), cotangent, allow_unused=True)
    return out.detach(), {name: grad for name, grad in zip(leaves, found) if grad is not None}


def assert_equals_reference(leaves, dtype, device, **options):
    out, gradients = output_and_gradients(attention.attend, leaves, dtype, device, **options)
    # The reference sees the same rounded numbers, in float64.
    rounded = {name: leaf.to(dtype).double() for name, leaf in leaves.items()}
    expected_out, expected = output_and_gradients(reference.attend, rounded, **options)
    assert relative_error(out, expected_out) < VALUE_TOLERANCE[dtype]
    assert gradients.keys() == expected.keys()
    floor = 0.01 * max(gradient.norm().item() for gradient in expected.values()) + 1e-3
    for name, gradient in gradients.items():
        assert relative_error(gradient, expected[name], floor) < GRADIENT_TOLERANCE[dtype], name


# Small, because Triton's interpreter takes a second for every few queries.
PADDING = torch.tensor([[False] * 4, [False, True, False, True]])
EVERYTHING = torch.tensor([[True] * 4, [False] * 4])
CASES = {
    "two heads": ((2, 1, 3, 4), {}),
    "shared and causal": ((1, 1, 4, 4), {"causal": True, "shared": True}),
    "padded": ((1, 2, 2, 4), {"padding": PADDING}),
    "causal and padded": ((2, 2, 2, 4), {"causal": True, "padding": PADDING}),
    "one step": ((1, 2, 1, 4), {"causal": True}),
    "all padding": ((1, 2, 2, 4), {"padding": EVERYTHING}),
}


@pytest.mark.parametrize("case", CASES)
def test_equals_the_reference_under_every_mask(case, aggregation, device):
    sizes, options = CASES[case]
    if aggregation == "centroid":
        options = {name: value for name, value in options.items() if name != "shared"}
    leaves = make_leaves(*sizes, 4, 3 if aggregation == "kernel" else 0)
    assert_equals_reference(leaves, torch.float64, device, **options)


@pytest.mark.parametrize(("n", "K"), [(1, 1), (3, 5), (17, 4), (5, 0)], ids=str)
def test_equals_the_reference_for_odd_sizes(n, K, dtype, device):
    assert_equals_reference(make_leaves(1, 1, 2, 3, n, K), dtype, device)


@pytest.mark.parametrize("masks", [{}, {"causal": True}], ids=["all", "causal"])
def test_equals_the_reference_over_several_tiles(masks, aggregation, dtype, device):
    length, K = (19, 2) if aggregation == "kernel" else (37, 0)
    leaves = make_leaves(1, 2, length, length, 3, K)
    padding = torch.rand(2, length, generator=torch.Generator().manual_seed(3)) < 0.3
    assert_equals_reference(leaves, dtype, device, padding=padding, **masks)


def test_equals_the_reference_for_every_curvature(curvature, aggregation, device):
    leaves = make_leaves(1, 1, 2, 3, 4, 3 if aggregation == "kernel" else 0, curvature=curvature)
    assert_equals_reference(leaves, torch.float64, device)


@pytest.mark.parametrize("block", [1, 7, 40])
def test_blocks_of_any_size_change_nothing(block, aggregation, monkeypatch):
    from hkconv.ops import attention_cpu

    monkeypatch.setattr(attention_cpu, "PAIRS_AT_ONCE", block)
    leaves = make_leaves(2, 3, 6, 6, 4, 3 if aggregation == "kernel" else 0)
    padding = torch.rand(3, 6) < 0.3
    assert_equals_reference(leaves, torch.float64, "cpu", padding=padding, causal=True)


@pytest.mark.parametrize(("radius", "tolerance"), [(4.0, 2e-5), (8.0, 1e-3)])
def test_float32_is_right_far_from_the_origin(radius, tolerance, aggregation, device):
    """Queries, keys and values up to ``radius`` from the origin; HLinear of the layer keeps them far nearer."""
    leaves = make_leaves(1, 1, 4, 5, 6, 4 if aggregation == "kernel" else 0, radius=radius)
    rounded = {name: leaf.float().double() for name, leaf in leaves.items()}
    out, gradients = output_and_gradients(attention.attend, leaves, torch.float32, device)
    expected, _ = output_and_gradients(reference.attend, rounded)
    assert relative_error(out, expected) < tolerance
    assert all(gradient.isfinite().all() for gradient in gradients.values())


def test_what_is_lost_to_cancellation_is_summed_wherever_it_is_missed(device):
    """Means whose squared mass is 1/32 of their squared time, but for rounding; another form is used from there on."""
    far = torch.tensor(18.986133)
    steps = far * (1 + torch.finfo(torch.float32).eps * torch.arange(-16, 16))
    value = torch.stack([steps[:, None].expand(-1, 3), torch.tensor([4.0, -4.0, 0.0]).expand(32, -1)], dim=-1)
    alike = torch.full((32, 3, 2), 0.3)
    query, key, value = (lift(x[None]).to(device) for x in (alike[:, :1], alike, value))
    expected = reference.attend(*(lift(x[..., 1:].double()) for x in (query, key, value)))
    assert relative_error(attention.attend(query, key, value), expected) < 1e-4


def test_same_bits_every_time(aggregation, device):
    leaves = make_leaves(1, 2, 2, 3, 4, 3 if aggregation == "kernel" else 0)
    first, second = (
        output_and_gradients(attention.attend, leaves, torch.float32, device, causal=True) for _ in range(2)
    )
    assert torch.equal(first[0], second[0])
    assert all(torch.equal(first[1][name], second[1][name]) for name in first[1])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_agrees_for_any_number_of_threads(threads, aggregation, monkeypatch):
    from hkconv.ops import attention_cpu

    monkeypatch.setattr(attention_cpu, "PAIRS_AT_ONCE", 10)
    leaves = make_leaves(2, 2, 5, 4, 4, 3 if aggregation == "kernel" else 0)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        assert_equals_reference(leaves, torch.float64, "cpu", padding=PADDING)
    finally:
        torch.set_num_threads(before)


def test_second_derivatives_equal_those_of_the_reference(aggregation):
    leaves = make_leaves(1, 1, 3, 3, 3, 2 if aggregation == "kernel" else 0)
    found = []
    for attend in (attention.attend, reference.attend):
        space = {name: leaf.clone().requires_grad_() for name, leaf in leaves.items()}
        given = {name: lift(space[name]) for name in POINTS if name in space}
        linear = {name: space[name] for name in attention.LINEAR} if "weight" in space else None
        out = attend(**given, linear=linear)
        (first,) = torch.autograd.grad(out.square().sum(), space["value"], create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), space["value"])[0])
    assert relative_error(*found) < 1e-9


def test_operator_keeps_torchs_rules(aggregation):
    leaves = make_leaves(1, 2, 3, 3, 3, 2 if aggregation == "kernel" else 0)
    del leaves["curvature"]
    given = {name: (lift(leaf) if name in POINTS else leaf).requires_grad_() for name, leaf in leaves.items()}
    given |= {"steepness": torch.tensor(0.5, dtype=torch.float64), "padding": PADDING[:, :3]}
    inputs = [given.get(name) for name in attention.AttentionInputs._fields]
    torch.library.opcheck(torch.ops.hkconv.hk_attention, (*inputs, True))


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from hkconv.ops import attention_cuda

NUMBERS = dict.fromkeys(("T", "S", "B", "dim", "program", "programs"), "i32")
for n, kernels in ((64, 0), (256, 0), (16, 4)):
    constants = {**attention_cuda._constants(n, kernels, False, True, True), "TO_KEY": True, "POINTS": True}
    options = {name: constants.pop(name) for name in ("num_warps", "num_stages")}
    kernel = attention_cuda._backward
    kinds = {name: "constexpr" if name in constants else NUMBERS.get(name, "*fp32") for name in kernel.arg_names}
    source = ASTSource(fn=kernel, signature=kinds, constexprs=constants)
    print(triton.compile(source, target=GPUTarget("cuda", 89, 32), options=options).metadata.shared)
"""


def test_the_kernels_fit_into_the_shared_memory_of_a_gpu_that_is_not_here(run_with_the_compiler):
    """The interpreter takes more than the compiler does; the backward pass needs most."""
    needed = [int(line) for line in run_with_the_compiler(COMPILE)]
    assert len(needed) == 3 and max(needed) <= 99 * 1024
