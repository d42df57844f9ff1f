"""Batches of small graphs, cut out of one large graph that holds them all.

To put graphs together one by one costs more than to train a small network on them. Here they lie one behind the other
on the device, and a batch is a few gathers, however many graphs it has.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from hkconv.data.scaling import Scaling


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """Some graphs as one.

    Args:
        x: (N, F) features of all their nodes.
        edge_index: (2, E), numbered through.
        y: labels, a row a graph.
        batch: (N,) which graph each node is of.
        num_graphs: how many there are.
        edge_weight: (E,), None where edges have no weights.
        edge_attr: (E, D), None where edges have no attributes.
    """

    x: Tensor
    edge_index: Tensor
    y: Tensor
    batch: Tensor
    num_graphs: int
    edge_weight: Tensor | None
    edge_attr: Tensor | None


class PackedGraphs:
    """Graphs one behind the other.

    Args:
        graphs: with ``x``, ``edge_index`` and ``y``, and ``edge_weight`` and ``edge_attr`` all or none; at least one.
        reference: a tensor with the device, and the floating-point type that features and attributes are brought to
            unless they are numbers of columns.
        scaling: of the features, if they have one.
    """

    def __init__(self, graphs: Sequence[Data], reference: Tensor, scaling: Scaling | None = None):
        self.device = reference.device
        x = [graph.x for graph in graphs]
        self.x = _joined(x if scaling is None else [scaling(torch.cat(x))], reference)
        self.edge_index = torch.cat([graph.edge_index for graph in graphs], dim=1).to(self.device)
        self.edge_weight = None
        if graphs[0].edge_weight is not None:
            self.edge_weight = torch.cat([graph.edge_weight for graph in graphs]).to(reference)
        self.edge_attr = None
        if graphs[0].edge_attr is not None:
            self.edge_attr = _joined([graph.edge_attr for graph in graphs], reference)
        # The labels of evaluations are read on the host too.
        self.labels = torch.cat([graph.y for graph in graphs])
        self.y = self.labels.to(self.device)
        # Sizes stay on the host, which must know how large a batch is.
        self.num_nodes = torch.tensor([graph.x.size(0) for graph in graphs])
        self.num_edges = torch.tensor([graph.edge_index.size(1) for graph in graphs])
        self.first_node = self.num_nodes.cumsum(0) - self.num_nodes
        self.first_edge = self.num_edges.cumsum(0) - self.num_edges

    def __len__(self) -> int:
        return len(self.num_nodes)

    def take(self, members: Tensor) -> GraphBatch:
        """Some of the graphs, in the order given.

        Args:
            members: (B,) their numbers, on the host.
        """
        nodes, edges = self.num_nodes[members], self.num_edges[members]
        num_nodes, num_edges = int(nodes.sum()), int(edges.sum())
        new_first_node = nodes.cumsum(0) - nodes
        new_first_edge = edges.cumsum(0) - edges
        shifts = self.first_node[members] - new_first_node, self.first_edge[members] - new_first_edge
        plan = torch.stack([members, nodes, edges, *shifts, new_first_node])
        # From pinned memory a GPU copies on its own, and the host does not wait.
        plan = plan.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else plan
        members_there, nodes, edges, node_shift, edge_shift, new_first_node = plan.unbind()
        batch = torch.arange(len(members), device=self.device).repeat_interleave(nodes, output_size=num_nodes)
        edge_graph = torch.arange(len(members), device=self.device).repeat_interleave(edges, output_size=num_edges)
        node_index = torch.arange(num_nodes, device=self.device) + node_shift[batch]
        edge_index = torch.arange(num_edges, device=self.device) + edge_shift[edge_graph]
        return GraphBatch(
            x=self.x[node_index],
            edge_index=self.edge_index[:, edge_index] + new_first_node[edge_graph],
            y=self.y[members_there],
            batch=batch,
            num_graphs=len(members),
            edge_weight=None if self.edge_weight is None else self.edge_weight[edge_index],
            edge_attr=None if self.edge_attr is None else self.edge_attr[edge_index],
        )


def _joined(rows: list[Tensor], reference: Tensor) -> Tensor:
    joined = torch.cat(rows)
    return joined.to(reference) if joined.is_floating_point() else joined.to(reference.device)
