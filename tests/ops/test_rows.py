"""What layers do to single points by kernels, against the plain forms in float64."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fused_cases import relative_error

from hkconv.geometry.lorentz import lift
from hkconv.language.loss import summed_loss
from hkconv.models.translation import create_translator
from hkconv.nn import HDistance, HKAttention, HKBlock, HLinear, HNorm, linear, transformer
from hkconv.nn.transformer import HFeedForward, HResidual
from hkconv.ops import backends, rows
from hkconv.ops.reference import kernel_centroid

VALUE_TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-14}
# Of the sums over rows, whose terms cancel.
GRADIENT_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-12}


@pytest.fixture
def device(monkeypatch) -> str:
    """Where Triton's kernels run: in its interpreter where there is no GPU."""
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        return "cuda"
    from hkconv.ops import rows_cuda

    monkeypatch.setattr(rows, "backend", lambda x: rows_cuda)
    _answer(monkeypatch, _has_fixed_curvature)
    return "cpu"


@pytest.fixture(params=["native", "triton"])
def any_device(request) -> str:
    """Where the kernels run that the CPU has too."""
    return "cpu" if request.param == "native" else request.getfixturevalue("device")


def _answer(monkeypatch, answer):
    """To all that ask whether there are kernels."""
    for module in (rows, linear, transformer):
        for name in ("are_fused", "have_kernels"):
            monkeypatch.setattr(module, name, answer, raising=False)


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
def test_gated_points_equal_plain(nodes, K, n, R, dtype, any_device, generator):
    parameters = [draw(generator, K, n), draw(generator, K), draw(generator, K)]
    tensors = [2 * draw(generator, nodes, K * (n + 1)), *parameters]
    assert_equals_plain(rows._GATED_POINTS, (R,), tensors, dtype, any_device)


@pytest.mark.parametrize("nodes, C, n", [(1, 1, 1), (9, 1, 64), (130, 3, 5), (35, 7, 33)])
@pytest.mark.parametrize("R", [1.0, 0.5])
def test_distances_equal_plain(nodes, C, n, R, dtype, device, generator):
    points = lift(draw(generator, nodes, n), -(R**-2))
    assert_equals_plain(rows._DISTANCES, (R,), [points, draw(generator, C, n)], dtype, device)


@pytest.mark.parametrize("radius", [1e-4, 4.0, 8.0])
def test_distances_are_right_near_and_far(radius, device, generator):
    space = torch.nn.functional.normalize(draw(generator, 6, 3), dim=-1)
    points, centers = (lift(scale * np.sinh(radius) * space).float() for scale in (1.0, 0.99))
    found = rows.distances(points.to(device), centers[:, 1:].to(device)).cpu().double()
    expected = rows._DISTANCES.plain(points.double(), centers[:, 1:].double(), 1.0)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-9)


def test_a_point_at_a_center_has_no_distance_and_no_gradient(dtype, device, generator):
    points = lift(draw(generator, 4, 3)).to(dtype).to(device).requires_grad_()
    centers = points.detach()[:, 1:].clone().requires_grad_()
    distances = rows.distances(points, centers)
    assert (distances.diagonal() == 0).all()
    for gradient in torch.autograd.grad(distances.diagonal().sum(), [points, centers]):
        assert (gradient == 0).all()


def test_a_distance_layer_has_the_same_gradients_by_its_kernel(dtype, device, generator, monkeypatch):
    layer = HDistance(4, 3, curvature=-0.5).to(device, dtype)
    points = lift(draw(generator, 2, 5, 4), -0.5).to(dtype).to(device)
    found = []
    for answer in (lambda *_: False, _has_fixed_curvature):
        monkeypatch.setattr(rows, "are_fused", answer)
        leaf = points.clone().requires_grad_()
        # Time follows from space; by itself it has a gradient in the plain form alone.
        out = layer(lift(leaf[..., 1:], -0.5))
        found.append([out, *torch.autograd.grad(out.square().sum(), [leaf, layer.centers])])
    for fused, plain in zip(*found):
        torch.testing.assert_close(fused, plain)


