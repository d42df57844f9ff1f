"""Dir-GNN (Rossi et al. 2023, Edge Directionality Improves Learning on Heterophilic Graphs), in its form Dir-GCN."""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.models.baselines.baseline import BaselineSizes
from hkconv.models.baselines.convolutional import Convolutional
from hkconv.models.baselines.normalized_edges import directed_values
from hkconv.ops.edge_sums import neighbor_sum
from hkconv.ops.neighbors import find_neighbors, flip


class DirGNN(Convolutional):
    r"""A network of :math:`L` layers with weights for each direction of the edges, and jumping knowledge,

    .. math::
        H^{(l)} = \operatorname{dropout}\Big(\operatorname{relu}\big(\alpha\, S H^{(l-1)} W_{out}^{(l)}
            + (1 - \alpha)\, S^\top H^{(l-1)} W_{in}^{(l)} + b^{(l)}\big)\Big), \qquad
        Z = \max_l(H^{(l)})\, W + c,

    where :math:`S = D_{out}^{-1/2} A D_{in}^{-1/2}` and :math:`A_{ij}` is the weight of the edge from :math:`i` to
    :math:`j`: :math:`S` reads the edges out of a node, :math:`S^\top` those into it. Both are of the edges that the
    network is given, so that on a graph with all edges both ways they are the same. Self loops are not added.

    The paper has Dir-SAGE and Dir-GAT too; this is what it has on Chameleon, Squirrel and two of its three large
    heterophilic graphs, with the maximum over layers as on the first two. A node's own features enter by ``residual``,
    which with these convolutions is what Dir-SAGE has. The paper's normalisation of rows to length 1 is left out for
    that of :class:`~hkconv.models.baselines.convolutional.Convolutional`.

    Arguments: as :class:`~hkconv.models.baselines.convolutional.Convolutional`, and

    Args:
        alpha: share :math:`\alpha` of the edges out of a node, from 0 to 1.
    """

    plain_last = False
    whole_graph_for = "the edges out of a node"

    def build(self, sizes: BaselineSizes, **options: Any) -> torch.nn.Module:
        network: Any = super().build(sizes._replace(out_features=sizes.hidden_dim), **options)
        network["last"] = torch.nn.Linear(sizes.hidden_dim, sizes.out_features)
        return network

    def convolutions(self, sizes: BaselineSizes, *, alpha: float = 0.5) -> list[torch.nn.Module]:
        if not 0 <= alpha <= 1:
            raise InputError(f"alpha must lie in [0, 1], got {alpha}")
        return [_TwoWayConv(*pair, alpha) for pair in pairwise(sizes.widths)]

    def encode(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None, edge_attr: Tensor | None = None
    ) -> Tensor:
        return self.network["last"](torch.stack(self.layers(x, edge_index, edge_weight)).amax(0))


class _TwoWayConv(torch.nn.Module):
    r""":math:`\alpha S H W_{out} + (1 - \alpha) S^\top H W_{in} + b`."""

    def __init__(self, in_features: int, out_features: int, alpha: float):
        super().__init__()
        self.alpha = alpha
        self.out_edges = torch.nn.Linear(in_features, out_features, bias=False)
        self.in_edges = torch.nn.Linear(in_features, out_features, bias=False)
        self.bias = torch.nn.Parameter(torch.zeros(out_features))

    def reset_parameters(self) -> None:
        self.out_edges.reset_parameters()
        self.in_edges.reset_parameters()
        torch.nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        found, _ = find_neighbors(edge_index, edge_weight, (x.size(0), x.size(0)))
        weight = directed_values(edge_index, edge_weight, x.size(0), x.dtype)
        sums = [
            neighbor_sum(mapped, weight.index_select(0, neighbors.order), neighbors)
            for mapped, neighbors in ((self.out_edges(x), flip(found)), (self.in_edges(x), found))
        ]
        return self.alpha * sums[0] + (1 - self.alpha) * sums[1] + self.bias
