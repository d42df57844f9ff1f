"""What every baseline shares, so that each file holds its network and nothing else."""

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.models.baselines.heads import TaskHead
from hkconv.models.tasks import check_task


class Baseline(torch.nn.Module):
    """Dropout on the features, a network of its own, and a :class:`~hkconv.models.baselines.heads.TaskHead`.

    A baseline builds its network in :meth:`build` and says in :meth:`encode` how it is called.

    Args:
        in_features: number of feature columns.
        hidden_dim: width of the hidden layers.
        num_classes: number of classes; ignored for links.
        num_layers: number of layers.
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
        check_task(task, num_classes, num_layers)
        if hidden_dim < 1:
            raise InputError(f"hidden_dim must be at least 1, got {hidden_dim}")
        self.head = TaskHead(hidden_dim, num_classes, task)
        self.dropout = torch.nn.Dropout(dropout)
        self.network = self.build(in_features, hidden_dim, self.head.in_features, num_layers, dropout)

    def build(
        self, in_features: int, hidden_dim: int, out_features: int, num_layers: int, dropout: float
    ) -> torch.nn.Module:
        """The network from node features to what the head takes."""
        raise NotImplementedError

    def encode(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        """Node features ``(N, in_features)`` to what the head takes."""
        raise NotImplementedError

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
        """Logits of the task, in and out as :class:`hkconv.models.HKN`."""
        return self.head(self.encode(self.dropout(x), edge_index, edge_weight), batch, batch_size, pairs)
