"""Activation and dropout of points, as layers: of their space, after which time is computed anew."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.geometry.checks import check_points
from hkconv.geometry.curvature import Curvature
from hkconv.nn.common import check_rate, describe, find_activation, full_precision, register_curvature
from hkconv.ops.rows import lifted


class HActivation(torch.nn.Module):
    r"""The points :math:`\mathrm{lift}(\phi(x_s))`. :class:`~hkconv.nn.HNorm` has a normalization before it.

    Args:
        act: activation :math:`\phi`, one of ``hkconv.nn.common.ACTIVATIONS`` or a callable.
        curvature: negative curvature.

    Shapes: ``(..., n+1) -> (..., n+1)``.
    """

    curvature: Curvature

    def __init__(self, act: str | Callable[[Tensor], Tensor] = "relu", *, curvature: Curvature = -1.0):
        super().__init__()
        self.act = find_activation(act)
        register_curvature(self, curvature)

    def forward(self, x: Tensor) -> Tensor:
        """Return points with an activated space."""
        check_points(x, x.size(-1) - 1, self.curvature, "x", self)
        with full_precision(x) as (x,):
            return lifted(self.act(x[..., 1:]), self.curvature)

    def __repr__(self) -> str:
        return describe(self, act=self.act, curvature=self.curvature)


class HDropout(torch.nn.Module):
    r"""The points :math:`\mathrm{lift}(m \odot x_s / (1 - p))` in training, a coordinate of :math:`m` being 0 with
    probability :math:`p` and 1 otherwise; the points themselves in evaluation.

    :class:`~hkconv.nn.HKConv` and :class:`~hkconv.nn.HKBlock` have it for their input, by their own ``dropout``.

    Args:
        p: rate.
        curvature: negative curvature.

    Shapes: ``(..., n+1) -> (..., n+1)``.
    """

    curvature: Curvature

    def __init__(self, p: float = 0.5, *, curvature: Curvature = -1.0):
        super().__init__()
        check_rate(p)
        self.p = p
        register_curvature(self, curvature)

    def forward(self, x: Tensor) -> Tensor:
        """Return points without some of their coordinates."""
        check_points(x, x.size(-1) - 1, self.curvature, "x", self)
        if not self.training or self.p == 0:
            return x
        with full_precision(x) as (x,):
            return lifted(F.dropout(x[..., 1:], self.p), self.curvature)

    def __repr__(self) -> str:
        return describe(self, p=self.p, curvature=self.curvature)
