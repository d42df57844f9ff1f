"""What layers do to single points by kernels, against the plain forms in float64."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from fused_cases import relative_error

from hkconv.geometry.lorentz import lift
from hkconv.language.loss import summed_loss
from hkconv.models.translation import create_translator
from hkconv.nn import HKAttention, HLinear, HNorm, linear, transformer
from hkconv.nn.transformer import HFeedForward, HResidual
from hkconv.ops import rows

VALUE_TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-14}
# Of the sums over rows, whose terms cancel.
GRADIENT_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-12}
pytest.importorskip("triton")


@pytest.fixture
def device(monkeypatch) -> str:
    """Where the kernels run: in Triton's interpreter where there is no GPU."""
    if torch.cuda.is_available():
        return "cuda"
    for module in (rows, linear, transformer):
        monkeypatch.setattr(module, "are_fused", _has_fixed_curvature)
    return "cpu"


def _has_fixed_curvature(x, width, curvature):
    return isinstance(curvature, int | float)


def run(operation, numbers, tensors, grad, fused):
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    out = rows._Fused.apply(operation, numbers, *leaves) if fused else operation.plain(*leaves, *numbers)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad.to(out))]


def assert_equals_plain(operation, numbers, tensors, dtype, device):
    """Values and all gradients, against float64 on the same rounded inputs."""
    rounded = [tensor.to(dtype) for tensor in tensors]
    shape = operation.plain(*tensors, *numbers).shape
    grad = torch.linspace(-1, 2, shape.numel(), dtype=torch.float64).view(shape)
    found = run(operation, numbers, [tensor.to(device) for tensor in rounded], grad, fused=True)
    expected = run(operation, numbers, [tensor.double() for tensor in rounded], grad, fused=False)
    assert [value.dtype for value in found] == [dtype] * len(found)
    assert [value.shape for value in found] == [value.shape for value in expected]
    assert relative_error(found[0], expected[0]) < VALUE_TOLERANCE[dtype]
    for gradient, double in zip(found[1:], expected[1:]):
        assert relative_error(gradient, double) < GRADIENT_TOLERANCE[dtype]


def draw(generator, *shape):
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (3, 40, 16), (130, 33)])
@pytest.mark.parametrize("R", [1.0, 2.5])
def test_lifted_equals_plain(shape, R, dtype, device, generator):
    assert_equals_plain(rows._LIFTED, (R,), [draw(generator, *shape)], dtype, device)


def test_lifted_reads_the_space_of_points_and_permuted_heads(dtype, device, generator):
    points = lift(draw(generator, 4, 6, 8)).to(dtype).to(device)
    space = points[..., 1:]
    heads = space.unflatten(-1, (2, 4)).permute(2, 0, 1, 3)
    torch.testing.assert_close(rows.lifted(space), lift(space))
    torch.testing.assert_close(rows.lifted(heads), lift(heads))


@pytest.mark.parametrize("nodes, K, n", [(1, 1, 1), (9, 1, 64), (70, 3, 5), (5, 4, 33)])
@pytest.mark.parametrize("R", [1.0, 0.5])
def test_gated_points_equal_plain(nodes, K, n, R, dtype, device, generator):
    parameters = [draw(generator, K, n), draw(generator, K), draw(generator, K)]
    tensors = [2 * draw(generator, nodes, K * (n + 1)), *parameters]
    assert_equals_plain(rows._GATED_POINTS, (R,), tensors, dtype, device)


def test_gated_points_without_a_direction_are_the_origin(dtype, device, generator):
    products, bias = draw(generator, 3, 5), torch.zeros(1, 4, dtype=torch.float64)
    products[1, :4] = 0
    tensors = [products, bias, draw(generator, 1), draw(generator, 1)]
    assert_equals_plain(rows._GATED_POINTS, (1.0,), tensors, dtype, device)
    out = rows.gated_points(*(tensor.to(dtype).to(device) for tensor in tensors))
    assert out[1, 0].tolist() == [1, 0, 0, 0, 0]


def test_a_direction_below_the_normal_numbers_is_none(device):
    """A GPU divides by such numbers as by zero."""
    products = torch.tensor([[1e-40, -1e-41, 0.0]], device=device, requires_grad=True)
    zeros = torch.zeros(1, 2, device=device), torch.zeros(1, device=device), torch.zeros(1, device=device)
    out = rows.gated_points(products, *zeros)
    assert out[0, 0, 0] == 1 and torch.autograd.grad(out.sum(), products)[0].isfinite().all()


