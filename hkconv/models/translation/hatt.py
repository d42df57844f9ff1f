"""HATT (Gulcehre et al. 2018, Hyperbolic Attention Networks): a Transformer whose attention is between points."""

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.geometry.lorentz import lift, log0
from hkconv.geometry.maps import max_radius
from hkconv.models.translation.attention import Attention
from hkconv.models.translation.distance_attention import attend
from hkconv.models.translation.transformer import DecoderLayer, EncoderLayer, Transformer
from hkconv.nn.common import full_precision


class HATT(Transformer):
    """The :class:`~hkconv.models.translation.transformer.Transformer` with :class:`HyperbolicAttention` everywhere; all
    else, the states between the layers among it, is Euclidean as in the paper."""

    def make_encoder_layer(self, number: int) -> EncoderLayer:
        return EncoderLayer(self.sizes, HyperbolicAttention(self.sizes.dim, self.sizes.num_heads))

    def make_decoder_layer(self, number: int) -> DecoderLayer:
        attentions = (HyperbolicAttention(self.sizes.dim, self.sizes.num_heads) for _ in range(2))
        return DecoderLayer(self.sizes, *attentions)


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

    Arguments and shapes: as :class:`~hkconv.models.translation.attention.Attention`.
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
