"""Checks of every dataset before a model sees it, with errors that name the dataset and the fault.

``owner`` is how a message calls the data at hand, for example ``dataset 'texas'``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from hkconv.errors import InputError

# The label of a node or graph that nobody knows the class of. It takes part in no split.
UNKNOWN = -1

INTEGER_TYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@dataclass(frozen=True)
class Overlap:
    """Members that two parts of a split share, counted once each.

    Args:
        part: the part that is meant to be held out.
        other: the part it is compared with.
        shared: how many of its different members are in ``other`` too.
        members: how many different members it has.
    """

    part: str
    other: str
    shared: int
    members: int

    @property
    def name(self) -> str:
        """Such as ``"test in train"``."""
        return f"{self.part} in {self.other}"

    @property
    def share(self) -> float:
        """Shared members as a share of the part."""
        return self.shared / self.members


def overlaps(parts: Mapping[str, Tensor]) -> list[Overlap]:
    """The overlap of every two parts, the later one as the part that is held out.

    Args:
        parts: non-empty index tensors by name, such as train, val and test; repeats count once.

    Returns:
        For train, val and test: val in train, test in train, test in val.
    """
    unique = {name: members.unique() for name, members in parts.items()}
    return [
        Overlap(later, earlier, int(torch.isin(unique[later], unique[earlier]).sum()), len(unique[later]))
        for earlier, later in combinations(unique, 2)
    ]


def check_features(x: object, owner: str, *, may_miss: bool = False) -> None:
    """``x`` is a non-empty (N, F) float matrix of finite numbers, or with ``may_miss`` of these and NaN."""
    if not isinstance(x, Tensor) or x.dim() != 2 or not x.is_floating_point():
        raise InputError(f"features of {owner} must be a 2-D float tensor (nodes, features), got {_what(x)}")
    if x.size(0) == 0:
        raise InputError(f"{owner} is an empty graph: at least one node is needed")
    if x.size(1) == 0:
        raise InputError(f"features of {owner} have no columns: at least one is needed")
    bad_rows = (x.isinf() if may_miss else ~x.isfinite()).any(dim=1).nonzero()
    if len(bad_rows):
        raise InputError(f"features of {owner} contain NaN or Inf, first in row {int(bad_rows[0])}")


def check_columns(x: object, num_columns: int, owner: str) -> None:
    """``x`` is a non-empty (N, C) integer matrix of column numbers in [0, num_columns)."""
    if not isinstance(x, Tensor) or x.dim() != 2 or x.dtype not in INTEGER_TYPES or x.size(1) == 0:
        raise InputError(f"features of {owner} must be a 2-D integer tensor (nodes, ones of a node), got {_what(x)}")
    if x.size(0) == 0:
        raise InputError(f"{owner} is an empty graph: at least one node is needed")
    if int(x.min()) < 0 or int(x.max()) >= num_columns:
        raise InputError(
            f"features of {owner} must name columns in [0, {num_columns}), got {int(x.min())} to {int(x.max())}"
        )


def check_edges(edge_index: object, num_nodes: int, owner: str) -> None:
    """``edge_index`` is a (2, E) integer tensor with entries in [0, num_nodes)."""
    if not isinstance(edge_index, Tensor) or edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise InputError(f"edge_index of {owner} must have shape (2, edges), got {_what(edge_index)}")
    if edge_index.dtype not in INTEGER_TYPES:
        raise InputError(f"edge_index of {owner} must hold integers (torch.int64), got {edge_index.dtype}")
    if edge_index.numel() and (int(edge_index.min()) < 0 or int(edge_index.max()) >= num_nodes):
        column = int(((edge_index < 0) | (edge_index >= num_nodes)).any(dim=0).nonzero()[0])
        raise InputError(
            f"edge_index of {owner} must stay within [0, {num_nodes}), "
            f"but column {column} is {tuple(edge_index[:, column].tolist())}"
        )


def check_weights(edge_weight: object, num_edges: int, owner: str) -> None:
    """``edge_weight``, if there is one, holds a finite number of at least 0 for each edge."""
    if edge_weight is None:
        return
    if not isinstance(edge_weight, Tensor) or edge_weight.shape != (num_edges,) or not edge_weight.is_floating_point():
        raise InputError(f"edge_weight of {owner} must be {num_edges} floats in a 1-D tensor, got {_what(edge_weight)}")
    bad = (~(edge_weight.isfinite() & (edge_weight >= 0))).nonzero()
    if len(bad):
        number = int(bad[0])
        raise InputError(
            f"edge_weight of {owner} must be finite and at least 0, got {float(edge_weight[number])} for edge {number}"
        )


def check_edge_attributes(edge_attr: object, num_edges: int, num_columns: int | None, owner: str) -> None:
    """``edge_attr``, if there is one, holds a row an edge: finite floats, or with ``num_columns`` columns below it."""
    if edge_attr is None:
        return
    wanted = "floats" if num_columns is None else "integers"
    is_right = isinstance(edge_attr, Tensor) and edge_attr.dim() == 2 and edge_attr.size(0) == num_edges
    if not isinstance(edge_attr, Tensor) or not is_right or edge_attr.is_floating_point() != (num_columns is None):
        raise InputError(f"edge_attr of {owner} must be {num_edges} rows of {wanted}, got {_what(edge_attr)}")
    if edge_attr.is_floating_point() and not edge_attr.isfinite().all():
        raise InputError(f"edge_attr of {owner} contains NaN or Inf")
    if num_columns is not None and edge_attr.numel() and int(edge_attr.max()) >= num_columns:
        raise InputError(f"edge_attr of {owner} must name columns in [0, {num_columns}), got {int(edge_attr.max())}")


def check_labels(y: object, count: int, num_classes: int, owner: str) -> None:
    """``y`` holds ``count`` integers, ``UNKNOWN`` or labels in [0, num_classes), and at least two of the classes."""
    if not isinstance(y, Tensor) or y.shape != (count,) or y.dtype not in INTEGER_TYPES:
        raise InputError(f"labels of {owner} must be {count} integers in a 1-D tensor, got {_what(y)}")
    if int(y.min()) < UNKNOWN or int(y.max()) >= num_classes:
        raise InputError(f"labels of {owner} must lie in [0, {num_classes}), got {int(y.min())} to {int(y.max())}")
    classes = y[y != UNKNOWN].unique().tolist()
    if len(classes) < 2:
        found = f"one class only ({classes[0]})" if classes else "no known class"
        raise InputError(f"labels of {owner} have {found}: at least two are needed")


def check_known(y: Tensor, parts: Mapping[str, Tensor], owner: str) -> None:
    """Every member of a split has a label."""
    for name, members in parts.items():
        unknown = members[y[members] == UNKNOWN]
        if len(unknown):
            raise InputError(f"member {int(unknown[0])} of {name} of a split of {owner} has no label")


def check_answers(y: object, count: int, owner: str) -> None:
    """``y`` holds (count, questions) floats, each 0, 1 or NaN, and one question at least has both answers."""
    is_right = isinstance(y, Tensor) and y.dim() == 2 and y.size(0) == count and y.size(1) > 0
    if not isinstance(y, Tensor) or not is_right or not y.is_floating_point():
        raise InputError(f"labels of {owner} must be a 2-D float tensor ({count}, questions), got {_what(y)}")
    other = y[(y != 0) & (y != 1) & ~y.isnan()]
    if len(other):
        raise InputError(f"labels of {owner} must be 0, 1 or NaN, got {float(other[0])}")
    if not both_answers(y).any():
        raise InputError(f"labels of {owner} have no question with both answers: at least one is needed")


def check_numbers(y: object, count: int, owner: str) -> None:
    """``y`` holds (count, 1) floats, finite or NaN, and not all of them are the same."""
    if not isinstance(y, Tensor) or y.shape != (count, 1) or not y.is_floating_point():
        raise InputError(f"labels of {owner} must be a float tensor of shape ({count}, 1), got {_what(y)}")
    if y.isinf().any():
        raise InputError(f"labels of {owner} must be finite numbers, or NaN where unknown")
    if len(y[~y.isnan()].unique()) < 2:
        raise InputError(f"labels of {owner} must hold at least two different numbers")


def both_answers(y: Tensor) -> Tensor:
    """(T,) whether each question, a column of ``y``, has a 0 and a 1."""
    return (y == 0).any(dim=0) & (y == 1).any(dim=0)


def check_parts(parts: Mapping[str, Tensor], owner: str) -> None:
    """Every part is a non-empty 1-D int64 tensor of indices of zero or more."""
    for name, members in parts.items():
        if not isinstance(members, Tensor) or members.dim() != 1 or members.dtype != torch.int64:
            raise InputError(f"{name} of {owner} must be a 1-D int64 tensor, got {_what(members)}")
        if len(members) == 0:
            raise InputError(f"{name} of {owner} is empty: every part needs at least one member")
        check_least(int(members.min()), name, owner)


def check_least(smallest: int, name: str, owner: str) -> None:
    """The smallest index that a part of ``owner`` mentions is zero or more."""
    if smallest < 0:
        raise InputError(f"{name} of {owner} must hold indices of zero or more, got {smallest}")


def check_disjoint(parts: Mapping[str, Tensor], owner: str) -> None:
    """The parts are as :func:`check_parts` wants them, without repeats, and no two share a member."""
    check_parts(parts, owner)
    for name, members in parts.items():
        repeats = len(members) - len(members.unique())
        if repeats:
            raise InputError(f"{name} of {owner} lists {repeats} of its members more than once")
    for found in overlaps(parts):
        if found.shared:
            raise InputError(
                f"{found.other} and {found.part} of {owner} share {found.shared} members: they must be disjoint"
            )


def check_pairs(pairs: object, name: str, owner: str) -> None:
    """``pairs`` is a (2, P) int64 tensor of indices of zero or more."""
    if not isinstance(pairs, Tensor) or pairs.dim() != 2 or pairs.size(0) != 2 or pairs.dtype != torch.int64:
        raise InputError(f"{name} of {owner} must be a (2, pairs) int64 tensor, got {_what(pairs)}")
    if pairs.numel():
        check_least(int(pairs.min()), name, owner)


def check_range(largest: int, count: int, owner: str) -> None:
    """The largest index that a split of ``owner`` mentions exists."""
    if largest >= count:
        raise InputError(f"a split of {owner} mentions index {largest}, but indices end at {count - 1}")


def check_fractions(fractions: tuple[float, ...]) -> None:
    """``fractions`` are three positive numbers that sum to one: train, validation and test."""
    if len(fractions) != 3 or min(fractions) <= 0 or abs(sum(fractions) - 1) > 1e-6:
        raise InputError(f"fractions must be three positive numbers (train, val, test) that sum to 1, got {fractions}")


def check_num_splits(num_splits: int, owner: str, most: int | None = None) -> None:
    """``num_splits`` is at least one and, where the splits are given, at most as many as there are."""
    if num_splits < 1 or (most is not None and num_splits > most):
        accepted = "at least 1" if most is None else f"from 1 to {most}"
        raise InputError(f"num_splits of {owner} must be {accepted}, got {num_splits}")


def _what(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return type(value).__name__
