"""Pooling by centroids, and what the centroid forgets: its mass."""

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.geometry.centroid import mixed_space
from hkconv.geometry.curvature import Curvature
from hkconv.nn.common import full_precision
from hkconv.ops.centroid import segment_centroid
from hkconv.ops.rows import lifted


def global_centroid_pool(
    x: Tensor, batch: Tensor | None, size: int | None = None, *, curvature: Curvature = -1.0
) -> Tensor:
    r"""One point a graph: :math:`\mathrm{HCent}` of all its nodes with equal weights.

    Args:
        x: points, ``(N, n+1)``.
        batch: graph of each node, ``(N,)``, or None for a single graph.
        size: number of graphs; ``batch.max() + 1`` if not given. A graph without nodes gives the origin.
        curvature: negative curvature.

    Shapes: ``(N, n+1) -> (size, n+1)``.
    """
    return pool_with_mass(x, batch, size, curvature=curvature)[0]


def pool_with_mass(
    x: Tensor, batch: Tensor | None, size: int | None = None, *, curvature: Curvature = -1.0
) -> tuple[Tensor, Tensor]:
    """:func:`global_centroid_pool` together with the mass of each graph, ``(size,)``."""
    if batch is None:
        batch, size = torch.zeros(x.size(0), dtype=torch.long, device=x.device), 1
    if batch.shape != x.shape[:1]:
        raise InputError(f"batch must have shape ({x.size(0)},), got {tuple(batch.shape)}")
    if size is None:
        size = int(batch.max()) + 1 if batch.numel() else 0
    with full_precision(x) as (x,):
        return segment_centroid(x, batch.long(), size, curvature=curvature)


def mix(first: Tensor, second: Tensor, logit: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r"""The centroid of two points with the weights :math:`1 - \sigma(\beta)` and :math:`\sigma(\beta)`.

    Shapes: ``(..., n+1), (..., n+1), () -> (..., n+1)``.
    """
    return lifted(mixed_space(first, second, logit, curvature), curvature)


class MassScaling(torch.nn.Module):
    r"""Give a centroid :math:`c` back its mass :math:`M`: how many points there were and how spread out,

    .. math:: c_s \mapsto (1 + a \log(1 + M)) \odot c_s + b \log(1 + M),

    lifted back to the manifold, with learned :math:`a, b \in \mathbb R^n` that start at zero. Beyond the paper,
    which divides by :math:`M` and forgets it. Pooling uses the same :math:`\log(1 + M)` and not :math:`\log M`: they
    differ by at most :math:`\log 2`, and a graph without nodes, of mass 0, has only the first.

    Shapes: ``(..., n+1), (...) -> (..., n+1)``.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.empty(dim))
        self.shift = torch.nn.Parameter(torch.empty(dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        torch.nn.init.zeros_(self.scale)
        torch.nn.init.zeros_(self.shift)

    def forward(self, point: Tensor, mass: Tensor, curvature: Curvature = -1.0) -> Tensor:
        amount = torch.log1p(mass).unsqueeze(-1)
        return lifted((1 + self.scale * amount) * point[..., 1:] + self.shift * amount, curvature)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.scale.numel()})"
