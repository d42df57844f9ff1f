"""The graph convolutional network of Kipf and Welling (2017), the plainest network that does see edges."""

import torch
import torch_geometric.nn as pyg_nn
from torch import Tensor

from hkconv.errors import InputError
from hkconv.models.baselines.heads import TaskHead


class GCN(torch.nn.Module):
    r"""A graph convolutional network of :math:`L` layers,

    .. math::
        H^{(l)} = \operatorname{relu}(\hat D^{-1/2} \hat A \hat D^{-1/2} \tilde H^{(l-1)} W^{(l)} + b^{(l)}), \qquad
        \tilde H = \operatorname{dropout}(H), \quad \hat A = A + I, \quad \hat D_{ii} = \textstyle\sum_j \hat A_{ij},

    without the activation in the last layer, followed by :class:`~hkconv.models.baselines.heads.TaskHead`.

    Args:
        in_features: number of feature columns.
        hidden_dim: width of the hidden layers.
        num_classes: number of classes; ignored for links.
        num_layers: number of convolutions :math:`L`.
        dropout: probability of dropping an entry of a layer's input.
        task: ``"node"``, ``"graph"`` or ``"link"``.
    """

    def __init__(
        self,
        in_features: int,
        hidden_dim: int,
        num_classes: int | None,
        *,
        num_layers: int,
        dropout: float = 0.0,
        task: str = "node",
    ):
        super().__init__()
        if num_layers < 1:
            raise InputError(f"num_layers must be at least 1, got {num_layers}")
        self.head = TaskHead(hidden_dim, num_classes, task)
        self.dropout = torch.nn.Dropout(dropout)
        self.network = pyg_nn.GCN(in_features, hidden_dim, num_layers, self.head.in_features, dropout=dropout)

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        self.network.reset_parameters()
        self.head.reset_parameters()

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        *,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        pairs: Tensor | None = None,
    ) -> Tensor:
        """Logits of the task.

        Args:
            x: (N, in_features) node features.
            edge_index: (2, E) edges.
            edge_weight: (E,) weights.
            batch: (N,) graph of each node, for graph tasks.
            batch_size: number of graphs.
            pairs: (2, P) node pairs, for link tasks.

        Returns:
            (N, C), (B, C) or (P,) logits.
        """
        z = self.network(self.dropout(x), edge_index, edge_weight)
        return self.head(z, batch, batch_size, pairs)
