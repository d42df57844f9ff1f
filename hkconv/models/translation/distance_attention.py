r"""Attention between points by their distance, for the systems that compute it outside the fused layers.

Points are those of the hyperboloid of curvature -1, time first. Three means of points are one there: the *Einstein
midpoint* of the Klein model :math:`\sum_j w_j \gamma_j p_j / \sum_j w_j \gamma_j` (Gulcehre et al. 2018), the Möbius
gyromidpoint of the Poincaré ball (Shimizu et al. 2021), and the centroid of the Lorentz model, because
:math:`\gamma = x_t` and :math:`\gamma p = x_s`.
"""

import torch
from torch import Tensor

from hkconv.geometry.lorentz import lift


def attend(query: Tensor, key: Tensor, value: Tensor, seen: Tensor, sharpness: Tensor) -> Tensor:
    r"""The midpoints of values with weights :math:`w_{ij} = \operatorname{softmax}_j(-\beta\, d(q_i, k_j))`.

    Args:
        query: points ``(..., T, n+1)``.
        key: points ``(..., S, n+1)``.
        value: points ``(..., S, n+1)``.
        seen: which keys a query may see, broadcast to ``(..., T, S)``. One that sees none gets the mean of all.
        sharpness: :math:`\beta`, broadcast to ``(..., T, S)``.

    Returns:
        Points ``(..., T, n+1)``.
    """
    score = -sharpness * pairwise_distance(query, key)
    weight = score.masked_fill(~seen, torch.finfo(score.dtype).min).softmax(-1)
    return midpoint(weight, value)


def pairwise_distance(x: Tensor, y: Tensor) -> Tensor:
    r"""Distances of all points of one set to all of another,

    .. math::
        d(x, y) = 2 \operatorname{arsinh}\Big(\tfrac12 |p - q| \sqrt{(1 + x_t)(1 + y_t)}\Big), \qquad
        p = \frac{x_s}{1 + x_t}, \quad q = \frac{y_s}{1 + y_t},

    with the points :math:`p, q` of the Poincaré ball. Nothing of size ``T x S x n`` is stored. The rounding error is
    that of :math:`p`, in float32 :math:`10^{-7} x_t` in units of distance.

    Shapes: ``(..., T, n+1), (..., S, n+1) -> (..., T, S)``.
    """
    far_x, far_y = 1 + x[..., :1], 1 + y[..., :1]
    # By products of matrices, the small differences would be lost.
    gap = torch.cdist(x[..., 1:] / far_x, y[..., 1:] / far_y, compute_mode="donot_use_mm_for_euclid_dist")
    return 2 * torch.asinh(gap / 2 * far_x.sqrt() * far_y.sqrt().mT)


def midpoint(weight: Tensor, value: Tensor) -> Tensor:
    r"""The points :math:`s_i / \sqrt{-\langle s_i, s_i\rangle}`, :math:`s_i = \sum_j w_{ij} v_j`, for weights whose sum
    is 1, so that the root is at least 1.

    Shapes: ``(..., T, S), (..., S, n+1) -> (..., T, n+1)``.
    """
    total = weight @ value
    time, space = total[..., :1], total[..., 1:]
    square = time * time - (space * space).sum(-1, keepdim=True)
    return lift(space * square.clamp(min=1).rsqrt())
