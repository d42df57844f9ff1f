"""ACM-GCN (Luan et al. 2022, Revisiting Heterophily), three views of a neighbourhood that each node mixes by itself."""

from itertools import pairwise

import torch
from torch import Tensor

from hkconv.models.baselines.baseline import BaselineSizes
from hkconv.models.baselines.convolutional import Convolutional
from hkconv.models.baselines.normalized_edges import normalized_edges
from hkconv.ops.edge_sums import neighbor_sum
from hkconv.ops.neighbors import neighbors_with_loops
from hkconv.ops.rows import view_gates

# Low-pass, high-pass and identity.
CHANNELS = 3


class ACMGCN(Convolutional):
    r"""A network of :math:`L` layers with adaptive channel mixing,

    .. math::
        H_L &= \operatorname{relu}(\hat A \tilde H W_L), \qquad
        H_H = \operatorname{relu}((I - \hat A) \tilde H W_H), \qquad H_I = \operatorname{relu}(\tilde H W_I), \\
        g_i &= \operatorname{softmax}_c\Big(3 \sum_{c'} \sigma(v_{c'} \cdot h_{ic'})\,(I + G)_{c'c}\Big), \qquad
        h_i' = \sum_c g_{ic} h_{ic}, \qquad c \in \{L, H, I\},

    with :math:`\hat A = \hat D^{-1/2} (A + I) \hat D^{-1/2}` and :math:`\tilde H = \operatorname{dropout}(H)`. The last
    layer has no ReLU, so that logits can have both signs. The paper writes a matrix :math:`W_{mix} / T` for
    :math:`3 (I + G)`, which can be the same; here as in :class:`~hkconv.nn.HKBlock`, :math:`v` and :math:`G` start at
    zero, and the channels at equal weights.

    Arguments: as :class:`~hkconv.models.baselines.convolutional.Convolutional`.
    """

    def convolutions(self, sizes: BaselineSizes) -> list[torch.nn.Module]:
        *hidden, last = pairwise(sizes.widths)
        return [*(_MixedChannels(*pair) for pair in hidden), _MixedChannels(*last, plain=True)]


class _MixedChannels(torch.nn.Module):
    """The three channels and their mixture; without ReLU if ``plain``."""

    def __init__(self, in_features: int, out_features: int, plain: bool = False):
        super().__init__()
        self.plain = plain
        self.channels = torch.nn.Linear(in_features, CHANNELS * out_features, bias=False)
        self.gate_weight = torch.nn.Parameter(torch.zeros(CHANNELS, out_features))
        self.gate_mix = torch.nn.Parameter(torch.zeros(CHANNELS, CHANNELS))

    def reset_parameters(self) -> None:
        self.channels.reset_parameters()
        torch.nn.init.zeros_(self.gate_weight)
        torch.nn.init.zeros_(self.gate_mix)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        neighbors, _ = neighbors_with_loops(edge_index, edge_weight, x.size(0), x.dtype)
        _, normalized = normalized_edges(edge_index, edge_weight, x.size(0), x.dtype)
        weight = normalized.index_select(0, neighbors.order)
        low, high, own = self.channels(x).chunk(CHANNELS, dim=-1)
        smooth_low, smooth_high = neighbor_sum(torch.cat([low, high], dim=-1), weight, neighbors).chunk(2, dim=-1)
        views = torch.stack([smooth_low, high - smooth_high, own], dim=1)
        views = views if self.plain else views.relu()
        gates = view_gates(views, self.gate_weight, self.gate_mix)
        return (gates.unsqueeze(-1) * views).sum(1)