def test_gated_points_without_a_direction_are_the_origin(dtype, any_device, generator):
    products, bias = draw(generator, 3, 5), torch.zeros(1, 4, dtype=torch.float64)
    products[1, :4] = 0
    tensors = [products, bias, draw(generator, 1), draw(generator, 1)]
    assert_equals_plain(rows._GATED_POINTS, (1.0,), tensors, dtype, any_device)
    out = rows.gated_points(*(tensor.to(dtype).to(any_device) for tensor in tensors))
    assert out[1, 0].tolist() == [1, 0, 0, 0, 0]


def test_a_direction_below_the_normal_numbers_is_none(any_device):
    """A GPU divides by such numbers as by zero."""
    products = torch.tensor([[1e-40, -1e-41, 0.0]], device=any_device, requires_grad=True)
    zeros = torch.zeros(1, 2, device=any_device), torch.zeros(1, device=any_device), torch.zeros(1, device=any_device)
    out = rows.gated_points(products, *zeros)
    assert out[0, 0, 0] == 1 and torch.autograd.grad(out.sum(), products)[0].isfinite().all()


def test_products_whose_squares_overflow_still_have_a_direction(any_device):
    """|p| = 5e30, of which float32 has no square."""
    products = torch.tensor([[3e30, 4e30, 0.0]], device=any_device)
    zeros = torch.zeros(1, 2, device=any_device), torch.zeros(1, device=any_device), torch.zeros(1, device=any_device)
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


GATES = [draw(torch.Generator().manual_seed(1), *shape) for shape in [(3, 6), (3, 3)]]


def three_views(generator, nodes, n, curvature=-1.0, radius=1.0):
    """Points of which the space is about ``radius`` long, those of a row in directions of their own."""
    return [lift(radius * draw(generator, nodes, n) / n**0.5, curvature) for _ in range(3)]


@pytest.mark.parametrize("nodes, n", [(1, 1), (1, 16), (9, 64), (70, 5), (35, 33), (3, 2)])
@pytest.mark.parametrize("R", [1.0, 0.5, 2.5])
def test_mixed_views_equal_plain(nodes, n, R, dtype, any_device, generator):
    views = three_views(generator, nodes, n, -(R**-2))
    tensors = [*views, 0.5 * draw(generator, 3, n + 1), draw(generator, 3, 3)]
    assert_equals_plain(rows._MIXED_VIEWS, (R,), tensors, dtype, any_device)


def test_mixed_views_are_what_an_hk_block_makes_of_its_views(dtype, curvature, generator, monkeypatch):
    _answer(monkeypatch, lambda *_: False)
    block = HKBlock(4, 5, 2, curvature=curvature).to(dtype)
    with torch.no_grad():
        block.gate_weight.copy_(GATES[0])
        block.gate_mix.copy_(GATES[1])
    views = torch.stack(three_views(generator, 7, 5, curvature), dim=1).to(dtype)
    mixed = rows.mixed_views(*views.unbind(1), block.gate_weight, block.gate_mix, curvature)
    assert torch.equal(mixed, kernel_centroid(views, block.gates(views), curvature))