def test_products_whose_squares_overflow_still_have_a_direction(device):
    """|p| = 5e30, of which float32 has no square."""
    products = torch.tensor([[3e30, 4e30, 0.0]], device=device)
    zeros = torch.zeros(1, 2, device=device), torch.zeros(1, device=device), torch.zeros(1, device=device)
    out = rows.gated_points(products, *zeros)[0, 0].cpu()
    torch.testing.assert_close(out, lift(torch.tensor([0.3, 0.4])))


@pytest.mark.parametrize("shape", [(1, 1), (4, 11, 64), (67, 5), (35, 33)])
@pytest.mark.parametrize("R", [1.0, 2.0])
def test_mixed_norm_equals_plain(shape, R, dtype, device, generator):
    *leading, n = shape
    first, second = (lift(draw(generator, *leading, n), -(R**-2)) for _ in range(2))
    parameters = [torch.tensor(-0.7, dtype=torch.float64), draw(generator, n), draw(generator, n)]
    # Of one channel nothing is left but the bias: there the noise of the rest is compared with nothing.
    eps = 1.0 if n == 1 else 1e-5
    assert_equals_plain(rows._MIXED_NORM, (eps, R), [first, second, *parameters], dtype, device)


def test_mixed_norm_of_equal_points_is_finite(dtype, device, generator):
    point = lift(draw(generator, 5, 8)).to(dtype).to(device).requires_grad_()
    norm = torch.nn.LayerNorm(8, dtype=dtype, device=device)
    logit = torch.zeros((), dtype=dtype, device=device, requires_grad=True)
    out = rows.mixed_norm(point, point, logit, norm)
    expected = lift(norm(point[:, 1:]))
    torch.testing.assert_close(out, expected)
    gradients = torch.autograd.grad(out.square().sum(), [point, logit])
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("numbers, operation, shapes", [
    ((1.0,), rows._LIFTED, [(0, 4)]),
    ((1.0,), rows._GATED_POINTS, [(0, 10), (2, 4), (2,), (2,)]),
    ((1e-5, 1.0), rows._MIXED_NORM, [(0, 5), (0, 5), (), (4,), (4,)]),
])  # fmt: skip
def test_no_rows_give_no_points_and_zero_gradients(numbers, operation, shapes, device):
    leaves = [torch.ones(shape, device=device, requires_grad=True) for shape in shapes]
    out = rows._Fused.apply(operation, numbers, *leaves)
    assert out.numel() == 0
    for gradient in torch.autograd.grad(out.sum(), leaves):
        assert not gradient.any()


def test_gradients_of_gradients(device, generator):
    leaves = [draw(generator, 2, 6), draw(generator, 2, 2), draw(generator, 2), draw(generator, 2)]
    leaves = [leaf.to(device).requires_grad_() for leaf in leaves]
    assert torch.autograd.gradgradcheck(lambda *given: rows.gated_points(*given), leaves)
    pair = [lift(draw(generator, 2, 3)).to(device).requires_grad_() for _ in range(2)]
    norm = torch.nn.LayerNorm(3, dtype=torch.float64, device=device)
    logit = torch.zeros((), dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x, y, beta: rows.mixed_norm(x, y, beta, norm), [*pair, logit])


def test_the_same_input_gives_the_same_bits(device, generator):
    tensors = [draw(generator, 300, 10), draw(generator, 2, 4), draw(generator, 2), draw(generator, 2)]
    tensors = [tensor.float().to(device) for tensor in tensors]
    grad = draw(generator, 300, 2, 5)
    first, second = (run(rows._GATED_POINTS, (1.0,), tensors, grad, fused=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second))


