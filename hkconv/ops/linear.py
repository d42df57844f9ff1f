"""HLinear as a function of its parameters: the fully hyperbolic linear map of Chen et al. (2021), section II-B."""

from collections.abc import Callable
from typing import TypedDict

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.geometry.curvature import Curvature
from hkconv.geometry.hyperboloid import point_along
from hkconv.ops.rows import gated_points


class LinearTensors(TypedDict):
    """The parameters of :func:`hyperbolic_linear` by name."""

    weight: Tensor
    bias: Tensor | None
    gate_weight: Tensor
    gate_bias: Tensor | None
    log_scale: Tensor


def hyperbolic_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    gate_weight: Tensor,
    gate_bias: Tensor | None,
    log_scale: Tensor,
    act: Callable[[Tensor], Tensor] | None = None,
    curvature: Curvature = -1.0,
) -> Tensor:
    r"""The point over :math:`h(x) = \lambda\,\sigma(v \cdot x + b')\, \frac{W\tau(x) + b}{|W\tau(x) + b|}`.

    Args:
        x: points, ``(..., m+1)``.
        weight: ``W``, ``(n, m+1)``, or ``(K, n, m+1)`` for K maps at once.
        bias: ``b``, ``(n,)`` or ``(K, n)``.
        gate_weight: ``v``, ``(m+1,)`` or ``(K, m+1)``.
        gate_bias: ``b'``, ``()`` or ``(K,)``.
        log_scale: logarithm of ``λ``, ``()`` or ``(K,)``.
        act: the activation ``τ``.
        curvature: negative curvature.

    Returns:
        Points, ``(..., n+1)`` or ``(..., K, n+1)``; the origin where ``Wτ(x) + b = 0``.
    """
    n, coordinates = weight.shape[-2:]
    kernels = weight.shape[:-2]
    activated = x if act is None else act(x)
    # The direction has no scale. Taking far inputs in units of their size keeps its square finite for all of them.
    unit = activated.detach().abs().amax(-1, keepdim=True).clamp(min=1)
    direction = F.linear(activated / unit, weight.reshape(-1, coordinates)).unflatten(-1, (*kernels, n))
    if bias is not None:
        direction = direction + bias / unit.unflatten(-1, (1,) * (len(kernels) + 1))
    gate = F.linear(x, gate_weight.reshape(-1, coordinates)).unflatten(-1, (*kernels, 1))
    gate = gate if gate_bias is None else gate + gate_bias.unsqueeze(-1)
    return point_along(direction, log_scale.exp() * torch.sigmoid(gate.squeeze(-1)), curvature)


def fused_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    gate_weight: Tensor,
    gate_bias: Tensor,
    log_scale: Tensor,
    act: Callable[[Tensor], Tensor] | None,
    curvature: float,
) -> Tensor:
    """:func:`hyperbolic_linear` where there are kernels, see :mod:`hkconv.ops.rows`: one for all after the products.

    Where directions and gates see the same input they are one product.
    """
    *kernels, n, coordinates = weight.shape
    weights = weight.reshape(-1, coordinates), gate_weight.reshape(-1, coordinates)
    if act is None:
        products = F.linear(x, torch.cat(weights))
    else:
        products = torch.cat([F.linear(act(x), weights[0]), F.linear(x, weights[1])], dim=-1)
    parameters = bias.reshape(-1, n), gate_bias.reshape(-1), log_scale.reshape(-1)
    points = gated_points(products.reshape(-1, products.size(-1)), *parameters, curvature)
    return points.view(*x.shape[:-1], *kernels, n + 1)
