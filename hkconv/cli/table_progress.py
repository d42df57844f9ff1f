"""What one sees while tables are filled: a bar on a terminal, a line for each training in a pipe."""

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hkconv.cli.output import count, percent
from hkconv.experiments.reproduce import Watcher
from hkconv.experiments.store import RUNTIME, Damage, Record

SCORES = {"validation": "val", "test": "test"}


class TableProgress(Watcher):
    """Shows progress and the time left on standard error, so that standard output holds the result alone.

    Use it as a context manager: leaving it takes the bar away.
    """

    def __init__(self) -> None:
        self.console = Console(file=sys.stderr, highlight=False, soft_wrap=True)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.bar = self.progress.add_task("starting", total=None, left="")

    def __enter__(self) -> "TableProgress":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def planned(self, total: int, stored: int, damaged: list[Damage]) -> None:
        for damage in damaged:
            self._print(f"passed over a damaged line, which stays as it is: {damage}")
        self._print(f"{count(total, 'cell')}, {stored} of them stored already")
        self.progress.update(self.bar, total=total - stored)

    def cell_ended(self, record: Record, done: int, total: int, seconds_left: float | None) -> None:
        name = f"{record['table']} {record['dataset']} {record['protocol']} {record['variant']}"
        left = "" if seconds_left is None else f"about {duration(seconds_left)} left"
        self.progress.update(self.bar, completed=done, description=name, left=left)
        if not self.console.is_terminal:
            place = f"split {record['split']} seed {record['seed']} ({done}/{total})"
            self._print(", ".join(filter(None, [f"{name} {place}: {_result(record)}", left])))

    def told(self, text: str) -> None:
        self.progress.update(self.bar, description=text)

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False)


def duration(seconds: float) -> str:
    """A time in its largest unit: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _result(record: Record) -> str:
    if "error" in record:
        return f"failed: {record['error']}"
    if record["table"] == RUNTIME:
        return f"{1e3 * record['test']:.1f} ms an epoch"
    scores = [f"{name} {percent(record[key])} %" for name, key in SCORES.items() if record[key] is not None]
    return ", ".join([*scores, f"{record['seconds']:.1f} s"])
