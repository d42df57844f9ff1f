"""HGCN (Chami et al. 2019, Hyperbolic Graph Convolutional Neural Networks), in the Lorentz model."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.errors import InputError
from hkconv.geometry.curvature import Curvature, curvature_radius
from hkconv.geometry.lorentz import exp0, lift, log0, oplus
from hkconv.models.baselines.hyperbolic import HyperbolicBaseline, HyperbolicConv
from hkconv.nn.common import find_activation
from hkconv.nn.embedding import shortened
from hkconv.ops.edge_sums import (
    at_source,
    at_target,
    neighbor_sum,
    square_distance,
    target_max,
    target_sum,
)
from hkconv.ops.neighbors import Neighbors

# As in graph attention networks (Veličković et al. 2018), from which HGCN takes its attention.
NEGATIVE_SLOPE = 0.2
# How far the network's tangent vectors reach, in units of R. Without a bound its trainings end at radius 40, where
# float32 overflows; the authors' program takes no hyperbolic cosine of anything above 15.
REACH = 15.0


class HGCNConv(HyperbolicConv):
    r"""A layer of HGCN :math:`\mathbb L^m \to \mathbb L^n`: a linear map in the tangent space of the origin, attention
    over the neighbours in the tangent space of each node, and an activation in that of the origin again,

    .. math::
        \bar h_i &= \exp_o(W \operatorname{dropout}(\log_o x_i)), \qquad
        h_i = \exp_{\bar h_i}(PT_{o \to \bar h_i}(b)) \\
        w_{ij} &= \operatorname{softmax}_{j \in N(i) \cup \{i\}}
                  \operatorname{LeakyReLU}(p \cdot \log_o h_i + q \cdot \log_o h_j + c) \\
        x_i' &= \exp_o\Big(\sigma\Big(\log_o \exp_{h_i}\Big(\sum_j w_{ij} \log_{h_i} h_j\Big)\Big)\Big).

    The paper says MLP for the attention and no more: here one layer, as in graph attention networks. It does not
    say where dropout acts: here on the tangent vectors before :math:`W`. An ``edge_weight`` multiplies the
    exponentials of the softmax.

    The curvature is the same before and after the layer. The paper learns one a layer, which adds no function: scaling
    all points by :math:`R` carries a layer of curvature :math:`k` to one of curvature -1 with the same :math:`W`,
    the bias :math:`b/R` and the attention :math:`Rp, Rq`, and :math:`\sigma = \operatorname{relu}` commutes with the
    change of scale to the next, which its :math:`W` absorbs.

    The sum over neighbours needs no transport: seen from :math:`h_i`, with :math:`\beta = h_s/(R + h_t)` the points of
    the Poincaré ball, :math:`f = 1 + h_t/R` and :math:`\delta_{ij} = |\beta_j - \beta_i|^2 f_i f_j / 2`,

    .. math::
        h_j \ominus h_i = R\,[1 + \delta_{ij},\ f_j(\beta_j - \beta_i) - \delta_{ij}\beta_i], \qquad
        \log_o z = \frac{\operatorname{arcosh}(1 + \delta)}{\sqrt{\delta(\delta + 2)}}\, [0, z_s].

    Its rounding error is that of :math:`\beta`, in float32 :math:`10^{-7} f` in units of distance.

    With ``reach`` :math:`\rho` the vectors that :math:`\exp` is taken of, :math:`W \log_o x`, :math:`b`, the mean over
    the neighbours and the result of :math:`\sigma`, are shortened smoothly to less than :math:`\rho R`, as in
    :class:`~hkconv.nn.HEmbedding`.

    Args:
        act: activation :math:`\sigma`, one of ``hkconv.nn.common.ACTIVATIONS``, a callable, or None for none.
        dropout: probability of dropping a coordinate of :math:`\log_o x`.
        reach: how far tangent vectors reach, in units of :math:`R`; None for any distance, as in the paper.

    Other arguments and shapes: as :class:`~hkconv.models.baselines.hyperbolic.HyperbolicConv`.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        *,
        act: str | Callable[[Tensor], Tensor] | None = "relu",
        dropout: float = 0.0,
        reach: float | None = None,
        curvature: Curvature = -1.0,
    ):
        super().__init__(in_dim, out_dim, dropout=dropout, curvature=curvature)
        if reach is not None and not reach > 0:
            raise InputError(f"reach must be a number above 0 or None, got {reach}")
        self.reach, self.act = reach, None if act is None else find_activation(act)
        self.weight = torch.nn.Parameter(torch.empty(out_dim, in_dim))
        self.bias = torch.nn.Parameter(torch.empty(out_dim))
        #: The rows are q, for the neighbour, and p, for the node itself.
        self.attention_weight = torch.nn.Parameter(torch.empty(2, out_dim))
        self.attention_bias = torch.nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot-uniform weights, the attention as one map of ``2 out_dim`` features, and biases of zero."""
        torch.nn.init.xavier_uniform_(self.weight)
        bound = math.sqrt(6 / (2 * self.out_dim + 1))
        torch.nn.init.uniform_(self.attention_weight, -bound, bound)
        torch.nn.init.zeros_(self.bias)
        torch.nn.init.zeros_(self.attention_bias)

    def map(self, x: Tensor) -> Tensor:
        tangent = F.dropout(log0(x, self.curvature)[:, 1:], self.dropout, self.training)
        mapped = self._from_origin(F.linear(tangent, self.weight))
        # exp_h(PT(b)) is the point exp_o(b) placed around h.
        placed = oplus(self._from_origin(self.bias), mapped, self.curvature)
        return lift(placed[:, 1:], self.curvature)

    def aggregate(self, h: Tensor, weight: Tensor | None, neighbors: Neighbors) -> Tensor:
        R = curvature_radius(self.curvature)
        f = 1 + h[:, 0] / R
        ball = h[:, 1:] / (R * f.unsqueeze(-1))
        f_source = at_source(f, neighbors)
        delta = square_distance(ball, ball, neighbors) * f_source * at_target(f, neighbors) / 2
        share = self._attention(h, weight, neighbors)
        pull = share * _log_factor(delta)
        # Attention is divided by its sum here, at the nodes.
        summed = neighbor_sum(ball, pull * f_source, neighbors)
        own = target_sum(pull * (f_source + delta), neighbors).unsqueeze(-1)
        mean = R * (summed - own * ball) / target_sum(share, neighbors).unsqueeze(-1)
        return oplus(self._from_origin(mean), h, self.curvature)

    def _attention(self, h: Tensor, weight: Tensor | None, neighbors: Neighbors) -> Tensor:
        """The exponentials of the softmax, ``(E,)``, not yet divided by their sum."""
        of_source, of_target = F.linear(log0(h, self.curvature)[:, 1:], self.attention_weight).unbind(-1)
        score = at_source(of_source, neighbors) + at_target(of_target + self.attention_bias, neighbors)
        score = F.leaky_relu(score, NEGATIVE_SLOPE)
        if weight is not None:
            score = score + weight.clamp(min=torch.finfo(weight.dtype).tiny).log()
        return (score - target_max(score, neighbors).index_select(0, neighbors.target)).exp()

    def activate(self, h: Tensor) -> Tensor:
        tangent = log0(h, self.curvature)[:, 1:]
        return self._from_origin(tangent if self.act is None else self.act(tangent))

    def _from_origin(self, tangent: Tensor) -> Tensor:
        if self.reach is not None:
            tangent = shortened(tangent, self.reach * curvature_radius(self.curvature))
        return exp0(F.pad(tangent, (1, 0)), self.curvature)


# Below, the first terms of the series are exact in float64.
SERIES_END, SERIES_TERMS = 0.05, 12


def _log_factor(delta: Tensor) -> Tensor:
    r""":math:`\operatorname{arcosh}(1 + \delta)/\sqrt{\delta(\delta + 2)} = \sum_k (-\delta)^k\, k!/(2k+1)!!`.

    The quotient is right for all :math:`\delta > 0`, but its derivative is a difference of two terms of size
    :math:`1/\delta`, so that near 0 it is the series that is computed.
    """
    near = delta < SERIES_END
    far = torch.where(near, 1, delta)
    # Two roots, because the product overflows float32 for points 44 R apart.
    root = far.sqrt() * (far + 2).sqrt()
    return torch.where(near, _series(torch.where(near, delta, 0)), torch.log1p(far + root) / root)


def _series(delta: Tensor) -> Tensor:
    total = torch.ones_like(delta)
    # k!/(2k+1)!! is k/(2k+1) of the one before.
    for k in range(SERIES_TERMS, 0, -1):
        total = 1 - delta * (k / (2 * k + 1)) * total
    return total


class HGCN(HyperbolicBaseline):
    r"""HGCN: :math:`\exp_o(Wx + b)`, then ``num_layers`` :class:`HGCNConv`, then the same head as
    :class:`~hkconv.models.HKN`, so that the two differ in their layers alone.

    The activation is a ReLU, left out in the last layer as in GCN: class centres may lie in any direction. The
    curvature is -1 in all layers, see :class:`HGCNConv`. Tangent vectors reach 15, in the embedding too.

    Arguments: as :class:`~hkconv.models.baselines.baseline.Baseline`; shapes: as :class:`~hkconv.models.HKN`.
    """

    reach = REACH

    def make_layer(self, number: int, num_layers: int, dim: int, dropout: float) -> HGCNConv:
        act = "relu" if number < num_layers - 1 else None
        return HGCNConv(dim, dim, act=act, dropout=dropout, reach=REACH)
