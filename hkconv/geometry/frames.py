r"""Tangent vectors carried along the geodesic to the origin, where they have ``n`` plain coordinates.

At radius :math:`r` a tangent vector of length 1 has coordinates of size :math:`e^r`, and its length is a difference of
squares of that size: in float32 no digit is left from radius 9 on. Carried to the origin it is as long as it looks.
"""

import torch
from torch import Tensor

from hkconv.geometry.curvature import Curvature, curvature_radius
from hkconv.geometry.norm import dot
from hkconv.geometry.relative import excess


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
