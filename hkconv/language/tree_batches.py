"""Gold trees in padded batches, so that probes and scores work on many sentences at once."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from hkconv.data.treebanks import DependencyTree

BATCH_SENTENCES = 64
# Long sentences come in smaller batches: the probes' largest temporaries hold a vector for every pair of words.
BATCH_PAIRS = 64 * 40**2


class TreeBatch(NamedTuple):
    """Sentences of similar length with their trees.

    Attributes:
        sentences: their numbers among all trees, ``(B,)``.
        rows: where each word stands when the words of all trees are written one after the other, ``(B, n)``; 0 at
            padding.
        present: False at padding, ``(B, n)``.
        scored: True for words that are no punctuation, ``(B, n)``.
        heads: position of each word's head, ``(B, n)``; -1 for roots and padding.
        depths: edges to the root, ``(B, n)``; 0 at padding.
        distances: edges between every two words, ``(B, n, n)``; 0 at padding.
    """

    sentences: Tensor
    rows: Tensor
    present: Tensor
    scored: Tensor
    heads: Tensor
    depths: Tensor
    distances: Tensor


def batch_trees(trees: Sequence[DependencyTree], device: torch.device | str = "cpu") -> list[TreeBatch]:
    """All trees in batches, the shortest sentences first.

    Args:
        trees: the trees.
        device: where the batches are to be.

    Returns:
        The batches; every tree is in one of them.
    """
    lengths = np.array([len(tree) for tree in trees])
    first_rows = np.cumsum(lengths) - lengths
    order = np.argsort(lengths, kind="stable")
    batches, start = [], 0
    while start < len(order):
        # The longest of the batch is its last, so the size that fits its pairs is sought from large to small.
        stop = min(start + BATCH_SENTENCES, len(order))
        while stop - start > 1 and (stop - start) * lengths[order[stop - 1]] ** 2 > BATCH_PAIRS:
            stop -= 1
        batches.append(_batch(trees, order[start:stop], first_rows, device))
        start = stop
    return batches


def _batch(
    trees: Sequence[DependencyTree], members: np.ndarray, first_rows: np.ndarray, device: torch.device | str
) -> TreeBatch:
    def padded(values: Callable[[int], np.ndarray], padding: int = 0) -> Tensor:
        columns = [torch.from_numpy(np.asarray(values(member))) for member in members]
        return pad_sequence(columns, batch_first=True, padding_value=padding).to(device)

    distances = torch.zeros(len(members), *(len(trees[members[-1]]),) * 2)
    for place, member in enumerate(members):
        length = len(trees[member])
        distances[place, :length, :length] = torch.from_numpy(trees[member].distances())
    return TreeBatch(
        sentences=torch.from_numpy(members).to(device),
        rows=padded(lambda member: first_rows[member] + np.arange(len(trees[member]))),
        present=padded(lambda member: np.ones(len(trees[member]), dtype=bool)),
        scored=padded(lambda member: ~trees[member].is_punctuation),
        heads=padded(lambda member: trees[member].heads, padding=-1),
        depths=padded(lambda member: trees[member].depths).float(),
        distances=distances.to(device),
    )
