r"""Exponential and logarithmic maps, parallel transport, and the translation of points built from them.

Tangent vectors carry ``n+1`` coordinates like points; at the origin the first one is zero. At radius :math:`r` a
tangent vector of length 1 has coordinates of size :math:`e^r`, and its length is a difference of squares of that size:
in float32 no digit is left from radius 9 on. Carried to the origin, with ``n`` plain coordinates, it is as long as it
looks.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from hkconv.geometry.curvature import Curvature, curvature_radius
from hkconv.geometry.hyperboloid import dot, lift, safe_norm
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
    r""":math:`\exp_x(v)` for the vector :math:`w` that :func:`to_origin` makes of :math:`v`.

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
    :func:`turn`: the sum itself loses all digits in float32 from radius 9 on.

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


def to_origin(x: Tensor, v: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r""":math:`PT_{x \to o}(v)` without its time, which is 0: :math:`v_s - \frac{x_s \cdot v_s}{x_t (R + x_t)} x_s`.

    The time of ``v`` follows from its space, :math:`v_t = x_s \cdot v_s / x_t`, and is not read.

    Shapes: ``(..., n+1), (..., n+1) -> (..., n)``.
    """
    x_t, x_s, v_s = x[..., :1], x[..., 1:], v[..., 1:]
    return v_s - dot(x_s, v_s) / x_t / (curvature_radius(curvature) + x_t) * x_s


def from_origin(x: Tensor, w: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r""":math:`PT_{o \to x}`, the inverse of :func:`to_origin`: time :math:`x_s \cdot w / R`.

    Shapes: ``(..., n+1), (..., n) -> (..., n+1)``.
    """
    R = curvature_radius(curvature)
    x_t, x_s = x[..., :1], x[..., 1:]
    time = dot(x_s, w) / R
    return torch.cat([time, w + time / (R + x_t) * x_s], dim=-1)


def gradient_at_origin(x: Tensor, gradient: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r"""The Riemannian gradient at ``x``, carried to the origin, of a function with Euclidean gradient :math:`g`:
    :math:`g_s + \frac{1}{R}\left(g_t + \frac{g_s \cdot x_s}{R + x_t}\right) x_s`.

    Shapes: ``(..., n+1), (..., n+1) -> (..., n)``.
    """
    R = curvature_radius(curvature)
    x_t, x_s, g_t, g_s = x[..., :1], x[..., 1:], gradient[..., :1], gradient[..., 1:]
    return g_s + (g_t + dot(g_s, x_s) / (R + x_t)) / R * x_s


def turn(x: Tensor, y: Tensor, w: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r"""Parallel transport from ``x`` to ``y`` of a vector carried to the origin: a rotation, for it keeps lengths.

    It turns by the area of the triangle :math:`oxy`, from ``y`` towards ``x``. With :math:`D_\perp` the part of
    :math:`y_s - x_s` across :math:`x_s`, :math:`s = x_s / (R + x_t)` and
    :math:`e = D_\perp (R + x_t) / (R^2 (2 + \delta_{xy}) + R (x_t + y_t))`, half the angle has the tangent
    :math:`|s| |e|`, and

    .. math::
        w + \frac{2}{1 + |s|^2 |e|^2}
            \left((w \cdot e - |e|^2\, w \cdot s)\, s - (w \cdot s + |s|^2\, w \cdot e)\, e\right).

    Shapes: ``(..., n+1), (..., n+1), (..., n) -> (..., n)``.
    """
    R = curvature_radius(curvature)
    x_t, y_t = x[..., :1], y[..., :1]
    s = x[..., 1:] / (R + x_t)
    s_square = dot(s, s)
    apart = y[..., 1:] - x[..., 1:]
    across = apart - dot(apart, s) / torch.where(s_square > 0, s_square, 1) * s
    e = across * ((R + x_t) / (R * R * (2 + excess(x, y, curvature)) + R * (x_t + y_t)))
    e_square, along_s, along_e = dot(e, e), dot(w, s), dot(w, e)
    by_s, by_e = along_e - along_s * e_square, -along_s - along_e * s_square
    return w + 2 / (1 + s_square * e_square) * (by_s * s + by_e * e)
