r"""What layers do to each point by itself, on CUDA: a row of coordinates in, a row out, one kernel each way.

In plain PyTorch HLinear is some thirty small operations forward and fifty backward, and a GPU waits for each of them to
be launched; a hyperbolic transformer has a hundred HLinear. Products of matrices stay PyTorch's, and all that follows
them is in :mod:`hkconv.ops.rows_cuda`. Everywhere else, where a curvature is learned, and for gradients of gradients
the plain forms are taken.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.geometry.centroid import mixed_space
from hkconv.geometry.curvature import Curvature, curvature_radius
from hkconv.geometry.hyperboloid import lift, point_along
from hkconv.ops.backends import choose_backend

# Coordinates of space that one program holds.
WIDEST = 4096


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
        return getattr(_backend(), operation.name)(*tensors, *numbers)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        tensors, needed = ctx.saved_tensors, ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():  # the gradient is to be differentiated itself
            found = _differentiable_gradients(ctx.operation, ctx.numbers, tensors, needed, grad)
        else:
            found = getattr(_backend(), f"{ctx.operation.name}_gradients")(grad.contiguous(), *tensors, *ctx.numbers)
        return None, None, *(gradient if need else None for gradient, need in zip(found, needed))


def _backend() -> ModuleType:
    # Imported when first used: Triton is not everywhere.
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
    """Whether there are kernels for rows like those of ``x``, of so many coordinates of space."""
    if x.device.type != "cuda" or not isinstance(curvature, int | float) or torch.compiler.is_compiling():
        return False
    return 0 < width <= WIDEST and choose_backend("auto", x, None) == "cuda"


def lifted(space: Tensor, curvature: Curvature = -1.0) -> Tensor:
    """:func:`hkconv.geometry.lorentz.lift`, ``(..., n) -> (..., n+1)``."""
    if not are_fused(space, space.size(-1), curvature):
        return lift(space, curvature)
    return _Fused.apply(_LIFTED, (curvature_radius(curvature),), space)


def gated_points(
    products: Tensor, bias: Tensor, gate_bias: Tensor, log_scale: Tensor, curvature: float = -1.0
) -> Tensor:
    r"""What HLinear makes of its products: the points over
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
    normalised over the channels and lifted, as by :class:`hkconv.nn.HNorm` after :func:`hkconv.nn.centroid.mix`.

    Shapes: ``(..., n+1), (..., n+1), () -> (..., n+1)``.
    """
    numbers = norm.eps, curvature_radius(curvature)
    return _Fused.apply(_MIXED_NORM, numbers, first, second, logit, norm.weight, norm.bias)


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


_LIFTED = _Operation("lifted", lambda space, R: lift(space, -(R**-2)))
_GATED_POINTS = _Operation("gated_points", _plain_gated_points)
_MIXED_NORM = _Operation("mixed_norm", _plain_mixed_norm)
