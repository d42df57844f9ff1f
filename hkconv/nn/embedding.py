"""From Euclidean features to points: a linear map into the tangent space at the origin, then exp."""

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.errors import InputError
from hkconv.geometry.lorentz import exp0
from hkconv.nn.common import full_precision, register_curvature


class HEmbedding(torch.nn.Module):
    r"""Hyperbolic embedding :math:`x \mapsto \exp_o([0, W x + b])` (Nagano et al. 2019).

    Args:
        in_features: number of Euclidean features.
        dim: dimension of the points.
        curvature: negative curvature; a ``torch.nn.Parameter`` is learned.

    Shapes: ``(..., in_features) -> (..., dim+1)``.
    """

    def __init__(self, in_features: int, dim: int, *, curvature: float | Tensor = -1.0):
        super().__init__()
        self.in_features, self.dim = in_features, dim
        register_curvature(self, curvature)
        self.linear = torch.nn.Linear(in_features, dim)

    def reset_parameters(self) -> None:
        self.linear.reset_parameters()

    def tangent(self, x: Tensor) -> Tensor:
        """:math:`W x + b`."""
        if x.size(-1) != self.in_features:
            raise InputError(f"x must have {self.in_features} features, got {x.size(-1)}")
        return self.linear(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.place(self.tangent(x))

    def place(self, tangent: Tensor) -> Tensor:
        """The points at the end of tangent vectors at the origin, which are given without their time."""
        with full_precision(tangent) as (tangent,):
            return exp0(F.pad(tangent, (1, 0)), self.curvature)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.in_features}, {self.dim})"
