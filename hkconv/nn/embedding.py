"""From Euclidean features to points: a linear map into the tangent space at the origin, then exp."""

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.errors import InputError
from hkconv.geometry.checks import check_tensor
from hkconv.geometry.curvature import Curvature, curvature_radius
from hkconv.geometry.lorentz import exp0
from hkconv.nn.common import full_precision, register_curvature


class HEmbedding(torch.nn.Module):
    r"""Hyperbolic embedding :math:`x \mapsto \exp_o([0, W x + b])` (Nagano et al. 2019).

    Nothing keeps training from driving points out, to where float32 no longer tells one from the other and products
    overflow. With ``reach`` :math:`\rho` a tangent vector :math:`u = W x + b` is shortened to
    :math:`\rho R \tanh\bigl(\frac{|u|}{\rho R}\bigr) \frac{u}{|u|}`, smoothly, and by less the shorter it is.

    Args:
        in_features: number of Euclidean features; -1 takes it from the first.
        dim: dimension of the points.
        reach: how far from the origin points may lie, in units of :math:`R`; None for any distance, as in the paper.
        curvature: negative curvature; a ``torch.nn.Parameter`` is learned.

    Shapes: ``(..., in_features) -> (..., dim+1)``.
    """

    curvature: Curvature

    def __init__(self, in_features: int, dim: int, *, reach: float | None = None, curvature: Curvature = -1.0):
        super().__init__()
        if reach is not None and not reach > 0:
            raise InputError(f"reach must be a number above 0 or None, got {reach}")
        self.dim, self.reach = dim, reach
        register_curvature(self, curvature)
        self.linear = torch.nn.LazyLinear(dim) if in_features == -1 else torch.nn.Linear(in_features, dim)

    @property
    def in_features(self) -> int:
        """Number of Euclidean features; -1 before the first."""
        return -1 if isinstance(self.linear, torch.nn.LazyLinear) else self.linear.in_features

    def reset_parameters(self) -> None:
        self.linear.reset_parameters()

    def tangent(self, x: Tensor) -> Tensor:
        """:math:`W x + b`."""
        check_tensor(x, "x")
        if self.in_features not in {-1, x.size(-1)}:
            raise InputError(f"x must have {self.in_features} features, got {x.size(-1)}")
        return self.linear(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.place(self.tangent(x))

    def place(self, tangent: Tensor) -> Tensor:
        """The points at the end of tangent vectors at the origin, which are given without their time."""
        with full_precision(tangent) as (tangent,):
            if self.reach is not None:
                tangent = shortened(tangent, self.reach * curvature_radius(self.curvature))
            return exp0(F.pad(tangent, (1, 0)), self.curvature)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.in_features}, {self.dim})"


def shortened(vector: Tensor, bound: float | Tensor) -> Tensor:
    r"""The same directions with lengths below a bound, :math:`\beta \tanh(|v| / \beta)\, v / |v|`.

    Shapes: ``(..., n), () -> (..., n)``.
    """
    square = vector.square().sum(-1, keepdim=True)
    # The root has no gradient at 0, where the factor is 1 anyway.
    length = torch.where(square > 0, square, 1.0).sqrt()
    return vector * torch.where(square > 0, bound * torch.tanh(length / bound) / length, 1.0)
