"""Curvature as users pass it: a negative float, or a 0-d tensor that may carry a gradient."""

import math

import torch
from torch import Tensor

from hkconv.errors import InputError


def curvature_radius(curvature: float | Tensor) -> float | Tensor:
    r"""The radius :math:`R = 1/\sqrt{-k}` of a hyperbolic space of curvature :math:`k < 0`.

    A float is always checked. A tensor is checked where that costs no synchronisation (on the CPU,
    outside a compiled graph); elsewhere a non-negative one shows as NaN.
    """
    if not isinstance(curvature, Tensor):
        if not -math.inf < curvature < 0:
            raise InputError(f"curvature must be negative and finite, got {curvature}")
        return (-curvature) ** -0.5
    if curvature.dim() != 0:
        raise InputError(f"curvature must be a float or a 0-d tensor, got shape {tuple(curvature.shape)}")
    if not torch.compiler.is_compiling() and curvature.device.type == "cpu" and not -math.inf < curvature < 0:
        raise InputError(f"curvature must be negative and finite, got {curvature.item()}")
    return (-curvature).rsqrt()


def curvature_value(curvature: float | Tensor) -> float:
    """The curvature as a plain number, without its gradient."""
    return curvature.detach().item() if isinstance(curvature, Tensor) else float(curvature)
