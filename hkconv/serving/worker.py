"""One thread that asks the model, so that no two requests meet in it."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from hkconv.serving.refusals import RefusalError

Answer = TypeVar("Answer")


class Worker:
    """Answers one question after the other, in the order in which they came.

    Args:
        max_seconds: that a question may wait and be answered in.
    """

    def __init__(self, max_seconds: float):
        self.max_seconds = max_seconds
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="predict")

    async def ask(self, question: Callable[[], Answer]) -> Answer:
        """The answer to a question.

        A question that is still waiting when its time is over is never asked; one that is being answered cannot be
        stopped, and its answer is dropped.
        """
        waiting = asyncio.wrap_future(self._thread.submit(question))
        try:
            return await asyncio.wait_for(waiting, self.max_seconds)
        except TimeoutError:
            raise RefusalError(
                504, f"no answer within {self.max_seconds:g} seconds: ask for less, or later when fewer do"
            ) from None

    def close(self) -> None:
        """Drop what still waits."""
        self._thread.shutdown(wait=False, cancel_futures=True)
