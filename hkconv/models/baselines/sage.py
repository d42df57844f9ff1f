"""GraphSAGE (Hamilton et al. 2017), which keeps a node's own features apart from those of its neighbours."""

from itertools import pairwise

import torch
import torch_geometric.nn as pyg_nn
from torch import Tensor

from hkconv.models.baselines.convolutional import Convolutional


class GraphSAGE(Convolutional):
    r"""GraphSAGE of :math:`L` layers with the mean aggregator,

    .. math::
        h_i^{(l)} = \operatorname{relu}\Big(W^{(l)} \tilde h_i^{(l-1)}
            + V^{(l)} \frac{1}{|N(i)|} \sum_{j \in N(i)} \tilde h_j^{(l-1)} + b^{(l)}\Big), \qquad
        \tilde h = \operatorname{dropout}(h),

    without the activation in the last layer; the mean of no neighbours is zero. The paper writes one matrix for both
    vectors side by side, which is the same. Three choices: all neighbours are used, not a sample of them; edges have no
    weights; and the :math:`h_i` are not divided by their norm, which in the last layer would confine the logits to a
    sphere.

    Arguments: as :class:`~hkconv.models.baselines.convolutional.Convolutional`.
    """

    uses_edge_weight = False

    def convolutions(self, widths: list[int], dropout: float) -> torch.nn.Module:
        return torch.nn.ModuleList(_MeanConv(*pair) for pair in pairwise(widths))

    @property
    def convs(self) -> torch.nn.ModuleList:
        return self.network


class _MeanConv(torch.nn.Module):
    r""":math:`W h_i + b` and the mean of :math:`V h_j` over the neighbours.

    PyG's layer takes the mean before :math:`V`, so each edge carries all features: for the 2,325 of Chameleon and
    64 hidden dimensions that takes ten times as long on a CPU and 36 times the memory.
    """

    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.own = torch.nn.Linear(in_features, out_features)
        self.other = torch.nn.Linear(in_features, out_features, bias=False)
        self.mean = pyg_nn.SimpleConv(aggr="mean")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.own(x) + self.mean(self.other(x), edge_index)
