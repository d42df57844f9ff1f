"""A multilayer perceptron: what the features alone can do, without any edge."""

import torch
import torch_geometric.nn as pyg_nn
from torch import Tensor

from hkconv.errors import InputError
from hkconv.models.baselines.heads import TaskHead


class MLP(torch.nn.Module):
    r"""A perceptron of :math:`L` layers on every node by itself,

    .. math::
        h^{(l)} = \operatorname{relu}(W^{(l)} \operatorname{dropout}(h^{(l-1)}) + b^{(l)}), \qquad
        z = W^{(L)} \operatorname{dropout}(h^{(L-1)}) + b^{(L)},

    followed by :class:`~hkconv.models.baselines.heads.TaskHead`.

    Args:
        in_features: number of feature columns.
        hidden_dim: width of the hidden layers.
        num_classes: number of classes; ignored for links.
        num_layers: number of linear layers :math:`L`.
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
        widths = [in_features, *[hidden_dim] * (num_layers - 1), self.head.in_features]
        self.network = pyg_nn.MLP(widths, dropout=dropout, norm=None)

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
        """Logits of the task; ``edge_index`` and ``edge_weight`` are there for the common signature and ignored.

        Args:
            x: (N, in_features) node features.
            edge_index: (2, E) edges, ignored.
            edge_weight: (E,) weights, ignored.
            batch: (N,) graph of each node, for graph tasks.
            batch_size: number of graphs.
            pairs: (2, P) node pairs, for link tasks.

        Returns:
            (N, C), (B, C) or (P,) logits.
        """
        return self.head(self.network(self.dropout(x)), batch, batch_size, pairs)
