"""How many members the parts of a split share, counted once each."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor


@dataclass(frozen=True)
class Overlap:
    """What two parts of a split have in common.

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
