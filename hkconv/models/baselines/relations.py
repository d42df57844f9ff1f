"""Several kinds of edges between the same nodes, as one graph that has a copy of the nodes for each kind."""

import torch
from torch import Tensor

from hkconv.ops.neighbors import Neighbors, sort_edges


def union_of(source: Tensor, target: Tensor, relation: Tensor, num_relations: int, num_nodes: int) -> Neighbors:
    r"""The graph in which an edge :math:`j \to i` of the relation :math:`r` goes from :math:`rN + j` to
    :math:`rN + i`, so that sums and maxima over neighbours are those over the neighbours of one relation.

    Args:
        source, target, relation: of each edge, ``(E,)``.
        num_relations: number :math:`R` of relations.
        num_nodes: number :math:`N` of nodes.
    """
    shift = relation * num_nodes
    copies = num_relations * num_nodes
    return sort_edges(source + shift, target + shift, (copies, copies))


def map_by_relation(x: Tensor, weight: Tensor) -> Tensor:
    """Each node mapped by the matrix of each relation, ``(N, m), (R, m, n) -> (R N, n)``."""
    return torch.matmul(x, weight).flatten(0, 1)


def sum_over_relations(x: Tensor, num_relations: int) -> Tensor:
    """Sum over the copies of each node, ``(R N, n) -> (N, n)``."""
    return x.unflatten(0, (num_relations, -1)).sum(0)
