"""A job that spoils its process; in a module of its own, for the process imports it."""

import os

from hkconv.experiments.workers import SpoiledError


def number_of_process(job: str) -> int:
    """Which process did the job; ``"spoil"`` leaves it unfit for another."""
    if job == "spoil":
        raise SpoiledError
    return os.getpid()
