"""Normalization and activation between hyperbolic layers, on the coordinates that are free: those of space."""

from typing import Literal

import torch
from torch import Tensor
from torch_geometric.nn import BatchNorm

from hkconv.errors import InputError
from hkconv.geometry.checks import check_points
from hkconv.geometry.curvature import Curvature
from hkconv.nn.common import find_activation, full_precision, register_curvature
from hkconv.ops.rows import lifted

NORMS = ("layer", "batch")


class HNorm(torch.nn.Module):
    r"""Standardized and activated space, lifted back to the manifold,

    .. math::
        x' = \begin{bmatrix} \sqrt{|h|^2 + R^2} \\ h \end{bmatrix}, \qquad
        h = \phi\Big(\gamma \odot \frac{x_s - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta\Big),

    with mean :math:`\mu` and variance :math:`\sigma^2` over the channels of a node (``"layer"``), or over the nodes
    for each channel (``"batch"``, running estimates in evaluation). The spatial coordinates of the Lorentz model are a
    global chart, so that any map of them is a map of points; centering by a boost to the centroid and scaling by the
    dispersion (Lou et al. 2020, Bdeir et al. 2023) has one scale for all channels and needs the centroid at every
    step, and what makes the difference in Euclidean networks is a scale for each channel.

    :math:`\gamma` starts at :math:`n^{-1/2}`, which puts points about :math:`|x_s| = 1`, where a fresh HLinear puts
    them. :math:`\epsilon = 10^{-5}`, as in torch, decides for nodes at the origin and for constant channels. A batch of
    one node is normalized by the running estimates. Beyond the paper.

    Args:
        dim: dimension :math:`n` of the points.
        norm: ``"layer"``, ``"batch"``, or None for the activation alone.
        act: activation :math:`\phi`, one of ``hkconv.nn.common.ACTIVATIONS`` or None.
        curvature: negative curvature.

    Shapes: ``(..., n+1) -> (..., n+1)``.
    """

    curvature: Curvature

    def __init__(
        self,
        dim: int,
        norm: Literal["layer", "batch"] | None = None,
        act: str | None = None,
        *,
        curvature: Curvature = -1.0,
    ):
        super().__init__()
        if norm is not None and norm not in NORMS:
            raise InputError(f"norm must be None, {' or '.join(map(repr, NORMS))}, got {norm!r}")
        self.dim, self.kind = dim, norm
        register_curvature(self, curvature)
        self.norm = None
        if norm is not None:
            self.norm = torch.nn.LayerNorm(dim) if norm == "layer" else BatchNorm(dim, allow_single_element=True)
        self.act = None if act is None else find_activation(act)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.norm is not None:
            self.norm.reset_parameters()
            scale = self.norm.module.weight if isinstance(self.norm, BatchNorm) else self.norm.weight
            torch.nn.init.constant_(scale, self.dim**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        check_points(x, self.dim, self.curvature, "x", self)
        with full_precision(x) as (x,):
            space = x[..., 1:]
            if self.norm is not None:
                space = self.norm(space.flatten(0, -2)).view_as(space)
            return lifted(space if self.act is None else self.act(space), self.curvature)

    def __repr__(self) -> str:
        parts = [part for part in (self.norm, self.act) if part is not None]
        return f"{self.__class__.__name__}({', '.join([str(self.dim), *(type(part).__name__ for part in parts)])})"
