r"""The hyperboloid itself: :math:`\mathbb L^n = \{x : \langle x, x\rangle = 1/k,\ x_t > 0\}`, time first."""

import torch
from torch import Tensor

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
