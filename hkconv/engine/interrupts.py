"""Ctrl-C and SIGTERM at the right moment: what must not be torn apart is finished first."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupt:
    """The signal that arrived in a block of :func:`held_back`, if one did."""

    def __init__(self) -> None:
        self.handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self.number: int | None = None

    @property
    def is_waiting(self) -> bool:
        """Return whether one did."""
        return self.number is not None

    def note(self, number: int, frame: FrameType | None) -> None:
        """The handler of the block. Who asks twice does not want to wait."""
        if self.is_waiting:
            self.handlers[number](number, frame)
        self.number = number

    @contextmanager
    def let_through(self) -> Iterator[None]:
        """Within this block, in the other one, a signal does at once what it would have done, one that waits too."""
        self.stop()
        try:
            self.deliver()
            yield
        finally:
            self.hold()

    def hold(self) -> None:
        """Take the place of the handlers."""
        for number in self.handlers:
            signal.signal(number, self.note)

    def stop(self) -> None:
        """Put the handlers back."""
        for number, handler in self.handlers.items():
            signal.signal(number, handler)

    def deliver(self) -> None:
        """Let the signal that waits, if one does, do what it would have done."""
        number, self.number = self.number, None
        if number is not None:
            self.handlers[number](number, None)


@contextmanager
def held_back() -> Iterator[Interrupt]:
    """Within this block Ctrl-C and SIGTERM do nothing yet; at its end they do what they would have done.

    A second signal is not held back. Signals that a program ignores, or that end it at once, stay as they are, and so
    does everything outside the main thread, which gets no signals.
    """
    interrupt = Interrupt()
    if threading.current_thread() is threading.main_thread():
        found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        interrupt.handlers = {number: handler for number, handler in found.items() if callable(handler)}
    interrupt.hold()
    try:
        yield interrupt
    finally:
        interrupt.stop()
    interrupt.deliver()
