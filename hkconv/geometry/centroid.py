r"""The weighted centroid of points (Law et al. 2019), the paper's HCent, without its cancellation.

HCent divides :math:`s = \sum_i \nu_i x_i` by :math:`\sqrt{-k}\,\sqrt{-\langle s, s\rangle}`. That inner product
is a difference of large numbers. With :math:`\mu` the lifted weighted mean of the spatial parts and
:math:`\bar\delta` the weighted mean of the excesses :math:`\delta(x_i, \mu)`,

.. math::
    -\langle s, s\rangle / (\textstyle\sum\nu)^2 = R^2 + a (a + 2\mu_t), \qquad a = R^2 \bar\delta / \mu_t,

in which every term is non-negative.
"""

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.geometry.curvature import Curvature, curvature_radius
from hkconv.geometry.hyperboloid import lift
from hkconv.geometry.relative import excess


def project_mean(mean: Tensor, mean_excess: Tensor, curvature: Curvature = -1.0) -> tuple[Tensor, Tensor]:
    r"""From the weighted mean :math:`\mu` (lifted) and :math:`\bar\delta` to the centroid and its mass.

    Returns:
        The centroid ``(..., n+1)``, and the mass for unit total weight
        :math:`\sqrt{-\langle s, s\rangle} / (R \sum\nu) \ge 1`, ``(..., 1)``, which is 1 where all points coincide.
    """
    R = curvature_radius(curvature)
    mean_t = mean[..., :1]
    a = R * R * mean_excess / mean_t
    mass = (1 + a * (a + 2 * mean_t) / (R * R)).sqrt()
    return lift(mean[..., 1:] / mass, curvature), mass


def mixed_space(first: Tensor, second: Tensor, logit: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r"""The space of the centroid of two points with the weights :math:`1 - \sigma(\beta)` and :math:`\sigma(\beta)`.

    With :math:`D = x - y` the norm is
    :math:`-\|(1 - \sigma) x + \sigma y\|_L^2 = R^2 + \sigma (1 - \sigma) \|D\|_L^2`, where
    :math:`\|D\|_L^2 \ge 0` is a difference of squares of *gaps*, so that nothing is lost for points that are near.

    Shapes: ``(..., n+1), (..., n+1), () -> (..., n)``.
    """
    share, rest = torch.sigmoid(logit), torch.sigmoid(-logit)
    gap = first - second
    square = (gap[..., 1:].square().sum(-1, keepdim=True) - gap[..., :1].square()).clamp(min=0)
    mass = (1 + share * rest * square / curvature_radius(curvature) ** 2).sqrt()
    return (rest * first[..., 1:] + share * second[..., 1:]) / mass


def effective_weight(weight: Tensor, largest: Tensor) -> Tensor:
    """Weights as they act: in units of the largest of their centroid; where all vanish, all points count alike.

    A centroid does not depend on the unit, and the inverse of a sum of subnormal weights would not be finite.
    """
    some = largest != 0  # NaN stays NaN
    return torch.where(some, weight / torch.where(some, largest, 1), 1)


def centroid(x: Tensor, weight: Tensor | None = None, dim: int = -2, curvature: Curvature = -1.0) -> Tensor:
    r"""Weighted centroid :math:`\mathrm{HCent}(\{x_i\}, \nu) = s / (\sqrt{-k}\,|\,\|s\|_L\,|)`,
    :math:`s = \sum_i \nu_i x_i`.

    It minimizes the *squared Lorentzian distance* :math:`\sum_i \nu_i |x_i - \mu|_L^2`. The centroid of
    nothing is the origin; where all weights vanish it is the unweighted centroid.

    Args:
        x: points, ``(..., n+1)``.
        weight: non-negative weights of shape ``x.shape[:-1]`` (broadcast), or None for equal ones.
        dim: the dimension of ``x`` to reduce, not the last.
        curvature: negative curvature.
    """
    return centroid_and_mass(x, weight, dim, curvature)[0]


def centroid_and_mass(
    x: Tensor, weight: Tensor | None = None, dim: int = -2, curvature: Curvature = -1.0
) -> tuple[Tensor, Tensor]:
    r"""The :func:`centroid` and its mass :math:`M = \|s\|_L / R`, of shape ``(...)`` without ``dim``.

    The mass is the total weight where the points coincide, and larger the further they are apart.
    """
    dim = dim % x.dim()
    if dim == x.dim() - 1:
        raise InputError("dim must not be the last dimension of x, which holds the coordinates")
    if weight is None:
        weight = x.new_ones(x.shape[:-1])
    weight = weight.expand(x.shape[:-1]).unsqueeze(-1)
    total = weight.sum(dim, keepdim=True)
    largest = weight.detach().amax(dim, keepdim=True) if x.size(dim) else total
    share = effective_weight(weight, largest)
    share = share / share.sum(dim, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)  # 0/0 of an empty sum
    mean = lift((share * x[..., 1:]).sum(dim, keepdim=True), curvature)
    mean_excess = (share * excess(x, mean, curvature)).sum(dim, keepdim=True)
    point, mass = project_mean(mean, mean_excess, curvature)
    return point.squeeze(dim), (mass * total).squeeze(dim).squeeze(-1)
