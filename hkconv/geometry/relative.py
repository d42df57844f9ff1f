r"""One point as seen from another: the single function behind every distance and every ⊖.

The usual forms take the difference of two numbers of size :math:`e^{2r}` and in float32 are wrong by
100 % at radius 8. Written with :math:`D = u_s - x_s`, :math:`S = u_s + x_s`, :math:`p = u_s \cdot x_s`
and :math:`S_\perp`, the part of :math:`S` across :math:`D`, the excess

.. math::
    \delta = -\langle x, u\rangle / R^2 - 1
           = \frac{|D|^2 (4 R^2 + |S_\perp|^2)}{4 R^2 (R^2 + u_t x_t + p)}

has only non-negative terms where :math:`p > -R^2`; elsewhere the plain form does not cancel. Because
:math:`S = 2x_s + D = 2u_s - D`, :math:`S_\perp` is twice the part across :math:`D` of the *shorter* of the two
points, which rounds least.
"""

import torch
from torch import Tensor

from hkconv.geometry.curvature import Curvature, curvature_radius
from hkconv.geometry.hyperboloid import dot


def excess(x: Tensor, u: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r""":math:`\delta = \cosh(d(x,u)/R) - 1 \ge 0`, without cancellation, and 0 with gradient 0 at ``x = u``.

    Shapes: ``(..., n+1), (..., n+1) -> (..., 1)``.
    """
    R2 = curvature_radius(curvature) ** 2
    x_t, x_s, u_t, u_s = x[..., :1], x[..., 1:], u[..., :1], u[..., 1:]
    D, p = u_s - x_s, dot(u_s, x_s)
    # In units of the farther point, so that no square overflows up to a distance of 88 R in float32. The unit
    # drops out of the result and carries no gradient.
    unit = torch.maximum(u_t, x_t).detach()
    step = D / unit
    square = dot(step, step)
    apart = square > 0
    length = torch.where(apart, square, 1).sqrt()
    along = step / length
    shorter = torch.where(u_t < x_t, u_s, x_s)
    across = shorter - dot(shorter, along) * along
    facing = p > -R2
    # The branch not taken must stay finite too: its gradient is multiplied by zero, and inf * 0 is NaN. Factors are
    # multiplied before they are squared, so that no value and no gradient on the way exceeds that of the result.
    reach = torch.where(apart, length, 0) * (unit / (R2 + u_t * x_t + torch.where(facing, p, 0)).sqrt())
    turn = reach * across
    near = reach * reach + dot(turn, turn) / R2
    return torch.where(facing, near, (u_t * x_t - p) / R2 - 1)


def _arcosh1p(delta: Tensor) -> Tensor:
    r""":math:`\operatorname{arcosh}(1 + \delta) = \log(1 + \delta + \sqrt{\delta(\delta + 2)})`."""
    zero = delta == 0
    # Two roots, because the product overflows float32 from radius 22 on.
    root = torch.where(zero, 1, delta).sqrt() * (delta + 2).sqrt()
    return torch.where(zero, 0, torch.log1p(delta + root))


def dist(x: Tensor, y: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r"""Geodesic distance :math:`d(x, y) = R \operatorname{arcosh}(k \langle x, y\rangle)`, equation (1).

    Never negative; exactly 0, with gradient 0, for equal points.

    Shapes: ``(..., n+1), (..., n+1) -> (...)``.
    """
    R = curvature_radius(curvature)
    return R * _arcosh1p(excess(x, y, curvature)).squeeze(-1)


def ominus(u: Tensor, x: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r"""``u`` as seen from ``x``: :math:`u \ominus x = \exp_o(PT_{x \to o}(\log_x u))`, equation (4) of the paper.

    It is the Lorentz boost that carries ``x`` to the origin,
    :math:`[R(1 + \delta),\ D - (c - 1) x_s]` with
    :math:`c - 1 = ((u_t - x_t) + R\delta) / (R + x_t)` and :math:`u_t - x_t = D \cdot S / (u_t + x_t)`.

    Shapes: ``(..., n+1), (..., n+1) -> (..., n+1)``.
    """
    R = curvature_radius(curvature)
    x_t, x_s, u_t, u_s = x[..., :1], x[..., 1:], u[..., :1], u[..., 1:]
    D = u_s - x_s
    delta = excess(x, u, curvature)
    time_gap = dot(D, u_s + x_s) / (u_t + x_t)
    space = D - (time_gap + R * delta) / (R + x_t) * x_s
    return torch.cat([R * (1 + delta), space], dim=-1)


def oplus(z: Tensor, x: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r"""``z``, seen from the origin, placed around ``x``: :math:`T_{o \to x}(z)`, the inverse of :func:`ominus`.

    It is ⊖ by the point opposite to ``x``.

    Shapes: ``(..., n+1), (..., n+1) -> (..., n+1)``.
    """
    opposite = torch.cat([x[..., :1], -x[..., 1:]], dim=-1)
    return ominus(z, opposite, curvature)
