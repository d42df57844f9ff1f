"""Agreement of predicted distances and depths of words with gold trees, as Hewitt and Manning (2019) score them.

Punctuation is left out where trees are compared (UUAS and Root %) and kept where ranks are (DSpr. and NSpr.), as their
released program does.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.language.tree_batches import TreeBatch

SHORTEST, LONGEST = 5, 50


class DistanceScores(NamedTuple):
    """Scores of predicted distances.

    Attributes:
        uuas: share of the gold edges between words that are no punctuation which the minimum spanning trees of the
            predicted distances contain, over all sentences.
        dspr: Spearman correlation of predicted and gold distances of a word to all words of its sentence, itself
            included, averaged over the words of all sentences of a length, then over the lengths from 5 to 50.
    """

    uuas: float
    dspr: float


class DepthScores(NamedTuple):
    """Scores of predicted depths.

    Attributes:
        root: share of the sentences in which the root is the least deep of the words that are no punctuation.
        nspr: Spearman correlation of predicted and gold depths in a sentence, averaged over the sentences of a length,
            then over the lengths from 5 to 50.
    """

    root: float
    nspr: float


def score_distances(predictions: Iterable[tuple[Tensor, TreeBatch]]) -> DistanceScores:
    """UUAS and DSpr. of predicted distances ``(B, n, n)``, each with the batch that they were predicted for."""
    correct, total, by_length = 0, 0, _ByLength()
    for predicted, batch in predictions:
        hits, edges = _compare_edges(spanning_trees(predicted, batch.scored), batch)
        correct, total = correct + int(hits.sum()), total + int(edges.sum())
        # (B, 1, n): row by row, all words of the sentence; rows of padding are averaged away.
        correlations = spearman(predicted, batch.distances, batch.present.unsqueeze(1))
        of_words = torch.where(batch.present, correlations, 0).sum(1) / batch.present.sum(1)
        by_length.add(of_words, batch)
    if total == 0:
        raise InputError("treebank has no edge between words that are no punctuation: there is nothing to score")
    return DistanceScores(correct / total, by_length.mean())


def score_depths(predictions: Iterable[tuple[Tensor, TreeBatch]]) -> DepthScores:
    """Root % (as a share) and NSpr. of predicted depths ``(B, n)``, each with the batch they were predicted for."""
    correct, total, by_length = 0, 0, _ByLength()
    for predicted, batch in predictions:
        least_deep = predicted.masked_fill(~batch.scored, torch.inf).argmin(1, keepdim=True)
        is_root = (batch.heads == -1) & batch.scored
        correct, total = correct + int(is_root.gather(1, least_deep).sum()), total + len(predicted)
        by_length.add(spearman(predicted, batch.depths, batch.present), batch)
    return DepthScores(correct / total, by_length.mean())


def spanning_trees(distances: Tensor, nodes: Tensor) -> Tensor:
    """Minimum spanning trees of complete graphs, grown from their first node by Prim's algorithm.

    Args:
        distances: symmetric weights of the edges, ``(B, n, n)``.
        nodes: which of the n are nodes of the graph, ``(B, n)``.

    Returns:
        ``(B, n)``: the node of the tree that each node was joined to; -1 for the first and for what is no node.
    """
    graphs = torch.arange(len(nodes), device=nodes.device)
    weights = distances.masked_fill(~(nodes.unsqueeze(1) & nodes.unsqueeze(2)), torch.inf)
    newest = nodes.int().argmax(1)
    parents = torch.full_like(nodes, -1, dtype=torch.long)
    outside = nodes.clone()
    outside[graphs, newest] = False
    cost, nearest = weights[graphs, newest], newest.unsqueeze(1).expand_as(nodes)
    for _ in range(nodes.size(1) - 1):
        least, newest = cost.masked_fill(~outside, torch.inf).min(1)
        joined = least < torch.inf
        parents[graphs, newest] = torch.where(joined, nearest[graphs, newest], parents[graphs, newest])
        outside[graphs, newest] &= ~joined
        closer = weights[graphs, newest] < cost
        cost = torch.where(closer, weights[graphs, newest], cost)
        nearest = torch.where(closer, newest.unsqueeze(1), nearest)
    return parents


def spearman(first: Tensor, second: Tensor, present: Tensor) -> Tensor:
    """Spearman's rank correlation over the last dimension, equal values sharing the mean of their ranks.

    Args:
        first, second: finite values, ``(..., n)``.
        present: which of them count, broadcast to the same shape.

    Returns:
        ``(...)`` in float64; 0 where all of either are equal, for then they order nothing.
    """
    present = present.expand_as(first)
    count = present.sum(-1, keepdim=True)
    x, y = (torch.where(present, _ranks(values, present) - (count + 1) / 2, 0) for values in (first, second))
    product, scale = (x * y).sum(-1), ((x * x).sum(-1) * (y * y).sum(-1)).sqrt()
    return torch.where(scale > 0, product / torch.where(scale > 0, scale, 1), 0)


def _ranks(values: Tensor, present: Tensor) -> Tensor:
    """From 1 on: half of how many values are below, plus half of how many are not above, plus a half."""
    values = values.masked_fill(~present, torch.inf)
    ordered = values.sort(-1).values
    below, not_above = (torch.searchsorted(ordered, values, right=right) for right in (False, True))
    return (below + not_above + 1).double() / 2


def matching_edges(parents: Tensor, heads: Tensor) -> Tensor:
    """``(B, n)``: whether the edge from a node to its parent joins a word and its head, in either direction."""
    places = torch.arange(parents.size(1), device=parents.device)
    upward = heads == parents
    downward = heads.gather(1, parents.clamp(min=0)) == places
    return (parents >= 0) & (upward | downward)


def _compare_edges(parents: Tensor, batch: TreeBatch) -> tuple[Tensor, Tensor]:
    """Return which predicted edges are gold ones, and which words have a gold edge to a head that is scored too."""
    has_head = batch.scored & (batch.heads >= 0) & batch.scored.gather(1, batch.heads.clamp(min=0))
    return matching_edges(parents, batch.heads), has_head


class _ByLength:
    """Values of sentences, averaged over those of a length and then over the lengths from 5 to 50."""

    def __init__(self) -> None:
        self.values: list[np.ndarray] = []
        self.lengths: list[np.ndarray] = []

    def add(self, values: Tensor, batch: TreeBatch) -> None:
        self.values.append(values.cpu().numpy())
        self.lengths.append(batch.present.sum(1).cpu().numpy())

    def mean(self) -> float:
        values, lengths = np.concatenate(self.values), np.concatenate(self.lengths)
        means = [values[lengths == length].mean() for length in range(SHORTEST, LONGEST + 1) if length in lengths]
        if not means:
            raise InputError(f"treebank has no sentence of {SHORTEST} to {LONGEST} words: there is nothing to score")
        return float(np.mean(means))
