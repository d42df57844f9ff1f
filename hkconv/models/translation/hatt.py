"""HATT (Gulcehre et al. 2018, Hyperbolic Attention Networks): a Transformer whose attention is between points."""

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.geometry.lorentz import lift, log0
from hkconv.geometry.maps import max_radius
from hkconv.models.translation.transformer import Attention, Transformer
from hkconv.nn.common import full_precision


def attend(query: Tensor, key: Tensor, value: Tensor, seen: Tensor, sharpness: Tensor) -> Tensor:
    r"""Attention by distance, the midpoints of values with
    weights :math:`w_{ij} = \operatorname{softmax}_j(-\beta\, d(q_i, k_j))`.

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

    Three means are one here: the *Einstein midpoint* of the Klein model
    :math:`\sum_j w_j \gamma_j p_j / \sum_j w_j \gamma_j` (Gulcehre et al. 2018), the Möbius gyromidpoint of the
    Poincaré ball (Shimizu et al. 2021), and the centroid of the Lorentz model, because :math:`\gamma = x_t` and
    :math:`\gamma p = x_s`.

    Shapes: ``(..., T, S), (..., S, n+1) -> (..., T, n+1)``.
    """
    total = weight @ value
    time, space = total[..., :1], total[..., 1:]
    square = time * time - (space * space).sum(-1, keepdim=True)
    return lift(space * square.clamp(min=1).rsqrt())


class HATT(Transformer):
    """The :class:`~hkconv.models.translation.transformer.Transformer` with :class:`HyperbolicAttention` everywhere; all
    else, the states between the layers among it, is Euclidean as in the paper."""

    def make_attention(self) -> "HyperbolicAttention":
        return HyperbolicAttention(self.sizes.dim, self.sizes.num_heads)


class HyperbolicAttention(Attention):
    r"""Attention whose queries, keys and values are points of the hyperboloid. For each head, of dimension :math:`n`,

    .. math::
        \pi(r, u) &= [\cosh r,\ \sinh(r)\, u/|u|], \qquad q_i, k_j, v_j = \pi(W x + b) \\
        w_{ij} &= \operatorname{softmax}_j(-\beta\, d(q_i, k_j)), \qquad
        m_i = \sum_j \frac{w_{ij} \gamma(p_j)}{\sum_l w_{il} \gamma(p_l)}\, p_j, \qquad
        \gamma(p) = \frac{1}{\sqrt{1 - |p|^2}},

    with :math:`p_j` the value in the Klein model and :math:`m_i` the Einstein midpoint. A linear map gives the
    :math:`n+1` pseudo-polar coordinates :math:`(r, u)`, where a negative :math:`r` points the other way.

    The paper has a bias beside :math:`\beta` in the exponent, which a softmax does not notice, and leaves open how a
    midpoint becomes an activation again: here by the logarithm at the origin, before the output map. :math:`\beta` is
    learned for each head.

    Arguments and shapes: as :class:`~hkconv.models.translation.transformer.Attention`.
    """

    def __init__(self, dim: int, num_heads: int):
        super().__init__(dim, num_heads, head_features=dim // num_heads + 1)
        self.log_sharpness = torch.nn.Parameter(torch.zeros(num_heads))

    def _split(self, x: Tensor) -> Tensor:
        return pseudo_polar(super()._split(x))

    def _attend(self, x: Tensor, key: Tensor, value: Tensor, seen: Tensor) -> Tensor:
        sharpness = self.log_sharpness.exp().view(-1, 1, 1)
        with full_precision(self._split(self.query(x)), key, value) as (query, key, value):
            heads = log0(attend(query, key, value, seen, sharpness))[..., 1:]
        return self.out(heads.transpose(1, 2).flatten(2))


def pseudo_polar(x: Tensor) -> Tensor:
    """The point at a distance, the first number, in the direction of the others. Shapes: ``(..., n+1) -> (..., n+1)``.

    Where there is no direction, it is the origin.
    """
    with full_precision(x) as (x,):
        limit = max_radius(x.dtype)
        return lift(torch.sinh(x[..., :1].clamp(-limit, limit)) * F.normalize(x[..., 1:], dim=-1))
