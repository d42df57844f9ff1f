"""Exit codes of a command that does not end well, and SIGTERM: handled as Ctrl-C is, with an exit code of its own."""

import signal
import time
from types import FrameType

BAD_INPUT = 2
INTERRUPTED = 130
TERMINATED = 143

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


def handle_sigterm() -> None:
    """Let SIGTERM end a command in order from now on."""
    signal.signal(signal.SIGTERM, _sigterm)


def interrupted_code() -> int:
    """Return the exit code of a command that was interrupted."""
    return INTERRUPTED if _sigterm.heard_at is None else TERMINATED
