"""Random trees for the tests of probes and scores."""

import numpy as np

from hkconv.data.treebanks import DependencyTree


def random_tree(random: np.random.Generator, size: int, punctuation: float = 0.15) -> DependencyTree:
    """A tree of that size whose words hang from any other, some of them punctuation that nothing hangs from."""
    order = random.permutation(size)
    heads = np.full(size, -1)
    for place in range(1, size):
        heads[order[place]] = order[random.integers(place)]
    is_leaf = ~np.isin(np.arange(size), heads)
    is_punctuation = is_leaf & (random.random(size) < punctuation) & (heads >= 0)
    return DependencyTree(tuple(f"w{i}" for i in range(size)), heads, is_punctuation)


def random_trees(seed: int, sizes) -> list[DependencyTree]:
    random = np.random.default_rng(seed)
    return [random_tree(random, int(size)) for size in sizes]


def tree(heads: str, punctuation: str = "") -> DependencyTree:
    """A tree from heads as CoNLL-U numbers them, such as ``"2 0 2"``, and the numbers of the punctuation."""
    numbers = np.array([int(head) - 1 for head in heads.split()])
    marks = np.isin(np.arange(1, len(numbers) + 1), [int(number) for number in punctuation.split()])
    return DependencyTree(tuple(f"w{i}" for i in range(len(numbers))), numbers, marks)


def root_paths(tree: DependencyTree) -> np.ndarray:
    """(n, n) vectors whose squared distances are the tree's: a coordinate for each edge, 1 below it and 0 above.

    The squared norm is the depth, because the root's vector is zero.
    """
    vectors = np.zeros((len(tree), len(tree)))
    for word in range(len(tree)):
        at = word
        while tree.heads[at] >= 0:
            vectors[word, at] = 1
            at = tree.heads[at]
    return vectors
