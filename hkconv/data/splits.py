"""Ways to divide nodes, graphs and links, all disjoint, stratified where there are classes, and seeded."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from hkconv.data.checks import check_fractions, check_num_splits
from hkconv.data.dataset import LinkSplit, Split, link_keys, pair_keys, pairs_of_keys
from hkconv.errors import InputError

# The links that HGCN (Chami et al. 2019) trains on, chooses with and tests on.
HGCN_LINK_FRACTIONS = (0.85, 0.05, 0.10)


def seeded_generator(seed: int, *stream: int) -> torch.Generator:
    """CPU generator for one numbered stream of a seed: split 3 does not depend on how many splits there are.

    Args:
        seed: the user's seed, zero or larger.
        stream: non-negative numbers naming the use, such as the index of a split.

    Returns:
        A generator that is equal for equal arguments and unrelated for different ones.
    """
    if seed < 0:
        raise InputError(f"seed must be zero or larger, got {seed}")
    state = np.random.SeedSequence(seed, spawn_key=stream).generate_state(1, dtype=np.uint64)[0]
    return torch.Generator().manual_seed(int(state) >> 1)


def stratified_split(y: Tensor, fractions: tuple[float, float, float], generator: torch.Generator) -> Split:
    """A random split in which every part has about the same share of every class.

    Every class keeps at least one training member, however small it is.

    Args:
        y: (N,) integer labels.
        fractions: of train, val and test; they sum to one.
        generator: source of randomness.

    Returns:
        A split that covers all N members.
    """
    check_fractions(fractions)
    part = _deal(y, fractions, generator)
    return Split(*((part == index).nonzero().flatten() for index in range(3)))


def stratified_splits(y: Tensor, fractions: tuple[float, float, float], num_splits: int, seed: int) -> list[Split]:
    """``num_splits`` independent :func:`stratified_split`; the i-th depends on ``seed`` and i alone."""
    return [stratified_split(y, fractions, seeded_generator(seed, index)) for index in range(num_splits)]


def stratified_folds(y: Tensor, num_folds: int = 10, val_fraction: float = 0.1, seed: int = 0) -> list[Split]:
    """Stratified outer folds with an inner validation split each (Errica et al. 2020).

    Every member is tested in exactly one fold. Validation members are taken, stratified, from the rest of a
    fold; every class with a member in that rest keeps at least one to train on.

    Args:
        y: (G,) integer labels.
        num_folds: number of folds.
        val_fraction: share of the members outside the test fold that validates.
        seed: seed of the folds and of the inner splits.

    Returns:
        ``num_folds`` splits.
    """
    if not 2 <= num_folds <= len(y):
        raise InputError(f"num_folds must be from 2 to the number of members ({len(y)}), got {num_folds}")
    if not 0 < val_fraction < 1:
        raise InputError(f"val_fraction must lie between 0 and 1, got {val_fraction}")
    fold = torch.empty_like(y, dtype=torch.int64)
    # The outer folds have the stream that no inner split uses, so that both are independent.
    fold[_class_by_class(y, seeded_generator(seed, num_folds))] = torch.arange(len(y)) % num_folds
    return [_fold_split(y, fold == index, val_fraction, seeded_generator(seed, index)) for index in range(num_folds)]


def masks_to_splits(data: Data) -> list[Split]:
    """The splits that PyG stores as boolean masks, (N,) for one split or (N, S) for S of them.

    Args:
        data: a graph with ``train_mask``, ``val_mask`` and ``test_mask``.

    Returns:
        One split for each column of the masks.
    """
    masks = [mask.reshape(len(mask), -1) for mask in (data.train_mask, data.val_mask, data.test_mask)]
    columns = zip(*(mask.unbind(dim=1) for mask in masks))
    return [Split(*(mask.nonzero().flatten() for mask in column)) for column in columns]


def link_splits(
    edge_index: Tensor,
    num_nodes: int,
    fractions: tuple[float, float, float] = HGCN_LINK_FRACTIONS,
    num_splits: int = 10,
    seed: int = 0,
) -> list[LinkSplit]:
    """Random divisions of a graph's links, with as many non-links for validation and test.

    Links are undirected; self loops are left out. The i-th split depends on ``seed`` and i alone.

    Args:
        edge_index: (2, E) edges of the whole graph, in one direction or both.
        num_nodes: number of nodes of the graph.
        fractions: of train, val and test links; they sum to one.
        num_splits: number of splits.
        seed: seed of links and negatives.

    Returns:
        ``num_splits`` splits.
    """
    check_fractions(fractions)
    check_num_splits(num_splits, "link prediction")
    links = link_keys(edge_index, num_nodes)
    sizes = [max(1, round(fraction * len(links))) for fraction in fractions[1:]]
    if len(links) <= sum(sizes):
        raise InputError(f"link prediction needs at least 3 links between different nodes, got {len(links)}")
    non_links = num_nodes * (num_nodes - 1) // 2 - len(links)
    if non_links < sum(sizes):
        raise InputError(
            f"link prediction needs {sum(sizes)} unlinked pairs to compare with, the graph has {non_links}"
        )
    return [_link_split(links, num_nodes, sizes, seeded_generator(seed, index)) for index in range(num_splits)]


def unlinked_pairs(links: Tensor, num_nodes: int, most: int) -> Tensor:
    """Pairs of different nodes that are not linked: all of them or, of more, some with the most common neighbors.

    Args:
        links: (2, E) pairs, each once.
        num_nodes: number of nodes.
        most: how many pairs there may be.

    Returns:
        (2, P) pairs, each once, smaller node first.
    """
    known = pair_keys(links, num_nodes)
    if num_nodes * (num_nodes - 1) // 2 <= most:
        pairs = torch.combinations(torch.arange(num_nodes)).t()
        return pairs[:, ~torch.isin(pair_keys(pairs, num_nodes), known)]
    from scipy.sparse import coo_array, triu

    ends = torch.cat([links, links.flip(0)], dim=1)
    adjacency = coo_array((np.ones(ends.size(1)), ends.numpy()), shape=(num_nodes, num_nodes)).tocsr()
    common = triu(adjacency @ adjacency, k=1).tocoo()
    pairs = torch.from_numpy(np.stack(common.coords).astype(np.int64))
    is_open = ~torch.isin(pair_keys(pairs, num_nodes), known)
    order = torch.from_numpy(common.data)[is_open].argsort(descending=True, stable=True)[:most]
    return pairs[:, is_open][:, order]


def _class_by_class(y: Tensor, generator: torch.Generator) -> Tensor:
    """All members, class after class, in random order within a class."""
    shuffled = torch.randperm(len(y), generator=generator)
    return shuffled[torch.argsort(y[shuffled], stable=True)]


def _deal(y: Tensor, fractions: Sequence[float], generator: torch.Generator) -> Tensor:
    """The part, numbered from 0, that each member is dealt to, class after class.

    Whoever is furthest behind its fraction gets the next member. What a class cannot give a part, because it
    has too few members to divide, the next class makes up for; rounding within each class would not.
    """
    order = _class_by_class(y, generator)
    debts = [0.0] * len(fractions)
    parts: list[int] = []
    previous_class = None
    for label in y[order].tolist():
        debts = [debt + fraction for debt, fraction in zip(debts, fractions)]
        chosen = debts.index(max(debts)) if label == previous_class else 0
        debts[chosen] -= 1
        parts.append(chosen)
        previous_class = label
    part = torch.empty(len(y), dtype=torch.int64)
    part[order] = torch.tensor(parts, dtype=torch.int64)
    return part


def _fold_split(y: Tensor, is_test: Tensor, val_fraction: float, generator: torch.Generator) -> Split:
    rest = (~is_test).nonzero().flatten()
    part = _deal(y[rest], (1 - val_fraction, val_fraction), generator)
    return Split(train=rest[part == 0], val=rest[part == 1], test=is_test.nonzero().flatten())


def _link_split(links: Tensor, num_nodes: int, sizes: list[int], generator: torch.Generator) -> LinkSplit:
    num_val, num_test = sizes
    shuffled = links[torch.randperm(len(links), generator=generator)]
    val, test, train = shuffled.split([num_val, num_test, len(links) - num_val - num_test])
    negatives = _unlinked_keys(links, num_nodes, num_val + num_test, generator)
    keys = (train, val, test, negatives[:num_val], negatives[num_val:])
    return LinkSplit(*(pairs_of_keys(key, num_nodes) for key in keys))


def _unlinked_keys(links: Tensor, num_nodes: int, count: int, generator: torch.Generator) -> Tensor:
    """``count`` different random pairs that are no links, by drawing until there are enough."""
    found = links.new_empty(0)
    while len(found) < count:
        drawn = link_keys(torch.randint(num_nodes, (2, 2 * count), generator=generator), num_nodes)
        found = torch.cat([found, drawn[~torch.isin(drawn, links)]]).unique()
    # `unique` sorted them: shuffle before cutting, or the first nodes would get all the negatives.
    return found[torch.randperm(len(found), generator=generator)[:count]]
