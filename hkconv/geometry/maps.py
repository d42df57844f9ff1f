r"""Exponential and logarithmic maps, parallel transport, and the translation of points built from them.

Tangent vectors carry ``n+1`` coordinates like points; at the origin the first one is zero.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from hkconv.geometry.curvature import Curvature, curvature_radius
from hkconv.geometry.frames import from_origin, to_origin, turn
from hkconv.geometry.hyperboloid import lift
from hkconv.geometry.norm import safe_norm
from hkconv.geometry.relative import excess, ominus, oplus


def max_radius(dtype: torch.dtype) -> float:
    r"""The largest :math:`d(o, x)/R` up to which squares of coordinates stay finite in ``dtype``.

    About 40 in float32 and 319 in float64. Points beyond have no usable coordinates, so the
    exponential maps end there instead of returning infinity: the direction, and its gradient, are kept.
    """
    return 0.45 * math.log(torch.finfo(dtype).max)


def _per_length(v: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """``function(|v|) * v/|v|``, for a function with ``function(r) ~ r`` at 0."""
    norm = safe_norm(v)
    zero = norm == 0
    safe = torch.where(zero, 1, norm)
    return torch.where(zero, 1, function(safe)) * (v / safe)


def exp0(v: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r"""Exponential map at the origin: :math:`[\cdot,\ R \sinh(|v_s|/R)\, v_s/|v_s|]`, time by :func:`lift`.

    Args:
        v: tangent vectors at the origin, ``(..., n+1)`` with ``v_t = 0``.
        curvature: negative curvature.
    """
    R = curvature_radius(curvature)
    limit = max_radius(v.dtype)
    return lift(_per_length(v[..., 1:], lambda r: R * torch.sinh((r / R).clamp(max=limit))), curvature)


def log0(u: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r"""Logarithmic map at the origin: :math:`[0,\ R \operatorname{arsinh}(|u_s|/R)\, u_s/|u_s|]`."""
    R = curvature_radius(curvature)
    space = _per_length(u[..., 1:], lambda r: R * torch.asinh(r / R))
    return torch.cat([torch.zeros_like(u[..., :1]), space], dim=-1)


def exp(x: Tensor, v: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r"""Exponential map :math:`\exp_x(v) = \cosh(\phi) x + \sinh(\phi)/\phi\, v`, :math:`\phi = \sqrt{-k}\,|v|`.

    Computed as :math:`\exp_o(w) \oplus x`, with :math:`w` the vector carried to the origin, so that it shares
    the stable function behind every distance.

    Shapes: ``(..., n+1), (..., n+1) -> (..., n+1)``.
    """
    return exp_carried(x, to_origin(x, v, curvature), curvature)


def exp_carried(x: Tensor, w: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r""":math:`\exp_x(v)` for the vector :math:`w` that :func:`~hkconv.geometry.frames.to_origin` makes of :math:`v`.

    Shapes: ``(..., n+1), (..., n) -> (..., n+1)``.
    """
    limit = curvature_radius(curvature) * math.sinh(max_radius(w.dtype))
    step = exp0(torch.nn.functional.pad(w, (1, 0)), curvature)
    return lift(_per_length(oplus(step, x, curvature)[..., 1:], lambda r: r.clamp(max=limit)), curvature)


def log(x: Tensor, u: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r"""Logarithmic map :math:`\log_x(u)`, the tangent vector at ``x`` that :func:`exp` carries to ``u``.

    Shapes: ``(..., n+1), (..., n+1) -> (..., n+1)``.
    """
    return from_origin(x, log0(ominus(u, x, curvature), curvature)[..., 1:], curvature)


def transport(x: Tensor, y: Tensor, v: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r"""Parallel transport along the geodesic,
    :math:`PT_{x \to y}(v) = v + \frac{\langle y, v\rangle}{R^2 - \langle x, y\rangle}(x + y)`.

    The paper's text lacks the first term. Computed at the origin, where it is a rotation, see
    :func:`~hkconv.geometry.frames.turn`: the sum itself loses all digits in float32 from radius 9 on.

    Shapes: ``(..., n+1), (..., n+1), (..., n+1) -> (..., n+1)``.
    """
    return from_origin(y, turn(x, y, to_origin(x, v, curvature), curvature), curvature)


def translate(x: Tensor, y: Tensor, u: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r"""Translation of points, :math:`T_{x \to y}(u) = \exp_y(PT_{x \to y}(\log_x u))`, equation (3) of the paper.

    As an isometry it is linear in ``u``: with :math:`\delta_{ab}` the excess of two points,
    :math:`T(u) = y + (u - x) + \delta_{xu}(y - x)
    + \frac{\delta_{xu} + \delta_{xu}\delta_{xy} - (\delta_{yu} - \delta_{yx})}{2 + \delta_{xy}}(x + y)`,
    where :math:`\delta_{yu} - \delta_{yx} = -\langle y, u - x\rangle / R^2` is taken without its cancellation.

    Shapes: ``(..., n+1), (..., n+1), (..., n+1) -> (..., n+1)``.
    """
    R2 = curvature_radius(curvature) ** 2
    x_t, x_s, y_t, y_s, u_t, u_s = x[..., :1], x[..., 1:], y[..., :1], y[..., 1:], u[..., :1], u[..., 1:]
    to_u, to_y = excess(x, u, curvature), excess(x, y, curvature)
    D = u_s - x_s
    time_gap = (D * (u_s + x_s)).sum(-1, keepdim=True) / (u_t + x_t)
    gain = (y_t * time_gap - (y_s * D).sum(-1, keepdim=True)) / R2  # excess(y, u) - excess(y, x)
    factor = (to_u + (to_u * to_y - gain)) / (2 + to_y)
    return lift(y_s + (D + to_u * (y_s - x_s) + factor * (x_s + y_s)), curvature)
