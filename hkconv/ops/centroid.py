"""The centroid of every group of points at once: HCent over neighbourhoods and over graphs."""

from torch import Tensor

from hkconv.geometry.centroid import effective_weight, project_mean
from hkconv.geometry.curvature import Curvature
from hkconv.geometry.lorentz import lift
from hkconv.geometry.relative import excess


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
    weight = x.new_ones(x.size(0), 1) if weight is None else weight.unsqueeze(-1)
    total = _sum_by(group, weight, size)
    acting = effective_weight(weight, total[group])
    share = acting / _sum_by(group, acting, size)[group]
    mean = lift(_sum_by(group, share * x[:, 1:], size), curvature)
    mean_excess = _sum_by(group, share * excess(x, mean[group], curvature), size)
    point, mass = project_mean(mean, mean_excess, curvature)
    return point, (mass * total).squeeze(-1)
