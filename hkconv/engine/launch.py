"""What a launcher such as ``torchrun`` tells a process of itself; importable without PyTorch."""

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """Which of several processes this is.

    Args:
        rank: its number among all of them, from 0.
        count: how many there are.
        local_rank: its number among those of this machine.
        local_count: how many there are on this machine.
    """

    rank: int = 0
    count: int = 1
    local_rank: int = 0
    local_count: int = 1


NAMES = {"rank": "RANK", "count": "WORLD_SIZE", "local_rank": "LOCAL_RANK", "local_count": "LOCAL_WORLD_SIZE"}


def find_place() -> Place:
    """The place that the environment gives this process; without a launcher it is the only one."""
    given = {name: os.environ.get(variable, "") for name, variable in NAMES.items()}
    if not all(value.isdecimal() for value in given.values()):
        return Place()
    return Place(**{name: int(value) for name, value in given.items()})
