"""HyboNet (Chen et al. 2021, Fully Hyperbolic Neural Networks): linear maps and centroids without a tangent space."""

from collections.abc import Callable

import torch
from torch import Tensor

from hkconv.geometry.curvature import Curvature, curvature_radius
from hkconv.geometry.lorentz import lift
from hkconv.models.baselines.hyperbolic import HyperbolicBaseline, HyperbolicConv
from hkconv.nn import HLinear
from hkconv.nn.common import find_activation
from hkconv.ops.edge_sums import neighbor_sum, target_sum
from hkconv.ops.neighbors import Neighbors


class HyboNetConv(HyperbolicConv):
    r"""A graph layer of HyboNet :math:`\mathbb L^m \to \mathbb L^n`: a Lorentz linear map, then the centroid of the
    neighbours and the node itself,

    .. math::
        y_j  &= \mathrm{HLinear}(x_j), \qquad
        h(x) = \lambda\,\sigma(v \cdot x + b') \frac{W \operatorname{dropout}(\tau(x)) + b}
                                                    {|W \operatorname{dropout}(\tau(x)) + b|} \\
        x_i' &= \frac{s_i}{\sqrt{-k}\,|\|s_i\|_L|}, \qquad
        s_i = \sum_j (\hat D^{-1} \hat A)_{ij}\, y_j, \qquad \hat A = A + I,

    where :math:`h` is the spatial part of HLinear. As in the paper, activation and dropout act on the direction
    alone, on all ``m+1`` coordinates, and not on the gate. The centroid does not depend on the scale of its
    weights, so that the division by :math:`\hat D` serves the rounding alone. A node without neighbours keeps
    :math:`y_i`.

    The squared norm :math:`-\|s\|_L^2 \ge R^2` is a difference, right to :math:`10^{-7} s_t^2` in float32. HLinear
    bounds :math:`s_t` by :math:`\sqrt{R^2 + \lambda^2}`, however far away its inputs are, so that little is lost for
    :math:`\lambda` up to about 30 R.

    Args:
        act: activation :math:`\tau`, one of ``hkconv.nn.common.ACTIVATIONS`` or a callable.
        dropout: probability of dropping a coordinate of the activated input.

    Other arguments and shapes: as :class:`~hkconv.models.baselines.hyperbolic.HyperbolicConv`.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        *,
        act: str | Callable[[Tensor], Tensor] | None = None,
        dropout: float = 0.0,
        curvature: Curvature = -1.0,
    ):
        super().__init__(in_dim, out_dim, dropout=dropout, curvature=curvature)
        steps = [] if act is None else [find_activation(act)]
        steps += [torch.nn.Dropout(dropout)] if dropout else []
        self.linear = HLinear(in_dim, out_dim, act=torch.nn.Sequential(*steps) if steps else None, curvature=curvature)

    def reset_parameters(self) -> None:
        self.linear.reset_parameters()

    def map(self, x: Tensor) -> Tensor:
        return self.linear(x)

    def aggregate(self, y: Tensor, weight: Tensor | None, neighbors: Neighbors) -> Tensor:
        R = curvature_radius(self.curvature)
        total = neighbors.target_pointer.diff().to(y.dtype) if weight is None else target_sum(weight, neighbors)
        s = neighbor_sum(y, weight, neighbors) / total.unsqueeze(-1)
        time, space = s[:, :1], s[:, 1:]
        square = (time * time - (space * space).sum(-1, keepdim=True)).clamp(min=R * R)
        return lift(R * square.rsqrt() * space, self.curvature)


class HyboNet(HyperbolicBaseline):
    r"""HyboNet for graphs: :math:`\exp_o(Wx + b)`, then ``num_layers`` :class:`HyboNetConv`, then the same head as
    :class:`~hkconv.models.HKN`, so that the two differ in their layers alone.

    The paper leaves the place of the activation open. Here it is a ReLU in every layer but the first, which takes
    the embedded features as they are.

    Arguments: as :class:`~hkconv.models.baselines.baseline.Baseline`; shapes: as :class:`~hkconv.models.HKN`.
    """

    def make_layer(self, number: int, num_layers: int, dim: int, dropout: float) -> HyboNetConv:
        return HyboNetConv(dim, dim, act="relu" if number > 0 else None, dropout=dropout)
