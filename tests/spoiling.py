"""Jobs that are hard on their process; in a module of its own, for the process imports it."""

import os
import time
from pathlib import Path

from hkconv.errors import InputError
from hkconv.experiments.pool import SpoiledError


def number_of_process(job: str) -> int:
    """Which process did the job; ``"spoil"`` leaves it unfit for another."""
    if job == "spoil":
        raise SpoiledError
    return os.getpid()


def refuse(job: object) -> None:
    """Find fault with a job."""
    raise InputError(f"{job} cannot be used")


def sleep_long(file: str) -> None:
    """Tell in a file which process this is, and stay in it."""
    Path(file).write_text(str(os.getpid()))
    time.sleep(600)
