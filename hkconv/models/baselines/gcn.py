"""The graph convolutional network of Kipf and Welling (2017), the plainest network that does see edges."""

import torch
import torch_geometric.nn as pyg_nn
from torch import Tensor

from hkconv.models.baselines.baseline import Baseline


class GCN(Baseline):
    r"""A graph convolutional network of :math:`L` layers,

    .. math::
        H^{(l)} = \operatorname{relu}(\hat D^{-1/2} \hat A \hat D^{-1/2} \tilde H^{(l-1)} W^{(l)} + b^{(l)}), \qquad
        \tilde H = \operatorname{dropout}(H), \quad \hat A = A + I, \quad \hat D_{ii} = \textstyle\sum_j \hat A_{ij},

    without the activation in the last layer, followed by :class:`~hkconv.models.baselines.baseline.TaskHead`.
    Arguments: as :class:`~hkconv.models.baselines.baseline.Baseline`.
    """

    def build(
        self, in_features: int, hidden_dim: int, out_features: int, num_layers: int, dropout: float
    ) -> torch.nn.Module:
        return pyg_nn.GCN(in_features, hidden_dim, num_layers, out_features, dropout=dropout)

    def encode(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        return self.network(x, edge_index, edge_weight)
