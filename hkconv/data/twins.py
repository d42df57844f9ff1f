"""Members that look alike, and how many test members have such a twin in training.

A test member with a twin in training is known from training: raw Chameleon and Squirrel owe much of their published
accuracy to such nodes (Platonov et al. 2023). Who is alike is said by numbers, equal for members that are; all
comparisons are exact. Graphs that are alike are in :mod:`hkconv.data.isomorphism`.
"""

from collections.abc import Hashable, Iterable

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce


def same_neighbors(graph: Data) -> Tensor:
    """A number for each node, equal for nodes with the same in-neighbours and the same out-neighbours.

    Args:
        graph: edges in the direction that the dataset gives them; repeats do not matter.

    Returns:
        (N,) int64.
    """
    source, target = coalesce(graph.edge_index).numpy()
    sides = [_neighbor_lists(source, target, graph.num_nodes), _neighbor_lists(target, source, graph.num_nodes)]
    return _numbered(zip(*sides))


def same_rows(x: Tensor) -> Tensor:
    """A number for each row of a matrix, equal for equal rows.

    Args:
        x: (N, F) features.

    Returns:
        (N,) int64.
    """
    # Adding zero turns -0.0 into 0.0, which is equal but has other bytes.
    return _numbered(row.tobytes() for row in (x + 0.0).numpy())


def same_tuples(*numbers: Tensor) -> Tensor:
    """A number for each member, from 0 without gaps, equal for members that are equal in all of ``numbers``."""
    same = torch.zeros_like(numbers[0])
    for number in numbers:
        ranks = number.unique(return_inverse=True)[1]
        # Below the square of the number of members: no overflow.
        same = (same * (1 + ranks.max()) + ranks).unique(return_inverse=True)[1]
    return same


def num_with_twin(part: Tensor, training: Tensor, number: Tensor) -> int:
    """Number of different members of a part that have a twin among the training members, other than themselves.

    Args:
        part: (P,) indices, for example of the test members.
        training: (T,) indices of the training members.
        number: (N,) int64 of zero or more, equal for twins; below zero for members that are nobody's twin.

    Returns:
        The count.
    """
    part, training = part.unique(), training.unique()
    known = number[training]
    trained = torch.bincount(known[known >= 0], minlength=int(number.max()) + 1)
    part = part[number[part] >= 0]
    others = trained[number[part]] - torch.isin(part, training).long()
    return int((others > 0).sum())


def label_agreement(y: Tensor, number: Tensor) -> float | None:
    """The share of all pairs of members with the same number that have the same label; None without such a pair."""
    y, number = y[number >= 0], number[number >= 0]
    alike = _num_pairs(number)
    return _num_pairs(same_tuples(number, y)) / alike if alike else None


def _num_pairs(number: Tensor) -> int:
    sizes = number.unique(return_counts=True)[1]
    return int((sizes * (sizes - 1)).sum()) // 2


def _numbered(keys: Iterable[Hashable]) -> Tensor:
    """The keys numbered in order of appearance."""
    numbers: dict[Hashable, int] = {}
    return torch.tensor([numbers.setdefault(key, len(numbers)) for key in keys], dtype=torch.int64)


def _neighbor_lists(nodes: np.ndarray, neighbors: np.ndarray, num_nodes: int) -> list[bytes]:
    """The sorted neighbours of each node, as bytes."""
    order = np.lexsort((neighbors, nodes))
    ends = np.cumsum(np.bincount(nodes, minlength=num_nodes))
    return [piece.tobytes() for piece in np.split(neighbors[order], ends[:-1])]
