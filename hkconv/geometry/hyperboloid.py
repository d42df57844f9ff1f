r"""The hyperboloid itself: :math:`\mathbb L^n = \{x : \langle x, x\rangle = 1/k,\ x_t > 0\}`, time first, and its
views in the Poincaré ball and in the Klein model, both of radius :math:`R = 1/\sqrt{-k}`."""

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.geometry.curvature import Curvature, curvature_radius


def inner(x: Tensor, y: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r"""Lorentz inner product :math:`\langle x, y\rangle = -x_t y_t + x_s \cdot y_s`.

    It does not depend on the curvature, which is taken so that all functions here are called alike.
    For two points use :func:`~hkconv.geometry.relative.dist` instead: this difference of large
    numbers loses all digits in float32 from radius 8 on.

    Shapes: ``(..., n+1), (..., n+1) -> (...)``.
    """
    curvature_radius(curvature)
    return (x[..., 1:] * y[..., 1:]).sum(-1) - x[..., 0] * y[..., 0]


def lift(s: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r"""The point over given spatial coordinates: :math:`[\sqrt{R^2 + |s|^2},\ s]`.

    Shapes: ``(..., n) -> (..., n+1)``.
    """
    R = curvature_radius(curvature)
    time = (R * R + (s * s).sum(-1, keepdim=True)).sqrt()
    return torch.cat([time, s], dim=-1)


def point_along(direction: Tensor, length: Tensor, curvature: Curvature = -1.0) -> Tensor:
    """The point over the vector of a length along a direction; the origin along none.

    Shapes: ``(..., n), (...) -> (..., n+1)``.
    """
    norm = torch.linalg.vector_norm(direction, dim=-1)
    return lift((length / torch.where(norm == 0, 1, norm)).unsqueeze(-1) * direction, curvature)


def rescale(x: Tensor, curvature: Curvature, new_curvature: Curvature) -> Tensor:
    r"""Points of one hyperboloid on another, :math:`x R'/R`: all distances change by that factor.

    Shapes: ``(..., n+1) -> (..., n+1)``.
    """
    if curvature is new_curvature:
        return x
    return x * (curvature_radius(new_curvature) / curvature_radius(curvature))


def origin(
    n: int,
    curvature: Curvature = -1.0,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    r"""The origin :math:`o = [R, 0, \dots, 0]` of :math:`\mathbb L^n`, a tensor of ``n+1`` coordinates."""
    return lift(torch.zeros(n, dtype=dtype, device=device), curvature)


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Product over the last dimension, kept as size 1."""
    return (a * b).sum(-1, keepdim=True)


def safe_norm(v: Tensor) -> Tensor:
    """Norm over the last dimension, kept as size 1, with gradient 0 at 0.

    Scaling by the largest coordinate keeps the squares finite for any finite vector; the scale carries no
    gradient because the norm does not depend on it.
    """
    largest = v.detach().abs().amax(-1, keepdim=True)
    zero = largest == 0
    scaled = v / torch.where(zero, 1, largest)
    square = (scaled * scaled).sum(-1, keepdim=True)
    return largest * torch.where(zero, 1, square).sqrt()


def to_poincare(x: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r"""Stereographic projection :math:`p = R x_s / (R + x_t)`. Shapes: ``(..., n+1) -> (..., n)``."""
    R = curvature_radius(curvature)
    return R * x[..., 1:] / (R + x[..., :1])


def from_poincare(p: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r"""Inverse of :func:`to_poincare`: :math:`x_s = 2 R^2 p / (R^2 - |p|^2)`. Shapes: ``(..., n) -> (..., n+1)``."""
    R = curvature_radius(curvature)
    return lift(2 * R * R * p / _room_to_boundary(p, R, "Poincaré"), curvature)


def to_klein(x: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r"""Central projection :math:`p = R x_s / x_t`. Shapes: ``(..., n+1) -> (..., n)``."""
    return curvature_radius(curvature) * x[..., 1:] / x[..., :1]


def from_klein(p: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r"""Inverse of :func:`to_klein`: :math:`x_s = R p / \sqrt{R^2 - |p|^2}`. Shapes: ``(..., n) -> (..., n+1)``."""
    R = curvature_radius(curvature)
    return lift(R * p / _room_to_boundary(p, R, "Klein").sqrt(), curvature)


def _room_to_boundary(p: Tensor, R: float | Tensor, model: str) -> Tensor:
    r""":math:`R^2 - |p|^2 = (R - |p|)(R + |p|)`, which must be positive."""
    norm = torch.linalg.vector_norm(p, dim=-1, keepdim=True)
    if not torch.compiler.is_compiling() and p.device.type == "cpu" and not (norm < R).all():
        raise InputError(f"points of the {model} ball must have norm below {float(R):g}, got {norm.max().item():g}")
    return (R - norm) * (R + norm)
