"""Curvature as users pass it: a negative float, a 0-d tensor that may carry a gradient, or one that is learned."""

import math
from typing import TypeAlias, overload

import torch
from torch import Tensor

from hkconv.errors import InputError


class LearnedCurvature(torch.nn.Module):
    r"""A curvature :math:`k = -e^\kappa` that is learned by way of :math:`\kappa`, so that no step of an optimizer
    makes it non-negative, and weight decay draws it to -1 and not to 0. To be passed wherever a curvature is taken.

    Args:
        curvature: where it starts.
    """

    def __init__(self, curvature: float = -1.0):
        super().__init__()
        curvature_radius(curvature)
        self.start = math.log(-curvature)
        self.log_curvature = torch.nn.Parameter(torch.tensor(self.start))

    def reset_parameters(self) -> None:
        torch.nn.init.constant_(self.log_curvature, self.start)

    def radius(self) -> Tensor:
        r""":math:`R = e^{-\kappa/2}`."""
        return (-0.5 * self.log_curvature).exp()

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({-self.log_curvature.exp().item():g})"


#: What every function and layer takes as its curvature.
Curvature: TypeAlias = float | Tensor | LearnedCurvature


@overload
def curvature_radius(curvature: float) -> float: ...


@overload
def curvature_radius(curvature: Tensor | LearnedCurvature) -> Tensor: ...


def curvature_radius(curvature: Curvature) -> float | Tensor:
    r"""The radius :math:`R = 1/\sqrt{-k}` of a hyperbolic space of curvature :math:`k < 0`.

    A float is always checked. A tensor is checked where that costs no synchronization (on the CPU,
    outside a compiled graph); elsewhere a non-negative one shows as NaN.
    """
    if isinstance(curvature, LearnedCurvature):
        return curvature.radius()
    if not isinstance(curvature, Tensor):
        if not -math.inf < curvature < 0:
            raise InputError(f"curvature must be negative and finite, got {curvature}")
        return (-curvature) ** -0.5
    if curvature.dim() != 0:
        raise InputError(f"curvature must be a float or a 0-d tensor, got shape {tuple(curvature.shape)}")
    if not torch.compiler.is_compiling() and curvature.device.type == "cpu" and not -math.inf < curvature < 0:
        raise InputError(f"curvature must be negative and finite, got {curvature.item()}")
    return (-curvature).rsqrt()


def curvature_value(curvature: Curvature) -> float:
    """The curvature as a plain number, without its gradient."""
    if isinstance(curvature, LearnedCurvature):
        return -curvature.log_curvature.detach().exp().item()
    return curvature.detach().item() if isinstance(curvature, Tensor) else float(curvature)
