"""The centroid of every group of points at once: HCent over neighborhoods and over graphs."""

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.geometry.centroid import effective_weight, project_mean
from hkconv.geometry.curvature import Curvature, curvature_radius
from hkconv.geometry.lorentz import lift
from hkconv.geometry.relative import excess
from hkconv.ops.edge_sums import neighbor_sum
from hkconv.ops.neighbors import Neighbors


def _sum_by(group: Tensor, values: Tensor, size: int) -> Tensor:
    return values.new_zeros(size, *values.shape[1:]).index_add(0, group, values)


def segment_centroid(
    x: Tensor, group: Tensor, size: int, weight: Tensor | None = None, curvature: Curvature = -1.0
) -> tuple[Tensor, Tensor]:
    r"""Centroid and mass of each group, as :func:`hkconv.geometry.centroid.centroid_and_mass` defines them.

    Args:
        x: points, ``(E, n+1)``.
        group: the group of each point, ``(E,)``, in ``[0, size)``.
        size: number of groups. An empty one has the origin as its centroid, with mass 0.
        weight: non-negative weights, ``(E,)``, or None for equal ones.
        curvature: negative curvature.

    Returns:
        Points ``(size, n+1)`` and masses ``(size,)``.
    """
    acting = x.new_ones(x.size(0), 1)
    weight = None if weight is None else weight.to(x.dtype).unsqueeze(-1)
    total = _sum_by(group, acting if weight is None else weight, size)
    if weight is not None:
        largest = torch.zeros_like(total).scatter_reduce(0, group.unsqueeze(-1), weight.detach(), "amax")
        acting = effective_weight(weight, largest[group])
    share = acting / _sum_by(group, acting, size)[group]
    mean = lift(_sum_by(group, share * x[:, 1:], size), curvature)
    mean_excess = _sum_by(group, share * excess(x, mean[group], curvature), size)
    point, mass = project_mean(mean, mean_excess, curvature)
    return point, (mass * total).squeeze(-1)


def neighbor_centroid(x: Tensor, neighbors: Neighbors, weight: Tensor | None, curvature: Curvature = -1.0) -> Tensor:
    r"""The centroid of the neighbors of each target, by one sum over the edges.

    With :math:`s = \sum_j w_j x_j / R` and :math:`r = s_s / s_t`, the Klein coordinates of the centroid, its space is
    :math:`R\, r / \sqrt{1 - |r|^2}`. The difference under the root is only right to :math:`s_t^2` roundings, so that
    the sum is taken in float64, from the space coordinates: points at radius 8 keep nine digits of the root. It is at
    least :math:`(\sum_j w_j / s_t)^2`, since no two points have a product above :math:`-R^2`, and is kept there where
    even float64 loses it.

    Args:
        x: points of the sources, ``(N_source, n+1)``.
        neighbors: who is whose neighbor.
        weight: as they act on a centroid, ``(E,)`` in the order by target, or None for equal ones.
        curvature: negative curvature.

    Returns:
        Points ``(N_target, n+1)``, the origin where there is no neighbor.
    """
    R = curvature_radius(curvature)
    rows = F.pad(lift(x[:, 1:].double() / R), (0, 1), value=1.0)
    sums = neighbor_sum(rows, None if weight is None else weight.double(), neighbors)
    time = torch.where(sums[:, :1] > 0, sums[:, :1], 1)
    klein, least = sums[:, 1:-1] / time, sums[:, -1:] / time
    square, bound = 1 - klein.square().sum(-1, keepdim=True), least.square()
    # At the bound, where all weight is at one point, the gradient is that of the difference: other weights may grow.
    kept = square + (bound - square).clamp(min=0).detach()
    root = torch.where(square > 0.999 * bound, kept, bound).sqrt()
    return lift((klein * (R / root)).to(x.dtype), curvature)


def kernel_centroid(x: Tensor, weight: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r"""Centroid of a few outputs of HLinear, ``(E, K, n+1), (E, K) -> (E, n+1)``.

    Because HLinear bounds its outputs by :math:`\lambda`, the shorter form
    :math:`-\langle s, s\rangle/(\sum\nu)^2 = R^2 + \mathrm{Var}(x_s) - \mathrm{Var}(x_t)` is accurate here; it
    spares most of the work of the general centroid on tensors of size E x K x n.
    """
    weight = effective_weight(weight, weight.detach().amax(-1, keepdim=True))
    share = (weight / weight.sum(-1, keepdim=True)).unsqueeze(-1)
    mean = (share * x).sum(1, keepdim=True)
    spread = (x - mean).square()
    variance = (share * (spread[..., 1:].sum(-1, keepdim=True) - spread[..., :1])).sum(1)
    mass = (1 + variance / curvature_radius(curvature) ** 2).sqrt()
    return lift(mean[:, 0, 1:] / mass, curvature)
