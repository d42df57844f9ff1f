"""The hyperbolic distance layer (Liu et al. 2019): from points to Euclidean features."""

from collections.abc import Callable

import geoopt
import torch
from torch import Tensor

from hkconv.geometry.checks import check_points
from hkconv.geometry.curvature import Curvature, curvature_value
from hkconv.geometry.lorentz import dist, exp0, lift
from hkconv.geometry.manifold import Lorentz
from hkconv.nn.common import full_precision, register_curvature, relift_
from hkconv.ops import rows
from hkconv.ops.reference import in_pieces


class HDistance(torch.nn.Module):
    r"""Distances to trainable centers, :math:`\mathrm{HCDist}(x) = [d(x, c_1), \dots, d(x, c_\ell)]`.

    Args:
        in_dim: dimension :math:`n` of the points.
        out_features: number :math:`\ell` of centers. ``centers`` is a manifold parameter: train it with
            :class:`hkconv.RiemannianAdam` or an optimizer of geoopt.
        curvature: negative curvature; a ``torch.nn.Parameter`` is learned.

    Shapes: ``(..., n+1) -> (..., out_features)``.
    """

    curvature: Curvature

    def __init__(self, in_dim: int, out_features: int, *, curvature: Curvature = -1.0):
        super().__init__()
        self.in_dim, self.out_features = in_dim, out_features
        register_curvature(self, curvature)
        manifold = Lorentz(curvature_value(curvature))
        start = manifold.origin(out_features, in_dim + 1)
        self.centers = geoopt.ManifoldParameter(start, manifold=manifold)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Centers in random directions at distance about R from the origin."""
        tangent = torch.randn_like(self.centers) * self.in_dim**-0.5
        self.centers.copy_(exp0(tangent, self.curvature))

    def forward(self, x: Tensor) -> Tensor:
        check_points(x, self.in_dim, self.curvature, "x", self)
        with full_precision(x) as (x,):
            if self.out_features <= rows.MOST_CENTERS and rows.are_fused(x, self.in_dim, self.curvature):
                return rows.distances(x, self.centers[..., 1:], curvature_value(self.curvature))
            return self._distances(x, lift(self.centers[..., 1:], self.curvature))

    def _distances(self, x: Tensor, centers: Tensor) -> Tensor:
        # Every point meets every center, coordinate by coordinate.
        return in_pieces(
            lambda part: dist(part.unsqueeze(-2), centers, self.curvature), (x,), x.numel() * self.out_features
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "HDistance":
        super()._apply(fn, recurse)
        relift_(self.centers, self.curvature)
        return self

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.in_dim}, {self.out_features})"
