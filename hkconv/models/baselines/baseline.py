"""Base class and task head of the baselines, so that each file holds its network and nothing else."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn import global_mean_pool

from hkconv.errors import InputError
from hkconv.geometry.checks import check_attributes
from hkconv.models.tasks import TASKS, check_network, known
from hkconv.nn.common import reset_modules


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
        #: Number of features of each node or graph before this head.
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


class BaselineSizes(NamedTuple):
    """Sizes of a baseline's network, from node features to what the head takes, and its rate of dropout."""

    in_features: int
    hidden_dim: int
    out_features: int
    num_layers: int
    dropout: float

    @property
    def widths(self) -> list[int]:
        """Number of features before the first layer and after each."""
        return [self.in_features, *[self.hidden_dim] * (self.num_layers - 1), self.out_features]


class Baseline(torch.nn.Module):
    """Dropout on the features, a network of its own, and a :class:`~hkconv.models.baselines.baseline.TaskHead`.

    A baseline builds its network in :meth:`build` and says in :meth:`encode` how it is called. Where its paper has a
    readout of its own, it overrides :meth:`pool` and :meth:`pooled_features`.

    Args:
        in_features: number of feature columns.
        hidden_dim: width of the hidden layers.
        num_classes: number of classes; ignored for links.
        num_layers: number of layers.
        dropout: probability of dropping an entry of a layer's input.
        task: one of :attr:`tasks`.
        options: what :meth:`build` of the baseline takes beside these.
    """

    #: The tasks it can answer.
    tasks: tuple[str, ...] = TASKS
    #: Whether it is built for one graph, whose ``num_nodes`` is among its options.
    uses_num_nodes = False
    #: Whether what it learns belongs to an embedding of one graph.
    is_of_one_graph = False
    #: Why it needs the whole graph and no sample of it will do; None where one will.
    whole_graph_for: str | None = None
    #: Whether its paper gives edges a weight.
    uses_edge_weight = True
    #: Whether it takes attributes of edges, whose number is then an option ``edge_dim`` of :meth:`build`.
    reads_edges = False

    #: Whether every step fetches something from the host, so that a step cannot be a CUDA graph.
    needs_host = False
    #: What :meth:`build` has made, a module that :meth:`encode` knows how to call.
    network: Any

    def __init__(
        self,
        in_features: int,
        hidden_dim: int,
        num_classes: int | None,
        *,
        num_layers: int,
        dropout: float = 0.0,
        task: str = "node",
        **options: Any,
    ):
        super().__init__()
        check_network(self, task, num_classes, num_layers, hidden_dim, dropout)
        width = self.pooled_features(in_features, hidden_dim, num_layers) if task == "graph" else hidden_dim
        self.head = TaskHead(width, num_classes, task)
        self.dropout = torch.nn.Dropout(dropout)
        self.edge_dim: int | None = options.get("edge_dim")
        # As a float, because PyG's MLP takes a whole number for a list.
        sizes = BaselineSizes(in_features, hidden_dim, self.head.in_features, num_layers, float(dropout))
        self.network = self.build(sizes, **options)

    def build(self, sizes: BaselineSizes) -> torch.nn.Module:
        """The network of these sizes; a baseline's own options are further arguments."""
        raise NotImplementedError

    def encode(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        """Node features ``(N, in_features)`` to what the head takes, or :meth:`pool` in a graph task."""
        raise NotImplementedError

    def pooled_features(self, in_features: int, hidden_dim: int, num_layers: int) -> int:
        """Number of features that :meth:`pool` gives each graph."""
        return hidden_dim

    def pool(self, z: Tensor, batch: Tensor | None, batch_size: int | None) -> Tensor:
        r"""Nodes to graphs, :math:`\frac{1}{|V|} \sum_{i \in V} \operatorname{relu}(z_i)`."""
        return global_mean_pool(z.relu(), batch, batch_size)

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        reset_modules(module for module in self.modules() if module is not self)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        *,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        pairs: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """Logits of the task, in and out as :class:`hkconv.models.HKN`."""
        if edge_weight is not None and not self.uses_edge_weight:
            raise InputError(f"edge_weight must be left out: {type(self).__name__} knows no weights of edges")
        check_attributes(edge_attr, self.edge_dim, 0 if self.edge_dim is None else edge_index.size(1))
        attributes = () if edge_attr is None else (edge_attr.to(x.dtype),)
        z = self.encode(self.dropout(x), edge_index, edge_weight, *attributes)
        if self.head.task == "graph":
            z = self.pool(z, batch, batch_size)
        return self.head(z, pairs)
