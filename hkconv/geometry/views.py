r"""The same space seen in the Poincaré ball and in the Klein model, both of radius :math:`R = 1/\sqrt{-k}`."""

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.geometry.curvature import Curvature, curvature_radius
from hkconv.geometry.hyperboloid import lift


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
