"""Pool of worker processes that survives the loss of some: to Ctrl-C, or to a system that has no more memory."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Generic, TypeVar, cast

from hkconv.errors import InputError

Job = TypeVar("Job")
Result = TypeVar("Result")


# The exit code of a process that ended itself because it was of no more use.
SPOILED = 76


class SpoiledError(Exception):
    """A job has left its process unfit for another; raised by the function that does the jobs."""


@dataclass(frozen=True)
class Lost:
    """Result of a job whose process ended in the middle of it."""

    exit_code: int | None

    @property
    def is_spoiled(self) -> bool:
        """True if the job had spoiled its process: another try, done otherwise, may succeed."""
        return self.exit_code == SPOILED

    def __str__(self) -> str:
        if self.exit_code is not None and self.exit_code < 0:
            return f"its process was ended by signal {-self.exit_code}, as happens when memory runs out"
        return f"its process ended with code {self.exit_code}"


def results_of(
    function: Callable[[Job], Result], jobs: Iterable[Job], processes: int, *, may_spoil: bool = False
) -> Generator[tuple[Job, Result | Lost], None, None]:
    """Yield each job with what the function returns for it, in the order in which they end.

    A job is drawn when a process is free for it. A process that is lost is replaced. Closing the iterator ends all
    processes at once.

    Args:
        function: can be pickled, and so can jobs and results. An :class:`InputError` that it raises is raised here;
            other than that it raises nothing but :class:`SpoiledError`.
        jobs: what to call it with.
        processes: how many at a time; with one, the calls happen in this process unless they may spoil it.
        may_spoil: True if the function may raise :class:`SpoiledError`.
    """
    if processes == 1 and not may_spoil:
        for job in jobs:
            yield job, function(job)
        return
    drawn = iter(jobs)
    # Every worker that lives, and the job it has.
    workers: dict[Connection, tuple[_Worker, Job]] = {}

    def occupy(worker: _Worker | None) -> None:
        """Give a worker the next job, a new one if need be; let it go where there is none."""
        for job in drawn:
            worker = worker or _Worker(function)
            workers[worker.connection] = worker, job
            worker.connection.send(job)
            return
        if worker is not None:
            del workers[worker.connection]
            worker.end()

    try:
        for _ in range(processes):
            occupy(None)
        while workers:
            for connection in cast(list[Connection], wait(list(workers))):
                worker, job = workers[connection]
                result = worker.receive()
                if isinstance(result, InputError):
                    raise result
                yield job, result
                if isinstance(result, Lost):
                    del workers[connection]
                occupy(None if isinstance(result, Lost) else worker)
    finally:
        for worker, _ in workers.values():
            worker.end()


class _Worker(Generic[Job, Result]):
    """A process that answers jobs one by one until the other end of its connection is closed."""

    def __init__(self, function: Callable[[Job], Result]):
        # A fork of a process that has used CUDA or threads is not safe.
        context = multiprocessing.get_context("spawn")
        self.connection, other_end = context.Pipe()
        self.process: BaseProcess = context.Process(target=_serve, args=(function, other_end), daemon=True)
        with _deaf_to_ctrl_c():
            self.process.start()
        other_end.close()

    def receive(self) -> Result | InputError | Lost:
        """Return the result of the job it has, once there is one."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            return Lost(self.process.exitcode)

    def end(self) -> None:
        """End the process, whatever it is doing."""
        self.process.terminate()
        self.process.join()


def _serve(function: Callable[[Job], Result], connection: Connection) -> None:
    _end_with_parent()
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        try:
            connection.send(function(job))
        except InputError as error:
            connection.send(InputError(str(error)))
        except SpoiledError:
            # Not an ordinary exit: what is spoiled may hang while it is taken down.
            os._exit(SPOILED)


def _end_with_parent() -> None:
    """Let this process end as soon as its parent has: one that was killed cannot end its children."""

    def watch() -> None:
        wait([cast(BaseProcess, multiprocessing.parent_process()).sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Start processes that ignore Ctrl-C, which a terminal sends to all: it is for their starter to end them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
