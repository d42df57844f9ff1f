"""HLinear as a function of its parameters: the fully hyperbolic linear map of Chen et al. (2021), section II-B."""

from collections.abc import Callable
from typing import TypedDict

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.geometry.curvature import Curvature
from hkconv.geometry.lorentz import lift


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


def point_along(direction: Tensor, length: Tensor, curvature: Curvature = -1.0) -> Tensor:
    """The point over the vector of this length along a direction, ``(..., n), (...) -> (..., n+1)``."""
    norm = torch.linalg.vector_norm(direction, dim=-1)
    return lift((length / torch.where(norm == 0, 1, norm)).unsqueeze(-1) * direction, curvature)
