"""A graph without directions, loops and repeats, and the walk through it that distances and rings are read from."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch_geometric.utils import remove_self_loops, to_undirected

from hkconv.ops.compiling import njit
from hkconv.ops.neighbors import sort_edges

# What is computed of so many graphs is remembered.
REMEMBERED = 8


@dataclass(frozen=True, eq=False)
class SimpleGraph:
    """The neighbors of node ``i`` are ``neighbor[pointer[i]:pointer[i + 1]]``.

    Graphs are equal where their links are, so that ``lru_cache`` knows a graph again whose edges were copied to another
    device, as for each split of a dataset.
    """

    pointer: np.ndarray
    neighbor: np.ndarray

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SimpleGraph):
            return NotImplemented
        return np.array_equal(self.pointer, other.pointer) and np.array_equal(self.neighbor, other.neighbor)

    def __hash__(self) -> int:
        return hash((self.pointer.tobytes(), self.neighbor.tobytes()))

    @property
    def degree(self) -> np.ndarray:
        """Number of neighbors of each node, ``(N,)``."""
        return np.diff(self.pointer)


def simple_graph(source: Tensor, target: Tensor, num_nodes: int) -> SimpleGraph:
    """The graph that has a link wherever there is an edge, in memory that Numba can read."""
    edge_index = remove_self_loops(torch.stack([source, target]).cpu())[0]
    source, target = to_undirected(edge_index, num_nodes=num_nodes)
    found = sort_edges(source, target, (num_nodes, num_nodes))
    return SimpleGraph(found.target_pointer.numpy(), found.source.numpy())


@njit(nogil=True, cache=True)
def search(
    start: int, limit: int, pointer: np.ndarray, neighbor: np.ndarray, distance: np.ndarray, queue: np.ndarray
) -> int:
    """Find the nodes within ``limit`` hops of ``start``, the nearest first.

    Args:
        start, limit: a node, and how far to go.
        pointer, neighbor: those of a :class:`SimpleGraph`.
        distance: ``(N,)``, -1 everywhere; afterwards the number of hops to each node that was found.
        queue: ``(N,)``, room for the nodes that were found.

    Returns:
        How many were found, ``start`` among them.
    """
    distance[start] = 0
    queue[0] = start
    found = 1
    at = 0
    while at < found:
        node = queue[at]
        at += 1
        if distance[node] == limit:
            break
        for e in range(pointer[node], pointer[node + 1]):
            other = neighbor[e]
            if distance[other] < 0:
                distance[other] = distance[node] + 1
                queue[found] = other
                found += 1
    return found
