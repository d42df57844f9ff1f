"""Ctrl-C and SIGTERM at the right moment: what must not be torn apart is finished first."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """The signal that arrived in a block of :func:`held_back`, if one did."""

    def __init__(self) -> None:
        self.handlers = {}
        self.number: int | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether one did."""
        return self.number is not None

    def note(self, number: int, frame: FrameType | None) -> None:
        """The handler of the block. Who asks twice does not want to wait."""
        if self.is_waiting:
            self.handlers[number](number, frame)
        self.number = number


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
    for number in interrupt.handlers:
        signal.signal(number, interrupt.note)
    try:
        yield interrupt
    finally:
        for number, handler in interrupt.handlers.items():
            signal.signal(number, handler)
    if interrupt.is_waiting:
        interrupt.handlers[interrupt.number](interrupt.number, None)
