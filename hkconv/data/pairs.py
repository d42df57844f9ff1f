"""Undirected node pairs as integers, so that sets of links can be compared with one tensor operation."""

import torch
from torch import Tensor


def pair_keys(pairs: Tensor, num_nodes: int) -> Tensor:
    """One integer for each pair, the same for ``(u, v)`` and ``(v, u)``.

    Args:
        pairs: (2, P) node indices below ``num_nodes``.
        num_nodes: number of nodes of the graph.

    Returns:
        (P,) int64 keys ``min * num_nodes + max``.
    """
    first, second = pairs.long()
    return torch.minimum(first, second) * num_nodes + torch.maximum(first, second)


def pairs_of_keys(keys: Tensor, num_nodes: int) -> Tensor:
    """The (2, P) pairs, smaller index first, that :func:`pair_keys` turned into ``keys``."""
    return torch.stack([keys.div(num_nodes, rounding_mode="floor"), keys % num_nodes])


def link_keys(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Sorted keys of the links of a graph: each undirected edge once, self loops left out.

    A self loop is no link between two nodes, so there is nothing to predict about it.
    """
    links = edge_index[:, edge_index[0] != edge_index[1]]
    return pair_keys(links, num_nodes).unique()
