"""From Euclidean features to the answer of a task, shared by every baseline."""

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.models.tasks import known


class TaskHead(torch.nn.Module):
    r"""Node logits as they come, graph logits from pooled features, link logits from inner products.

    .. math::
        \text{node: } z_i \qquad
        \text{graph: } W z_V + b \qquad
        \text{link: } \langle z_u, z_v \rangle

    Args:
        hidden_dim: features of a graph, or of a node whose links are asked for.
        num_classes: number of classes; ignored for links.
        task: ``"node"``, ``"graph"`` or ``"link"``.
    """

    def __init__(self, hidden_dim: int, num_classes: int | None, task: str):
        super().__init__()
        self.task = task
        #: What must come before this head, for each node or graph.
        self.in_features = known(num_classes) if task == "node" else hidden_dim
        if task == "graph":
            self.linear = torch.nn.Linear(hidden_dim, known(num_classes))

    def forward(self, z: Tensor, pairs: Tensor | None = None) -> Tensor:
        """Answer the task.

        Args:
            z: features of N nodes (N, in_features) or, in a graph task, of B graphs (B, in_features).
            pairs: (2, P) node pairs of a link task.

        Returns:
            (N, C), (B, C) or (P,) logits.
        """
        if self.task == "node":
            return z
        if self.task == "graph":
            return self.linear(z)
        if pairs is None:
            raise InputError("pairs must be given for a link task: a (2, P) tensor of node indices")
        return (z[pairs[0]] * z[pairs[1]]).sum(-1)
