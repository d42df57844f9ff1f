"""The two ways the paper's datasets are divided; a result that does not name its own does not exist.

``clean``
    What :func:`hkconv.data.load` gives by default: disjoint parts, a test set that is looked at once.
``published``
    What the code released with the paper does, to show what it yields.

A third name, ``own``, marks the splits of a user's file.

How ``published`` divides, as read from the released code, its training scripts and their default seed:

* *Cornell, Texas, Wisconsin, Chameleon, Squirrel, Actor*: :func:`binary_split` with 15 % validation and 15 % test. It
  was written for two classes and is used on five, so that train, validation and test overlap and members repeat.
* *Graph tasks*: :func:`binary_split` with 10 % validation and no test set; what is reported as test is the best
  validation score. Classes are numbered in the order in which they appear in the file, which decides who overlaps:
  ENZYMES and IMDB-MULTI do, the sets of two classes do not. Here the test part *is* the validation part, so that
  training needs to know nothing of it and the overlap of the two, 100 %, says what the score is.
* *Cora, PubMed*: Planetoid's 20 training nodes a class and its last 1000 nodes to test on, but the 1000 nodes after
  the training nodes to validate with, where Planetoid takes 500. Disjoint and the same for every split.

Split i has the seed 1234 + i; the released scripts use 1234 alone. A protocol says how data is divided and nothing
else. Closest to how the released code reads its node data are ``cornell-legacy``, ``direction="out"`` and
``normalize_features=True``; the trainings of our tables are from before there was ``"out"`` and have ``"in"``. Its
graph tasks had constant features on IMDB and no continuous attributes on ENZYMES and PROTEINS.
"""

import numpy as np
import torch
from torch import Tensor

from hkconv.data.catalog import CITATION_NODES, GRAPHS
from hkconv.data.dataset import OverlappingSplit, Split

FIRST_SEED = 1234
NODE_FRACTION = 0.15
GRAPH_FRACTION = 0.10
TRAINING_NODES_A_CLASS = 20
CITATION_VAL = CITATION_TEST = 1000


def published_splits(name: str, y: Tensor, num_splits: int) -> list[Split]:
    """The splits of the paper's released code; the i-th depends on i alone.

    Args:
        name: a dataset that :func:`hkconv.data.catalog.check_protocol` accepts.
        y: (N,) labels of its nodes or graphs.
        num_splits: number of splits.

    Returns:
        ``num_splits`` splits.
    """
    seeds = range(FIRST_SEED, FIRST_SEED + num_splits)
    if name in CITATION_NODES:
        return [_citation_split(y)] * num_splits
    if name in GRAPHS:
        return [_graph_split(y, seed) for seed in seeds]
    return [OverlappingSplit(*binary_split(y, NODE_FRACTION, NODE_FRACTION, seed)) for seed in seeds]


def binary_split(y: Tensor, val_fraction: float, test_fraction: float, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """A random division that assumes two classes, 0 and 1, and goes wrong for more.

    Two lists are shuffled, members whose label is not 0 and members whose label is not 1. Each is cut into validation,
    test and training members, the first two of the same size in both lists, a fraction of the shorter one. Members
    labelled 2 or higher are in both lists: in two parts, or twice in one.

    Args:
        y: (N,) integer labels.
        val_fraction: share of validation members.
        test_fraction: share of test members.
        seed: of NumPy's legacy generator, which the released code uses.

    Returns:
        Indices of train, validation and test members, with repeats.
    """
    labels = y.numpy()
    random = np.random.RandomState(seed)
    lists = [np.flatnonzero(labels != 0), np.flatnonzero(labels != 1)]
    for members in lists:
        random.shuffle(members)
    shorter = min(map(len, lists))
    num_val, num_test = round(val_fraction * shorter), round(test_fraction * shorter)
    pieces = [np.split(members, [num_val, num_val + num_test]) for members in lists]
    val, test, train = (torch.from_numpy(np.concatenate(pair)) for pair in zip(*pieces))
    return train, val, test


def _graph_split(y: Tensor, seed: int) -> OverlappingSplit:
    train, val, _ = binary_split(_numbered_by_appearance(y), GRAPH_FRACTION, 0.0, seed)
    return OverlappingSplit(train, val, test=val)


def _citation_split(y: Tensor) -> Split:
    num_train = TRAINING_NODES_A_CLASS * len(y.unique())
    return Split(
        train=torch.arange(num_train),
        val=torch.arange(num_train, num_train + CITATION_VAL),
        test=torch.arange(len(y) - CITATION_TEST, len(y)),
    )


def _numbered_by_appearance(y: Tensor) -> Tensor:
    _, first, class_of = np.unique(y.numpy(), return_index=True, return_inverse=True)
    return torch.from_numpy(first.argsort().argsort()[class_of])
