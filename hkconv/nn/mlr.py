"""Logits from points: multinomial logistic regression on the hyperboloid."""

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.geometry.checks import check_points
from hkconv.geometry.curvature import Curvature, curvature_radius
from hkconv.geometry.hyperboloid import safe_norm
from hkconv.geometry.lorentz import exp0, ominus
from hkconv.nn.common import describe, full_precision, register_curvature
from hkconv.ops.reference import in_pieces


class HMLR(torch.nn.Module):
    r"""Multinomial logistic regression of points (Ganea et al. 2018, in the Lorentz model Bdeir et al. 2023).

    A class :math:`c` has a hyperplane, through :math:`p_c` at the distance :math:`a_c` from the origin along its normal
    :math:`\hat z_c = z_c / |z_c|`, and its logit is the signed distance from there, times :math:`|z_c|`:

    .. math::
        p_c = \exp_o([0, a_c \hat z_c]), \qquad
        \mathrm{logit}_c(x) = |z_c|\, R \operatorname{arsinh}\big(\hat z_c \cdot (x \ominus p_c)_s / R\big).

    :math:`x \ominus p_c` carries the hyperplane to the origin, so that nothing cancels near it, however far out it is.
    All parameters are Euclidean. :class:`~hkconv.nn.HDistance` has logits that fall with the distance from a center.

    Args:
        in_dim: dimension :math:`n` of the points.
        out_features: number of classes.
        curvature: negative curvature; a ``torch.nn.Parameter`` is learned.

    Shapes: ``(..., n+1) -> (..., out_features)``.
    """

    curvature: Curvature

    def __init__(self, in_dim: int, out_features: int, *, curvature: Curvature = -1.0):
        super().__init__()
        self.in_dim, self.out_features = in_dim, out_features
        register_curvature(self, curvature)
        self.normal = torch.nn.Parameter(torch.empty(out_features, in_dim))
        self.offset = torch.nn.Parameter(torch.empty(out_features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normals of length about 1 in random directions; all hyperplanes through the origin."""
        torch.nn.init.normal_(self.normal, std=self.in_dim**-0.5)
        torch.nn.init.zeros_(self.offset)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of points."""
        check_points(x, self.in_dim, self.curvature, "x", self)
        with full_precision(x) as (x,):
            length = safe_norm(self.normal)
            unit = self.normal / torch.where(length > 0, length, 1)
            foot = exp0(F.pad(self.offset.unsqueeze(-1) * unit, (1, 0)), self.curvature)
            # Every point meets every hyperplane, coordinate by coordinate.
            depth = in_pieces(
                lambda part: (ominus(part.unsqueeze(-2), foot, self.curvature)[..., 1:] * unit).sum(-1),
                (x,),
                x.numel() * self.out_features,
            )
            R = curvature_radius(self.curvature)
            return length.squeeze(-1) * R * torch.asinh(depth / R)

    def __repr__(self) -> str:
        return describe(self, self.in_dim, self.out_features, curvature=self.curvature)
