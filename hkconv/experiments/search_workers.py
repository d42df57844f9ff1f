"""Several processes that work on one search, and what becomes of them when one of them or their parent dies."""

import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, cast

import torch

from hkconv.errors import InputError
from hkconv.experiments.workers import end_with_parent


def run_workers(
    work: Callable[..., None], search: Any, trials: int, open_trials: int, jobs: int, on_trial: Callable[[int], None]
) -> None:
    """Let processes work until they are done. Whatever ends this function ends them.

    Args:
        work: called in each process as ``work(search, trials, on_trial, may_start)``.
        search: what to work on.
        trials: how many trials there shall be.
        open_trials: how many of them may still be started, by all processes together.
        jobs: how many processes.
        on_trial: called here with what a process passes to its ``on_trial``.
    """
    # Started anew and not forked: a fork cannot use the GPU, and it inherits locks of threads it does not have.
    context = multiprocessing.get_context("spawn")
    tickets = context.Value("i", open_trials)
    workers: dict[Connection, SpawnProcess] = {}
    try:
        for _ in range(min(jobs, open_trials)):
            receiver, sender = context.Pipe(duplex=False)
            worker = context.Process(target=_work, args=(work, search, trials, jobs, tickets, sender), daemon=True)
            worker.start()
            sender.close()
            workers[receiver] = worker
        _listen(dict(workers), on_trial)
    finally:
        for worker in workers.values():
            worker.terminate()
        for worker in workers.values():
            worker.join()


def _listen(workers: dict[Connection, SpawnProcess], on_trial: Callable[[int], None]) -> None:
    while workers:
        for connection in cast(list[Connection], wait(list(workers))):
            try:
                kind, content = connection.recv()
            except EOFError:
                worker = workers.pop(connection)
                worker.join()
                if worker.exitcode:
                    raise InputError(
                        f"a worker process of the search died (exit code {worker.exitcode}), perhaps for want of "
                        "memory: the same command with fewer jobs goes on"
                    ) from None
                continue
            if kind == "error":
                raise InputError(content)
            on_trial(content)


def _work(work: Callable[..., None], search: Any, trials: int, jobs: int, tickets: Any, connection: Connection) -> None:
    # Ctrl-C reaches every process of a terminal; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    torch.set_num_threads(max(1, torch.get_num_threads() // jobs))

    def may_start() -> bool:
        with tickets.get_lock():
            tickets.value -= 1
            return tickets.value >= 0

    try:
        work(search, trials, lambda number: connection.send(("trial", number)), may_start)
    except InputError as error:
        connection.send(("error", str(error)))
