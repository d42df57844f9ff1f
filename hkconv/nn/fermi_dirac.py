"""The Fermi-Dirac decoder: how likely two points are linked, by how near they are (Krioukov et al. 2010)."""

import math

import torch
from torch import Tensor

from hkconv.geometry.curvature import Curvature
from hkconv.geometry.lorentz import dist
from hkconv.nn.common import full_precision, register_curvature


class FermiDirac(torch.nn.Module):
    r"""Logits of :math:`p(u \sim v) = 1 / (1 + \exp((d^2(u, v) - r)/t))`, that is :math:`(r - d^2(u, v))/t`.

    The radius :math:`r` and the temperature :math:`t > 0` are learned; they start at 2 and, as in HGCN, 1.

    Args:
        temperature: where :math:`t` starts.
        curvature: negative curvature.

    Shapes: ``(..., n+1), (..., n+1) -> (...)``.
    """

    curvature: Curvature

    def __init__(self, *, temperature: float = 1.0, curvature: Curvature = -1.0):
        super().__init__()
        self.start_temperature = temperature
        register_curvature(self, curvature)
        self.radius = torch.nn.Parameter(torch.empty(()))
        self.log_temperature = torch.nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        torch.nn.init.constant_(self.radius, 2.0)
        torch.nn.init.constant_(self.log_temperature, math.log(self.start_temperature))

    def forward(self, u: Tensor, v: Tensor) -> Tensor:
        with full_precision(u, v) as (u, v):
            return (self.radius - dist(u, v, self.curvature).square()) * (-self.log_temperature).exp()

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}()"
