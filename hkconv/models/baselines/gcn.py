"""The graph convolutional network of Kipf and Welling (2017), the plainest network that does see edges."""

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn import GCNConv

from hkconv.models.baselines.baseline import BaselineSizes
from hkconv.models.baselines.convolutional import Convolutional, sum_of_messages
from hkconv.models.baselines.normalized_edges import normalized_edges
from hkconv.nn.common import reset_modules


class GCN(Convolutional):
    r"""A graph convolutional network of :math:`L` layers,

    .. math::
        H^{(l)} = \operatorname{relu}(\hat D^{-1/2} \hat A \hat D^{-1/2} \tilde H^{(l-1)} W^{(l)} + b^{(l)}), \qquad
        \tilde H = \operatorname{dropout}(H), \quad \hat A = A + I, \quad \hat D_{ii} = \textstyle\sum_j \hat A_{ij},

    without the activation in the last layer, followed by :class:`~hkconv.models.baselines.baseline.TaskHead`. With
    attributes of edges a neighbour's message is :math:`\operatorname{relu}(W^{(l)} \tilde h_j + V^{(l)} e_{ij})`, as in
    the Open Graph Benchmark (Hu et al. 2020); those of an added self loop are zero, and a loop
    that is there already counts beside it.

    Arguments: as :class:`~hkconv.models.baselines.convolutional.Convolutional`, and

    Args:
        edge_dim: number of attributes of an edge, or None.
    """

    reads_edges = True

    def convolutions(self, sizes: BaselineSizes, *, edge_dim: int | None = None) -> list[torch.nn.Module]:
        if edge_dim is None:
            return [GCNConv(*pair, normalize=False) for pair in pairwise(sizes.widths)]
        return [_AttributedConv(*pair, edge_dim) for pair in pairwise(sizes.widths)]

    def layers(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None, edge_attr: Tensor | None = None
    ) -> list[Tensor]:
        doubled = edge_attr is not None
        if edge_attr is not None:
            edge_attr = F.pad(edge_attr, (0, 0, 0, x.size(0)))
        edges = normalized_edges(edge_index, edge_weight, x.size(0), x.dtype, doubled=doubled)
        return super().layers(x, *edges, edge_attr)


class _AttributedConv(torch.nn.Module):
    r""":math:`\sum_j w_{ij} \operatorname{relu}(W h_j + V e_{ij}) + b`."""

    def __init__(self, in_features: int, out_features: int, edge_dim: int):
        super().__init__()
        self.linear = torch.nn.Linear(in_features, out_features, bias=False)
        self.of_edges = torch.nn.Linear(edge_dim, out_features, bias=False)
        self.bias = torch.nn.Parameter(torch.zeros(out_features))

    def reset_parameters(self) -> None:
        reset_modules(self.children())
        torch.nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, edge_attr: Tensor) -> Tensor:
        return sum_of_messages(self.linear(x), edge_index, self.of_edges(edge_attr), edge_weight) + self.bias
