r"""Row-wise operations of layers: a row of coordinates in, a row out, one kernel each way.

In plain PyTorch HLinear is some thirty small operations forward and fifty backward, and a GPU waits for each of them to
be launched; a hyperbolic transformer has a hundred HLinear. Products of matrices stay PyTorch's, and all that follows
them is in :mod:`hkconv.ops.rows_cuda`. On a CPU each of these operations reads and writes all rows once more; what an
HKBlock does most is in :mod:`hkconv.ops.rows_cpu`. Everywhere else, where a curvature is learned, and for gradients of
gradients the plain forms are taken.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

from hkconv.geometry.centroid import mixed_space
from hkconv.geometry.curvature import Curvature, curvature_radius
from hkconv.geometry.hyperboloid import lift, point_along
from hkconv.geometry.relative import dist
from hkconv.ops.backends import choose_backend
from hkconv.ops.centroid import kernel_centroid

# Coordinates of space that one program holds.
WIDEST = 4096

# Centers up to which the gradient of each is summed by program: a program keeps a row for every one.
MOST_CENTERS = 256

# As sharp as the softmax of Luan et al. (2022) for three channels: it multiplies by their number.
SHARPNESS = 3

# Tensors that kernels can read at once; those that only record what is done to them need PyTorch.
_PLAIN = {Tensor, torch.nn.Parameter}
_PRECISIONS = {torch.float32, torch.float64}


class _Operation(NamedTuple):
    """A map of rows.

    Args:
        name: of its forward pass in the backend; the backward pass is called ``NAME_gradients``.
        plain: the same in plain PyTorch.
    """

    name: str
    plain: Callable[..., Tensor]


class _Fused(torch.autograd.Function):
    """An operation by its kernels. The backward pass reads the inputs and nothing else."""

    @staticmethod
    def forward(ctx: Any, operation: _Operation, numbers: tuple[float, ...], *tensors: Tensor) -> Tensor:
        ctx.operation, ctx.numbers = operation, numbers
        ctx.save_for_backward(*tensors)
        return getattr(backend(tensors[0]), operation.name)(*tensors, *numbers)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        tensors, needed = ctx.saved_tensors, ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():  # the gradient is to be differentiated itself
            found = _differentiable_gradients(ctx.operation, ctx.numbers, tensors, needed, grad)
        else:
            gradients = getattr(backend(grad), f"{ctx.operation.name}_gradients")
            found = gradients(grad.contiguous(), *tensors, *ctx.numbers)
        return None, None, *(gradient if need else None for gradient, need in zip(found, needed))


def backend(x: Tensor) -> ModuleType:
    # Imported when first used: Triton is not everywhere.
    if x.device.type == "cpu":
        from hkconv.ops import rows_cpu

        return rows_cpu
    from hkconv.ops import rows_cuda

    return rows_cuda


def _differentiable_gradients(
    operation: _Operation,
    numbers: tuple[float, ...],
    tensors: tuple[Tensor, ...],
    needed: tuple[bool, ...],
    grad: Tensor,
) -> list[Tensor | None]:
    # Views, because two inputs may be one tensor, and each is to get its own part of the gradient.
    inputs = [tensor.view_as(tensor) for tensor in tensors]
    wanted = [tensor for tensor, need in zip(inputs, needed) if need]
    out = operation.plain(*inputs, *numbers)
    found = iter(torch.autograd.grad(out, wanted, grad, create_graph=True, materialize_grads=True))
    return [next(found) if need else None for need in needed]


def are_fused(x: Tensor, width: int, curvature: Curvature) -> bool:
    """True where there are CUDA kernels for rows like those of ``x``, of so many coordinates of space."""
    if x.device.type != "cuda" or not isinstance(curvature, int | float) or torch.compiler.is_compiling():
        return False
    if x.dtype not in _PRECISIONS:  # Triton takes no roots of others
        return False
    return 0 < width <= WIDEST and choose_backend("auto", x, None) == "cuda"


def have_kernels(x: Tensor, width: int, curvature: Curvature) -> bool:
    """As :func:`are_fused`, for :func:`gated_points` and :func:`mixed_views`, which the CPU has too."""
    if x.device.type != "cpu":
        return are_fused(x, width, curvature)
    if not isinstance(curvature, int | float) or torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    if type(x) not in _PLAIN or x.dtype not in _PRECISIONS or forward_ad._current_level >= 0:
        return False
    return width > 0 and choose_backend("auto", x, None) == "cpu"


def lifted(space: Tensor, curvature: Curvature = -1.0) -> Tensor:
    """:func:`hkconv.geometry.lorentz.lift`, ``(..., n) -> (..., n+1)``."""
    if not are_fused(space, space.size(-1), curvature):
        return lift(space, curvature)
    return _Fused.apply(_LIFTED, (curvature_radius(curvature),), space)


def gated_points(
    products: Tensor, bias: Tensor, gate_bias: Tensor, log_scale: Tensor, curvature: float = -1.0
) -> Tensor:
    r"""Points of HLinear from its products,
    :math:`\lambda_k\,\sigma(g_k + b_k')\,\frac{p_k + b_k}{|p_k + b_k|}`.

    Args:
        products: of all K maps, first the directions :math:`p_k`, then the gates :math:`g_k`, ``(N, K(n+1))``.
        bias: :math:`b`, ``(K, n)``.
        gate_bias, log_scale: :math:`b'` and the logarithm of :math:`\lambda`, ``(K,)``.
        curvature: negative curvature.

    Returns:
        Points ``(N, K, n+1)``; the origin where :math:`p_k + b_k = 0`.
    """
    return _Fused.apply(_GATED_POINTS, (curvature_radius(curvature),), products, bias, gate_bias, log_scale)


def mixed_norm(
    first: Tensor, second: Tensor, logit: Tensor, norm: torch.nn.LayerNorm, curvature: float = -1.0
) -> Tensor:
    r"""The space of the centroid of two points with the weights :math:`1 - \sigma(\beta)` and :math:`\sigma(\beta)`,
    normalized over the channels and lifted, as by :class:`hkconv.nn.HNorm` after :func:`hkconv.nn.centroid.mix`.

    Shapes: ``(..., n+1), (..., n+1), () -> (..., n+1)``.
    """
    numbers = norm.eps, curvature_radius(curvature)
    return _Fused.apply(_MIXED_NORM, numbers, first, second, logit, norm.weight, norm.bias)


def distances(points: Tensor, centers: Tensor, curvature: float = -1.0) -> Tensor:
    r"""The distances :math:`d(x_i, c_j)` of points to the points over ``centers``, of which only the space is read.

    Shapes: ``(..., n+1), (C, n) -> (..., C)``.
    """
    flat = points.reshape(-1, points.size(-1))
    found = _Fused.apply(_DISTANCES, (curvature_radius(curvature),), flat, centers)
    return found.view(*points.shape[:-1], len(centers))


def view_gates(views: Tensor, gate_weight: Tensor, gate_mix: Tensor) -> Tensor:
    """The weights :math:`g` of the views in :func:`mixed_views`, which sum to 1, ``(N, 3, n+1) -> (N, 3)``."""
    open_by = torch.sigmoid((views * gate_weight).sum(-1))
    return torch.softmax(SHARPNESS * (open_by + open_by @ gate_mix), dim=-1)


def mixed_views(
    differences: Tensor,
    neighbors: Tensor,
    node: Tensor,
    gate_weight: Tensor,
    gate_mix: Tensor,
    curvature: Curvature = -1.0,
) -> Tensor:
    r"""The centroid of the three views :math:`y_c` of each node that an :class:`hkconv.nn.HKBlock` has, with weights

    .. math:: g = \mathrm{softmax}_c\Big(3 \sum_{c'} \sigma(v_{c'} \cdot y_{c'})\,(I + G)_{c'c}\Big).

    Args:
        differences, neighbors, node: the views, ``(N, n+1)`` each.
        gate_weight: :math:`v`, ``(3, n+1)``.
        gate_mix: :math:`G`, ``(3, 3)``.
        curvature: negative curvature.

    Returns:
        Points ``(N, n+1)``.
    """
    tensors = differences, neighbors, node, gate_weight, gate_mix
    alike = all(tensor.dtype == differences.dtype for tensor in tensors)
    if alike and have_kernels(differences, differences.size(-1) - 1, curvature):
        return _Fused.apply(_MIXED_VIEWS, (curvature_radius(curvature),), *tensors)
    return _plain_mixed_views(*tensors, curvature)


def _plain_gated_points(products: Tensor, bias: Tensor, gate_bias: Tensor, log_scale: Tensor, R: float) -> Tensor:
    K, n = bias.shape
    direction = products[:, : K * n].unflatten(1, (K, n)) + bias
    length = log_scale.exp() * torch.sigmoid(products[:, K * n :] + gate_bias)
    return point_along(direction, length, -(R**-2))


def _plain_mixed_norm(
    first: Tensor, second: Tensor, logit: Tensor, weight: Tensor, bias: Tensor, eps: float, R: float
) -> Tensor:
    space = mixed_space(first, second, logit, -(R**-2))
    return lift(F.layer_norm(space, weight.shape, weight, bias, eps), -(R**-2))


def _plain_mixed_views(
    differences: Tensor, neighbors: Tensor, node: Tensor, gate_weight: Tensor, gate_mix: Tensor, curvature: Curvature
) -> Tensor:
    views = torch.stack([differences, neighbors, node], dim=1)
    return kernel_centroid(views, view_gates(views, gate_weight, gate_mix), curvature)


def _plain_distances(points: Tensor, centers: Tensor, R: float) -> Tensor:
    x, p = (lift(space, -(R**-2)) for space in (points[:, 1:], centers))
    return dist(x.unsqueeze(1), p, -(R**-2))


_LIFTED = _Operation("lifted", lambda space, R: lift(space, -(R**-2)))
_GATED_POINTS = _Operation("gated_points", _plain_gated_points)
_MIXED_NORM = _Operation("mixed_norm", _plain_mixed_norm)
_MIXED_VIEWS = _Operation("mixed_views", lambda d, a, s, v, G, R: _plain_mixed_views(d, a, s, v, G, -(R**-2)))
_DISTANCES = _Operation("distances", _plain_distances)