LAYERS = {
    "linear": lambda: HLinear(6, 5),
    "maps": lambda: HLinear(6, 5, 3),
    "activated": lambda: HLinear(6, 5, act="relu", curvature=-0.5),
    "feed-forward": lambda: HFeedForward(6, 9),
    "norm": lambda: HNorm(6, "layer", "relu"),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_what_they_are_in_plain_pytorch(name, dtype, device, generator, monkeypatch):
    torch.manual_seed(0)
    layer = LAYERS[name]().to(dtype)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    x = lift(draw(generator, 4, 3, 6), layer.curvature).to(dtype)
    found = _through(layer.to(device), x.to(device))
    monkeypatch.setattr(rows, "are_fused", lambda *_: False)
    monkeypatch.setattr(linear, "are_fused", lambda *_: False)
    expected = _through(layer.cpu().double(), x.double())
    for value, double in zip(found, expected, strict=True):
        assert relative_error(value, double) < GRADIENT_TOLERANCE[dtype]


def test_a_residual_is_what_it_is_in_plain_pytorch(dtype, device, generator, monkeypatch):
    layer = HResidual(6).to(dtype)
    x, part = (lift(draw(generator, 4, 6)).to(dtype) for _ in range(2))
    found = _through(layer.to(device), x.to(device), part.to(device))
    monkeypatch.setattr(rows, "are_fused", lambda *_: False)
    monkeypatch.setattr(transformer, "are_fused", lambda *_: False)
    expected = _through(layer.cpu().double(), x.double(), part.double())
    for value, double in zip(found, expected, strict=True):
        assert relative_error(value, double) < GRADIENT_TOLERANCE[dtype]


def _through(layer, *inputs):
    inputs = [x.detach().requires_grad_() for x in inputs]
    out = layer(*inputs)
    grad = torch.linspace(-1, 2, out.numel(), dtype=out.dtype, device=out.device).view_as(out)
    return [out.detach(), *torch.autograd.grad(out, [*inputs, *layer.parameters()], grad)]


def test_half_as_many_operations_and_no_sum_of_squares_by_pytorch(device):
    """An attention's maps and lifts are kernels: nothing takes a root in PyTorch, forward or backward."""
    layer = HKAttention(8, 2, aggregation="centroid").to(device)
    x = lift(torch.randn(2, 3, 8)).to(device).requires_grad_()
    with torch.profiler.profile() as seen:
        layer(x).sum().backward()
    names = {event.key for event in seen.key_averages()}
    assert not names & {"aten::sqrt", "aten::linalg_vector_norm", "aten::sigmoid"}


def test_a_learned_curvature_takes_the_plain_form():
    x = torch.ones(2, 3)
    assert not rows.are_fused(x, 2, -1.0)
    curvature = torch.tensor(-1.0, requires_grad=True)
    assert torch.autograd.grad(rows.lifted(x, curvature).sum(), curvature)[0].abs() > 0


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_space_is_kept_as_it_is(value, device):
    space = torch.full((2, 3), value, device=device)
    assert np.array_equal(rows.lifted(space)[:, 1:].cpu(), space.cpu())


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from hkconv.ops import rows_cuda

NUMBERS = {"rows": "i32", "stride": "i32"}
CONSTANTS = {"K": 1, "n": 64, "R": 1.0, "TINY": 1e-38, "eps": 1e-5, "B": 16, "NP": 64}
for name in ("lifted", "gated_points", "mixed_norm"):
    for kernel in (getattr(rows_cuda, f"_{name}"), getattr(rows_cuda, f"_{name}_gradients")):
        constants = {key: CONSTANTS[key] for key in kernel.arg_names if key in CONSTANTS}
        kinds = {key: "constexpr" if key in constants else NUMBERS.get(key, "*fp32") for key in kernel.arg_names}
        source = ASTSource(fn=kernel, signature=kinds, constexprs=constants)
        built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
        print(kernel.__name__, len(built.asm["cubin"]) > 0)
"""


def test_the_kernels_compile_for_a_gpu_that_is_not_here(tmp_path):
    """The interpreter takes more than the compiler does."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")[:-1]
    assert len(lines) == 6 and all(line.endswith("True") for line in lines)


def test_a_translator_is_what_it_is_in_plain_pytorch(device, generator, monkeypatch):
    """Loss and the gradients of all parameters of a whole hyperbolic transformer."""
    torch.manual_seed(0)
    model = create_translator("hkn", 30, dim=8, num_heads=2, feedforward_dim=12, num_layers=1, dropout=0.0).double()
    source, target = (torch.randint(4, 30, (3, 5), generator=generator).to(device) for _ in range(2))

    def gradients():
        loss = summed_loss(model(source, target[:, :-1]), target[:, 1:])
        return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]

    model.to(device)
    found = gradients()
    for module in (rows, linear, transformer):
        monkeypatch.setattr(module, "are_fused", lambda *_: False)
    for value, plain in zip(found, gradients(), strict=True):
        torch.testing.assert_close(value, plain, rtol=1e-10, atol=1e-12)
