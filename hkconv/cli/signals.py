"""SIGTERM, by which schedulers and services ask a program to end: heeded as Ctrl-C is, with an exit code of its own."""

import signal
import time
from types import FrameType

from hkconv.cli.exit_codes import INTERRUPTED, TERMINATED

# Seconds in which another SIGTERM is taken for the same one: several programs may pass it on.
ECHO = 5.0


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived. Whatever ends in order at Ctrl-C does so now too."""


class _Sigterm:
    """The handler, which remembers."""

    def __init__(self) -> None:
        self.heard_at: float | None = None

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.heard_at is None or now - self.heard_at > ECHO:
            self.heard_at = now
            raise Terminated


_sigterm = _Sigterm()


def heed_sigterm() -> None:
    """From now on SIGTERM ends a command in order."""
    signal.signal(signal.SIGTERM, _sigterm)


def interrupted_code() -> int:
    """The exit code of a command that was interrupted."""
    return INTERRUPTED if _sigterm.heard_at is None else TERMINATED
