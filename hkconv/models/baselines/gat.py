"""The graph attention network of Veličković et al. (2018)."""

import torch
import torch_geometric.nn as pyg_nn
from torch import Tensor

from hkconv.errors import InputError
from hkconv.models.baselines.baseline import Baseline


class GAT(Baseline):
    r"""A graph attention network of :math:`L` layers with :math:`K` heads, each

    .. math::
        h_i' = \sum_{j \in N(i) \cup \{i\}} \alpha_{ij} W h_j, \qquad
        \alpha_{ij} = \operatorname{softmax}_j \operatorname{LeakyReLU}_{0.2}(p \cdot W h_i + q \cdot W h_j).

    Hidden layers are :math:`\operatorname{elu}(\|_k h^{(k)} + b)`, their heads side by side; the last layer is the mean
    of its heads, :math:`\frac 1K \sum_k h^{(k)} + b`. Dropout acts on the input of every layer and on :math:`\alpha`.
    A self loop that is there already is not doubled; edges have no weights.

    Arguments: as :class:`~hkconv.models.baselines.baseline.Baseline`, and

    Args:
        heads: the number :math:`K`, in all layers; with more than one layer it must divide ``hidden_dim``, the width of
            all heads together.
    """

    uses_edge_weight = False
    # PyG takes self loops out in every pass, and how many edges are left only the GPU knows.
    needs_host = True

    def build(
        self,
        in_features: int,
        hidden_dim: int,
        out_features: int,
        num_layers: int,
        dropout: float,
        *,
        heads: int = 8,
    ) -> torch.nn.Module:
        if heads < 1 or (num_layers > 1 and hidden_dim % heads):
            raise InputError(f"heads must be at least 1 and divide hidden_dim, got {heads} heads for {hidden_dim}")
        return pyg_nn.GAT(in_features, hidden_dim, num_layers, out_features, dropout, act="elu", heads=heads)

    def encode(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        return self.network(x, edge_index)
