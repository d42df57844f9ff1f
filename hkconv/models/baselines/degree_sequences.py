"""Structural similarity of two nodes, by the degrees of the nodes around them (struc2vec, Ribeiro et al. 2017)."""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hkconv.models.baselines.simple_graph import REMEMBERED, SimpleGraph, search
from hkconv.ops.compiling import njit


class DegreeSequences(NamedTuple):
    """The sorted degrees in the rings around the nodes, equal ones as one with their number.

    Those of the nodes at ``k`` hops from node ``i`` are at ``pointer[i * levels + k]`` to
    ``pointer[i * levels + k + 1]``.
    """

    pointer: np.ndarray
    degree: np.ndarray
    number: np.ndarray
    levels: int


class ComparedPairs(NamedTuple):
    """Pairs of nodes, ``first`` and ``second``, and their distance at each level, NaN where there is none."""

    first: np.ndarray
    second: np.ndarray
    distance: np.ndarray


@lru_cache(maxsize=REMEMBERED)
def compare_degrees(graph: SimpleGraph, hops: int) -> ComparedPairs:
    r"""The distances of struc2vec between each node and the :math:`2 \lceil\log_2 N\rceil` most like it in degree,

    .. math::
        f_k(u, v) = f_{k-1}(u, v) + \operatorname{DTW}\big(s(R_k(u)), s(R_k(v))\big), \qquad f_{-1} = 0,

    where :math:`R_k(u)` are the nodes at :math:`k` hops from :math:`u`, :math:`s` is the sorted sequence of their
    degrees, and DTW the least cost of aligning two sequences, an element of degree :math:`a` and one of degree
    :math:`b` at the cost :math:`\max(a, b) / \min(a, b) - 1`. There is no :math:`f_k` where a ring is empty.

    As struc2vec does for large graphs: equal degrees are one element :math:`(a, n_a)` of the sequence, and the cost of
    aligning two is multiplied by :math:`\max(n_a, n_b)`; a node is compared with those that stand within
    :math:`\lceil\log_2 N\rceil` places of it when the nodes are sorted by degree. Chosen here: among nodes of the same
    degree the mean degrees of their rings decide, the inner ring first.

    Args:
        graph: the nodes and links.
        hops: the largest :math:`k`.
    """
    sequences = _sequences(graph, hops + 1)
    order = np.lexsort(_ring_means(sequences).T[::-1])
    first, second = _neighbors_in(order, math.ceil(math.log2(order.size)))
    distance = np.full((first.size, hops + 1), np.nan)
    _compare(first, second, sequences, np.empty(np.diff(sequences.pointer).max() + 1), distance)
    return ComparedPairs(first, second, distance)


def _ring_means(sequences: DegreeSequences) -> np.ndarray:
    """Mean degree in each ring, 0 in an empty one, ``(N, levels)``."""
    size = np.diff(sequences.pointer)
    ring = np.repeat(np.arange(size.size), size)
    total = np.bincount(ring, sequences.degree * sequences.number.astype(np.float64), minlength=size.size)
    number = np.bincount(ring, sequences.number, minlength=size.size)
    return (total / np.maximum(number, 1)).reshape(-1, sequences.levels)


def _sequences(graph: SimpleGraph, levels: int) -> DegreeSequences:
    degrees, rank = np.unique(graph.degree, return_inverse=True)
    pointer, count = np.zeros(rank.size * levels + 1, np.int64), np.zeros(degrees.size, np.int32)
    # Once to see how many elements there are, and once to keep them.
    for _ in range(2):
        element, number = np.empty((2, pointer[-1]), np.int32)
        _fill(graph.pointer, graph.neighbor, rank, count, pointer, element, number)
    return DegreeSequences(pointer, degrees[element], number, levels)


@njit(nogil=True, cache=True)
def _fill(
    links: np.ndarray,
    neighbor: np.ndarray,
    rank: np.ndarray,
    count: np.ndarray,
    pointer: np.ndarray,
    element: np.ndarray,
    number: np.ndarray,
) -> None:
    """Write the sequences of ranks of degrees; ``count`` is room for how often each rank was met, all 0."""
    num_nodes = rank.size
    levels = (pointer.size - 1) // num_nodes
    distance, queue = np.full(num_nodes, -1, np.int32), np.empty(num_nodes, np.int32)
    filled = 0
    for node in range(num_nodes):
        found = search(node, levels - 1, links, neighbor, distance, queue)
        at = 0
        for level in range(levels):
            while at < found and distance[queue[at]] == level:
                count[rank[queue[at]]] += 1
                at += 1
            for value in range(count.size):
                if count[value]:
                    if element.size:
                        element[filled], number[filled] = value, count[value]
                    filled += 1
                    count[value] = 0
            pointer[node * levels + level + 1] = filled
        for i in range(found):
            distance[queue[i]] = -1


def _neighbors_in(order: np.ndarray, reach: int) -> tuple[np.ndarray, np.ndarray]:
    """All pairs that stand at most ``reach`` places from each other."""
    steps = range(1, min(reach, order.size - 1) + 1)
    pairs = [np.stack([order[:-step], order[step:]]) for step in steps]
    first, second = np.concatenate([np.empty((2, 0), order.dtype), *pairs], axis=1)
    return first, second


@njit(nogil=True, cache=True)
def _compare(
    first: np.ndarray, second: np.ndarray, sequences: DegreeSequences, costs: np.ndarray, distance: np.ndarray
) -> None:
    """Fill in the distances of all pairs; ``costs`` is room for one more than the longest sequence has elements."""
    for pair in range(first.size):
        total = 0.0
        for level in range(sequences.levels):
            a, b = first[pair] * sequences.levels + level, second[pair] * sequences.levels + level
            if sequences.pointer[a] == sequences.pointer[a + 1] or sequences.pointer[b] == sequences.pointer[b + 1]:
                break
            total += _align(a, b, sequences, costs)
            distance[pair, level] = total


@njit(nogil=True, cache=True)
def _align(a: int, b: int, sequences: DegreeSequences, costs: np.ndarray) -> float:
    """The least cost of a path through the pairs of elements of two sequences that leaves out none."""
    first, size = sequences.pointer[b], sequences.pointer[b + 1] - sequences.pointer[b]
    costs[0] = 0.0
    for j in range(size):
        costs[j + 1] = math.inf
    for i in range(sequences.pointer[a], sequences.pointer[a + 1]):
        diagonal = costs[0]
        costs[0] = math.inf
        for j in range(size):
            above = costs[j + 1]
            best = min(min(above, diagonal), costs[j])
            diagonal = above
            number = max(sequences.number[i], sequences.number[first + j])
            costs[j + 1] = best + number * _cost(sequences.degree[i], sequences.degree[first + j])
    return costs[size]


@njit(nogil=True, cache=True)
def _cost(a: int, b: int) -> float:
    if a == b:
        return 0.0
    # A node without links is infinitely unlike one with.
    return max(a, b) / min(a, b) - 1.0 if min(a, b) > 0 else math.inf
