"""GraphSAGE (Hamilton et al. 2017), which keeps a node's own features apart from those of its neighbours."""

from itertools import pairwise
from typing import Any

import torch
import torch_geometric.nn as pyg_nn
from torch import Tensor
from torch_geometric.utils import degree

from hkconv.models.baselines.baseline import BaselineSizes
from hkconv.models.baselines.convolutional import Convolutional, sum_of_messages


class GraphSAGE(Convolutional):
    r"""GraphSAGE of :math:`L` layers with the mean aggregator,

    .. math::
        h_i^{(l)} = \operatorname{relu}\Big(W^{(l)} \tilde h_i^{(l-1)}
            + V^{(l)} \frac{1}{|N(i)|} \sum_{j \in N(i)} \tilde h_j^{(l-1)} + b^{(l)}\Big), \qquad
        \tilde h = \operatorname{dropout}(h),

    without the activation in the last layer; the mean of no neighbours is zero. The paper writes one matrix for both
    vectors side by side, which is the same. Three choices: all neighbours are used, not a sample of them; edges have no
    weights; and the :math:`h_i` are not divided by their norm, which in the last layer would confine the logits to a
    sphere. With attributes of edges the mean is of :math:`\operatorname{relu}(V^{(l)} \tilde h_j + U^{(l)} e_{ij})`, in
    the manner of the Open Graph Benchmark (Hu et al. 2020).

    Arguments: as :class:`~hkconv.models.baselines.convolutional.Convolutional`, and

    Args:
        edge_dim: number of attributes of an edge, or None.
    """

    uses_edge_weight = False
    reads_edges = True

    def build(self, sizes: BaselineSizes, **options: Any) -> torch.nn.Module:
        network: Any = super().build(sizes, **options)
        # Checkpoints have their names without "convs".
        return network["convs"]

    def convolutions(self, sizes: BaselineSizes, *, edge_dim: int | None = None) -> list[torch.nn.Module]:
        return [_MeanConv(*pair, edge_dim) for pair in pairwise(sizes.widths)]

    @property
    def convs(self) -> torch.nn.ModuleList:
        return self.network


class _MeanConv(torch.nn.Module):
    r""":math:`W h_i + b` and the mean of :math:`V h_j` over the neighbours.

    PyG's layer takes the mean before :math:`V`, so each edge carries all features: for the 2,325 of Chameleon and
    64 hidden dimensions that takes ten times as long on a CPU and 36 times the memory.
    """

    def __init__(self, in_features: int, out_features: int, edge_dim: int | None = None):
        super().__init__()
        self.own = torch.nn.Linear(in_features, out_features)
        self.other = torch.nn.Linear(in_features, out_features, bias=False)
        self.mean = pyg_nn.SimpleConv(aggr="mean")
        self.of_edges = None if edge_dim is None else torch.nn.Linear(edge_dim, out_features, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        if self.of_edges is not None:
            sums = sum_of_messages(self.other(x), edge_index, self.of_edges(edge_attr))
            return self.own(x) + sums / degree(edge_index[1], x.size(0), x.dtype).clamp(min=1).unsqueeze(-1)
        return self.own(x) + self.mean(self.other(x), edge_index)