def test_mixed_views_are_literally_a_centroid_with_gates(any_device, generator):
    """One row by the equations of the class, in numbers."""
    views = three_views(generator, 1, 5)
    found = rows.mixed_views(*(tensor.to(any_device) for tensor in (*views, *GATES)))[0].cpu().numpy()
    y, (v, G) = torch.cat(views).numpy(), (gate.numpy() for gate in GATES)
    opening = 1 / (1 + np.exp(-(y * v).sum(1)))
    level = np.exp(3 * opening @ (np.eye(3) + G))
    mean = level / level.sum() @ y
    np.testing.assert_allclose(found, mean / np.sqrt(mean[0] ** 2 - (mean[1:] ** 2).sum()), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("radius", [3.0, 30.0])
def test_mixed_views_of_far_points_keep_the_digits_of_float32(radius, any_device, generator, request):
    """Of points 30 away in nearly the same direction, whose gap in time is nearly that in space, row by row."""
    one = draw(generator, 500, 8)
    spaces = [torch.nn.functional.normalize(one + 0.1 * draw(generator, 500, 8), dim=-1) for _ in range(3)]
    views = [lift(radius * torch.rand(500, 1, generator=generator).double() * space).float() for space in spaces]
    tensors = [*views, 0.1 * draw(generator, 3, 9).float(), draw(generator, 3, 3).float()]
    grad = draw(generator, 500, 9).float()
    found = run(rows._MIXED_VIEWS, (1.0,), [tensor.to(any_device) for tensor in tensors], grad, fused=True)
    expected = run(rows._MIXED_VIEWS, (1.0,), [tensor.double() for tensor in tensors], grad, fused=False)
    errors = [value.double().cpu() - double for value, double in zip(found, expected)]
    assert (errors[0].norm(dim=-1) / expected[0].norm(dim=-1)).max() < 1e-6
    # Native kernels have double precision all the way, Triton for what cancels in the result.
    bound = 1e-6 if request.node.callspec.params["any_device"] == "native" else GRADIENT_TOLERANCE[torch.float32]
    assert all(error.norm() < bound * double.norm() for error, double in zip(errors[1:], expected[1:]))


def test_mixed_views_of_points_too_far_for_the_variance_are_finite(any_device, generator):
    """Rounding of the time alone makes it negative here."""
    unit = torch.nn.functional.normalize(draw(generator, 50, 4), dim=-1)
    views = [lift(1e5 * length * unit).float() for length in (1.0, 0.7, 0.4)]
    tensors = [*views, torch.zeros(3, 5), torch.zeros(3, 3)]
    found = run(rows._MIXED_VIEWS, (1.0,), [tensor.to(any_device) for tensor in tensors], torch.ones(50, 5), fused=True)
    assert all(value.isfinite().all() for value in found)


def test_mixed_views_of_one_point_are_that_point(dtype, any_device, generator):
    point = lift(draw(generator, 6, 5)).to(dtype).to(any_device).requires_grad_()
    gates = [gate.to(dtype).to(any_device).requires_grad_() for gate in GATES]
    out = rows.mixed_views(point, point, point, *gates)
    torch.testing.assert_close(out, point)
    by_point, by_weight, by_mix = torch.autograd.grad(out[:, 1:].sum(), [point, *gates])
    torch.testing.assert_close(by_point[:, 1:], torch.ones_like(by_point[:, 1:]))
    for gradient in (by_weight, by_mix):
        assert gradient.abs().max() < (1e-4 if dtype == torch.float32 else 1e-12)


def test_mixed_views_read_rows_that_lie_apart(dtype, any_device, generator):
    stacked = torch.stack(three_views(generator, 8, 5), dim=1).to(dtype).to(any_device)
    gates = [gate.to(dtype).to(any_device) for gate in GATES]
    first, second, third = stacked.unbind(1)
    expected = rows.mixed_views(first.contiguous(), second.contiguous(), third.contiguous(), *gates)
    assert torch.equal(rows.mixed_views(first, second, third, *gates), expected)
    turned = first.T.contiguous().T
    assert torch.equal(rows.mixed_views(turned, second, third, *gates), expected)
    alike = first[:1].expand(8, -1)
    expected = rows.mixed_views(alike.contiguous(), second, third, *gates)
    assert torch.equal(rows.mixed_views(alike, second, third, *gates), expected)


@pytest.mark.parametrize("operation", ["gated_points", "mixed_views"])
def test_what_is_no_number_stays_none_in_its_row(operation, dtype, generator):
    views = [view.to(dtype) for view in three_views(generator, 3, 5)]
    views[1][1, 2] = torch.nan
    if operation == "mixed_views":
        out = rows.mixed_views(*views, *(gate.to(dtype) for gate in GATES))
    else:
        zeros = torch.zeros(1, 5, dtype=dtype), torch.zeros(1, dtype=dtype), torch.zeros(1, dtype=dtype)
        out = rows.gated_points(views[1], *zeros)[:, 0]
    assert out[1].isnan().all() and out[::2].isfinite().all()


@pytest.mark.parametrize("sizes", [(300, 2, 4), (100, 1, 17)])
def test_chunks_of_rows_give_the_same_for_any_number_of_threads(sizes, dtype, generator, monkeypatch):
    from hkconv.ops import rows_cpu

    monkeypatch.setattr(rows_cpu, "WORTH_A_THREAD", 100)
    nodes, K, n = sizes
    gated = [draw(generator, nodes, K * (n + 1)), draw(generator, K, n), draw(generator, K), draw(generator, K)]
    views = [*three_views(generator, nodes, n), draw(generator, 3, n + 1), draw(generator, 3, 3)]
    threads = torch.get_num_threads()
    for operation, tensors in ((rows._GATED_POINTS, gated), (rows._MIXED_VIEWS, views)):
        assert_equals_plain(operation, (1.0,), tensors, dtype, "cpu")
        rounded = [tensor.to(dtype) for tensor in tensors]
        grad = torch.linspace(-1, 1, nodes * (K if len(tensors) == 4 else 1) * (n + 1))
        grad = grad.view(operation.plain(*rounded, 1.0).shape)
        try:
            found = []
            for count in (1, 3):
                torch.set_num_threads(count)
                found.append(run(operation, (1.0,), rounded, grad, fused=True))
        finally:
            torch.set_num_threads(threads)
        assert all(torch.equal(a, b) for a, b in zip(*found))


def test_gates_shut_and_open_as_far_as_they_go():
    """λσ(g) for all g, also where exp(-g) is no number."""
    gate = torch.linspace(-800, 800, 1601, dtype=torch.float64)
    products = torch.stack([torch.ones_like(gate), gate], dim=1)
    zeros = [torch.zeros(shape, dtype=torch.float64) for shape in [(1, 1), (1,), (1,)]]
    found = rows.gated_points(products, *zeros)[:, 0, 1]
    torch.testing.assert_close(found, torch.sigmoid(gate), rtol=1e-15, atol=1e-300)


@pytest.mark.parametrize("dtype, length", [(torch.float32, 1e18), (torch.float32, 1e30), (torch.float64, 1e200)])
def test_a_linear_map_of_far_points_by_native_kernels(dtype, length, generator, monkeypatch):
    layer = HLinear(6, 5, 2).to(dtype)
    space = draw(generator, 4, 6)
    x = (length * torch.cat([space.norm(dim=1, keepdim=True), space], dim=1)).to(dtype)
    _answer(monkeypatch, rows.have_kernels)
    found = layer(x)
    _answer(monkeypatch, lambda *_: False)
    torch.testing.assert_close(found, layer(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("numbers, operation, shapes", [
    ((1.0,), rows._LIFTED, [(0, 4)]),
    ((1.0,), rows._GATED_POINTS, [(0, 10), (2, 4), (2,), (2,)]),
    ((1e-5, 1.0), rows._MIXED_NORM, [(0, 5), (0, 5), (), (4,), (4,)]),
    ((1.0,), rows._MIXED_VIEWS, [(0, 5), (0, 5), (0, 5), (3, 5), (3, 3)]),
    ((1.0,), rows._DISTANCES, [(0, 5), (3, 4)]),
])  # fmt: skip
def test_no_rows_give_no_points_and_zero_gradients(numbers, operation, shapes, any_device):
    if not hasattr(rows.backend(torch.empty(0, device=any_device)), operation.name):
        pytest.skip("only on CUDA")
    leaves = [torch.ones(shape, device=any_device, requires_grad=True) for shape in shapes]
    out = rows._Fused.apply(operation, numbers, *leaves)
    assert out.numel() == 0
    for gradient in torch.autograd.grad(out.sum(), leaves):
        assert not gradient.any()


def test_gradients_of_gradients_of_mixed_views(any_device, generator):
    leaves = [*three_views(generator, 2, 2), draw(generator, 3, 3), draw(generator, 3, 3)]
    leaves = [leaf.to(any_device).requires_grad_() for leaf in leaves]
    assert torch.autograd.gradcheck(lambda *given: rows.mixed_views(*given, -0.5), leaves)
    assert torch.autograd.gradgradcheck(lambda *given: rows.mixed_views(*given, -0.5), leaves)


def test_gradients_of_gradients_of_gated_points_by_native_kernels(generator):
    leaves = [draw(generator, 2, 6), draw(generator, 2, 2), draw(generator, 2), draw(generator, 2)]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    assert torch.autograd.gradcheck(lambda *given: rows.gated_points(*given), leaves)
    assert torch.autograd.gradgradcheck(lambda *given: rows.gated_points(*given), leaves)


def test_gradients_of_gradients(device, generator):
    leaves = [draw(generator, 2, 6), draw(generator, 2, 2), draw(generator, 2), draw(generator, 2)]
    leaves = [leaf.to(device).requires_grad_() for leaf in leaves]
    assert torch.autograd.gradgradcheck(lambda *given: rows.gated_points(*given), leaves)
    pair = [lift(draw(generator, 2, 3)).to(device).requires_grad_() for _ in range(2)]
    norm = torch.nn.LayerNorm(3, dtype=torch.float64, device=device)
    logit = torch.zeros((), dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x, y, beta: rows.mixed_norm(x, y, beta, norm), [*pair, logit])


def test_the_same_input_gives_the_same_bits(any_device, generator):
    gated = [draw(generator, 300, 10), draw(generator, 2, 4), draw(generator, 2), draw(generator, 2)]
    views = [*three_views(generator, 300, 5), *GATES]
    for operation, tensors, shape in ((rows._GATED_POINTS, gated, (300, 2, 5)), (rows._MIXED_VIEWS, views, (300, 6))):
        tensors = [tensor.float().to(any_device) for tensor in tensors]
        grad = draw(generator, *shape)
        first, second = (run(operation, (1.0,), tensors, grad, fused=True) for _ in range(2))
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
    assert_layer_equals_plain(LAYERS[name]().to(dtype), dtype, device, generator, monkeypatch)


@pytest.mark.parametrize("name", ["linear", "maps", "activated"])
def test_linear_layers_by_native_kernels_are_what_they_are_in_plain_pytorch(name, dtype, generator, monkeypatch):
    _answer(monkeypatch, rows.have_kernels)
    monkeypatch.setattr(rows, "are_fused", lambda *_: False)
    assert_layer_equals_plain(LAYERS[name]().to(dtype), dtype, "cpu", generator, monkeypatch)


def assert_layer_equals_plain(layer, dtype, device, generator, monkeypatch):
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    x = lift(draw(generator, 4, 3, 6), layer.curvature).to(dtype)
    found = _through(layer.to(device), x.to(device))
    _answer(monkeypatch, lambda *_: False)
    expected = _through(layer.cpu().double(), x.double())
    for value, double in zip(found, expected, strict=True):
        assert relative_error(value, double) < GRADIENT_TOLERANCE[dtype]


def test_a_residual_is_what_it_is_in_plain_pytorch(dtype, device, generator, monkeypatch):
    layer = HResidual(6).to(dtype)
    x, part = (lift(draw(generator, 4, 6)).to(dtype) for _ in range(2))
    found = _through(layer.to(device), x.to(device), part.to(device))
    _answer(monkeypatch, lambda *_: False)
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
    layer(x)  # the first input of a layer is looked at
    with torch.profiler.profile() as seen:
        layer(x).sum().backward()
    names = {event.key for event in seen.key_averages()}
    assert not names & {"aten::sqrt", "aten::linalg_vector_norm", "aten::sigmoid"}


@pytest.mark.parametrize(
    ("precision", "fused"),
    [(torch.float32, True), (torch.float64, True), (torch.bfloat16, False), (torch.float16, False)],
    ids=str,
)
def test_kernels_of_a_gpu_are_for_single_and_double_precision(precision, fused, monkeypatch):
    monkeypatch.setattr(backends, "_has_triton", lambda: True)
    assert rows.are_fused(SimpleNamespace(device=torch.device("cuda"), dtype=precision), 2, -1.0) == fused


def test_a_learned_curvature_takes_the_plain_form():
    x = torch.ones(2, 3)
    assert not rows.are_fused(x, 2, -1.0)
    curvature = torch.tensor(-1.0, requires_grad=True)
    assert torch.autograd.grad(rows.lifted(x, curvature).sum(), curvature)[0].abs() > 0


def test_mixed_views_learn_a_curvature(generator):
    curvature = torch.tensor(-0.7, dtype=torch.float64, requires_grad=True)
    views = three_views(generator, 3, 5, -0.7)
    assert torch.autograd.gradcheck(lambda k: rows.mixed_views(*views, *GATES, k), curvature)
    torch.testing.assert_close(rows.mixed_views(*views, *GATES, curvature), rows.mixed_views(*views, *GATES, -0.7))


def test_there_are_native_kernels_for_plain_tensors_of_full_precision():
    x = torch.ones(2, 3)
    assert rows.have_kernels(x, 2, -1.0) and rows.have_kernels(torch.nn.Parameter(x.double()), 2, -1)
    assert not rows.have_kernels(x, 0, -1.0)
    assert not rows.have_kernels(x, 2, torch.tensor(-1.0))
    assert not rows.have_kernels(x.half(), 2, -1.0)
    assert not rows.have_kernels(x.to("meta"), 2, -1.0)
    seen = []
    torch.func.vmap(lambda row: seen.append(rows.have_kernels(row, 2, -1.0)) or row)(x)
    with torch.autograd.forward_ad.dual_level():
        seen.append(rows.have_kernels(x, 2, -1.0))
    assert seen == [False, False]


class Mixing(torch.nn.Module):
    def forward(self, *tensors):
        return rows.mixed_views(*tensors, curvature=-0.5)


def test_mixed_views_compile_export_and_trace(generator):
    tensors = [*three_views(generator, 4, 5, -0.5), *GATES]
    expected = Mixing()(*tensors)
    torch.testing.assert_close(torch.compile(Mixing(), backend="aot_eager", fullgraph=True)(*tensors), expected)
    torch.testing.assert_close(torch.export.export(Mixing(), tuple(tensors)).module()(*tensors), expected)
    traced = torch.jit.trace(Mixing(), tensors)
    changed = [*three_views(generator, 4, 5, -0.5), *GATES]
    torch.testing.assert_close(traced(*changed), Mixing()(*changed))


def test_mixed_views_inside_torch_func(generator):
    tensors = [*three_views(generator, 4, 5), *GATES]
    expected = rows._MIXED_VIEWS.plain(*(tensor.clone().requires_grad_() for tensor in tensors), 1.0)
    tangents = tuple(draw(generator, *tensor.shape) for tensor in tensors)
    value, slope = torch.func.jvp(rows.mixed_views, tuple(tensors), tangents)
    torch.testing.assert_close(value, expected.detach())
    step = 1e-6
    ahead, behind = (
        rows.mixed_views(*(x + sign * step * along for x, along in zip(tensors, tangents))) for sign in (1, -1)
    )
    torch.testing.assert_close(slope, (ahead - behind) / (2 * step), rtol=1e-6, atol=1e-8)
    rows_of_three = torch.func.vmap(lambda *views: rows.mixed_views(*(view[None] for view in views), *GATES)[0])
    torch.testing.assert_close(rows_of_three(*tensors[:3]), value)


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
CONSTANTS = {"K": 1, "C": 3, "n": 64, "R": 1.0, "TINY": 1e-38, "eps": 1e-5, "B": 16, "NP": 64}
for name in ("lifted", "gated_points", "mixed_norm", "mixed_views", "distances"):
    for kernel in (getattr(rows_cuda, f"_{name}"), getattr(rows_cuda, f"_{name}_gradients")):
        constants = {key: CONSTANTS[key] for key in kernel.arg_names if key in CONSTANTS}
        kinds = {key: "constexpr" if key in constants else NUMBERS.get(key, "*fp32") for key in kernel.arg_names}
        source = ASTSource(fn=kernel, signature=kinds, constexprs=constants)
        built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
        print(kernel.__name__, len(built.asm["cubin"]) > 0)
"""


def test_the_kernels_compile_for_a_gpu_that_is_not_here(run_with_the_compiler):
    """The interpreter takes more than the compiler does."""
    lines = run_with_the_compiler(COMPILE)
    assert len(lines) == 10 and all(line.endswith("True") for line in lines)


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
    _answer(monkeypatch, lambda *_: False)
    for value, plain in zip(found, gradients(), strict=True):
        torch.testing.assert_close(value, plain, rtol=1e-10, atol=1e-12)
