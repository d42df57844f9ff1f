"""Progress on standard error, so that standard output holds the result alone: a bar on a terminal, lines in a pipe."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import fmean
from typing import TYPE_CHECKING, Any, Self, cast

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from hkconv.cli.output import count, percent
from hkconv.engine.callbacks import Callback
from hkconv.engine.distributed import find_place
from hkconv.engine.loop import Epoch
from hkconv.tasks.recipe import Recipe
from hkconv.tasks.summary import Cell, CellResult

if TYPE_CHECKING:
    from hkconv.engine.steps import LogEntry
    from hkconv.experiments.reproduce import Watcher as TableWatcher
    from hkconv.experiments.store import Damage, Record
    from hkconv.experiments.tuner import SearchStep
else:
    # A command loads no more than it needs.
    TableWatcher = object

SCORES = {"validation": "val", "test": "test"}


class Display:
    """A bar with a description before it and a state behind it. A context manager: leaving it takes the bar away.

    Args:
        description: to begin with.
        clocks: further columns.
    """

    def __init__(self, description: str, *clocks: ProgressColumn):
        self.console = Console(file=sys.stderr, highlight=False, soft_wrap=True)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            *clocks,
            console=self.console,
            transient=True,
            # Of several processes one is enough.
            disable=not self.console.is_terminal or find_place().rank > 0,
        )
        self.bar = self.progress.add_task(description, total=None, state="")

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def update(self, **changes: Any) -> None:
        """Change ``completed``, ``total``, ``description`` or ``state`` of the bar."""
        self.progress.update(self.bar, **changes)

    def print(self, text: str) -> None:
        """Print a line, above the bar where there is one."""
        self.console.print(text, markup=False)

    def print_in_pipe(self, text: str) -> None:
        """Print a line where there is no bar that says the same."""
        if not self.console.is_terminal:
            self.print(text)


class TrainProgress(Display, Callback):
    """Progress of ``hkconv train``: lines of the trainings that ended, and a bar for the present one's epochs."""

    def __init__(self) -> None:
        super().__init__("loading")
        self.epochs = self.done = 0
        self.cells: list[Cell] = []
        self.seconds: dict[str, list[float]] = {}
        self.started = 0.0

    def run_started(self, recipe: Recipe, cells: list[Cell]) -> None:
        self.epochs, self.cells = recipe.optim.epochs, cells

    def cell_started(self, cell: Cell) -> None:
        self.done += 1
        self.started = time.perf_counter()
        self.progress.reset(self.bar, total=self.epochs, description=self._place(cell), state="")

    def epoch_ended(self, epoch: Epoch) -> None:
        left = self.seconds_left(epoch.number, time.perf_counter() - self.started)
        state = f"loss {epoch.loss:.3f}  val {percent(epoch.val_metric)} %  {duration(left)} left"
        self.update(completed=epoch.number, state=state)

    def seconds_left(self, epoch: int, seconds: float) -> float:
        """Return about how long the run will still take, after some epochs and seconds of a training.

        A training takes as long as those of its model did. Until one has ended, the present one takes all its epochs
        at its pace, and one of a model that was not met yet as long as the others on average.
        """
        model, *coming = (cell.model for cell in self.cells[self.done - 1 :])
        usual = {name: fmean(found) for name, found in self.seconds.items()}
        present = usual.get(model, seconds / epoch * self.epochs)
        others = fmean(usual.values()) if usual else present
        return max(present - seconds, 0.0) + sum({model: present, **usual}.get(name, others) for name in coming)

    def cell_ended(self, result: CellResult) -> None:
        self.seconds.setdefault(result.model, []).append(result.seconds)
        # A run hides no test part.
        scores = f"validation {percent(result.val_metric)} %, test {percent(cast(float, result.test_metric))} %"
        self.print(f"{self._place(result.cell)}: {scores}, {result.epochs} epochs, {result.seconds:.1f} s")

    def _place(self, cell: Cell) -> str:
        return f"{cell} ({self.done}/{len(self.cells)})"


class TranslationProgress(Display, Callback):
    """Progress of ``hkconv translate train``: the steps of one training."""

    def __init__(self) -> None:
        super().__init__("reading text", TimeElapsedColumn(), TimeRemainingColumn())
        self.validation = ""
        self.steps = 0

    def told(self, text: str) -> None:
        self.print(text)

    def steps_started(self, step: int, steps: int) -> None:
        self.steps = steps
        self.progress.reset(self.bar, total=steps, completed=step, description="step")

    def steps_logged(self, entry: "LogEntry") -> None:
        if entry.validation_loss is not None:
            self.validation = f"  val {entry.validation_loss:.3f}"
        state = f"loss {entry.loss:.3f}{self.validation}  {entry.tokens_per_second:,.0f} tokens/s"
        self.update(completed=entry.step, state=state)
        self.print_in_pipe(f"step {entry.step}/{self.steps}  {state}")


class TableProgress(Display, TableWatcher):
    """Progress of ``hkconv reproduce`` and ``hkconv tune``: the trainings that a store lacks."""

    def __init__(self) -> None:
        super().__init__("starting", TimeElapsedColumn())

    def planned(self, total: int, stored: int, damaged: "list[Damage]") -> None:
        for damage in damaged:
            self.print(f"passed over a damaged line, which stays as it is: {damage}")
        self.print(f"{count(total, 'cell')}, {stored} of them stored already")
        self.update(total=total - stored)

    def cell_ended(self, record: "Record", done: int, total: int, seconds_left: float | None) -> None:
        name = f"{record['table']} {record['dataset']} {record['protocol']} {record['variant']}"
        left = "" if seconds_left is None else f"about {duration(seconds_left)} left"
        self.update(completed=done, description=name, state=left)
        place = f"split {record['split']} seed {record['seed']} ({done}/{total})"
        self.print_in_pipe(", ".join(filter(None, [f"{name} {place}: {_result(record)}", left])))

    def told(self, text: str) -> None:
        self.update(description=text)


class SearchProgress(Display):
    """Progress of ``hkconv search``: a line for each trial, on a terminal too."""

    def __init__(self) -> None:
        super().__init__("trials", TimeElapsedColumn())
        self.started = time.perf_counter()

    def trial_ended(self, step: "SearchStep") -> None:
        trial = step.trial
        outcome = {"COMPLETE": "validation", "PRUNED": "cut short at", "FAIL": "failed"}[trial.state.name]
        value = f" {percent(trial.value)} %" if trial.value is not None else ""
        best = "" if step.best is None else f", best {percent(step.best.value)} %"
        seconds = f"{time.perf_counter() - self.started:.0f} s"
        self.print(f"trial {trial.number} ({step.done}/{step.wanted}): {outcome}{value}{best}, {seconds}")
        self.update(completed=step.done, total=step.wanted, state=best.lstrip(", "))


@contextmanager
def status(text: str) -> Iterator[Callable[[str], None]]:
    """A line on a terminal that can be replaced; nothing in a pipe."""
    console = Console(file=sys.stderr, highlight=False)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status(text) as shown:
        yield shown.update


def duration(seconds: float) -> str:
    """Return a time in its largest unit: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _result(record: "Record") -> str:
    from hkconv.experiments.store import RUNTIME

    if "error" in record:
        return f"failed: {record['error']}"
    if record["table"] == RUNTIME:
        return f"{1e3 * record['test']:.1f} ms an epoch"
    scores = [f"{name} {percent(record[key])} %" for name, key in SCORES.items() if record[key] is not None]
    return ", ".join([*scores, f"{record['seconds']:.1f} s"])
