"""From Euclidean node features to the answer of a task, shared by every baseline."""

import torch
from torch import Tensor
from torch_geometric.nn import global_mean_pool

from hkconv.errors import InputError


class TaskHead(torch.nn.Module):
    r"""Node logits as they come, graph logits from the mean, link logits from inner products.

    .. math::
        \text{node: } z_i \qquad
        \text{graph: } W \frac{1}{|V|} \sum_{i \in V} \operatorname{relu}(z_i) + b \qquad
        \text{link: } \langle z_u, z_v \rangle

    Args:
        hidden_dim: width of the network.
        num_classes: number of classes; ignored for links.
        task: ``"node"``, ``"graph"`` or ``"link"``.
    """

    def __init__(self, hidden_dim: int, num_classes: int | None, task: str):
        super().__init__()
        self.task = task
        #: What the network before this head must give for each node.
        self.in_features = num_classes if task == "node" else hidden_dim
        if task == "graph":
            self.linear = torch.nn.Linear(hidden_dim, num_classes)

    def reset_parameters(self) -> None:
        """Draw the readout's weights anew."""
        if self.task == "graph":
            self.linear.reset_parameters()

    def forward(
        self, z: Tensor, batch: Tensor | None = None, batch_size: int | None = None, pairs: Tensor | None = None
    ) -> Tensor:
        """Answer the task.

        Args:
            z: (N, in_features) node features.
            batch: (N,) graph of each node; without it all nodes are one graph.
            batch_size: number of graphs B.
            pairs: (2, P) node pairs of a link task.

        Returns:
            (N, C), (B, C) or (P,) logits.
        """
        if self.task == "node":
            return z
        if self.task == "graph":
            return self.linear(global_mean_pool(z.relu(), batch, batch_size))
        if pairs is None:
            raise InputError("pairs must be given for a link task: a (2, P) tensor of node indices")
        return (z[pairs[0]] * z[pairs[1]]).sum(-1)
