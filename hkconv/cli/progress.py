"""What one sees while a run trains: a bar on a terminal, a line for each training in a pipe."""

import sys
from typing import cast

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from hkconv.cli.output import percent
from hkconv.engine.callbacks import Callback
from hkconv.engine.launch import find_place
from hkconv.engine.loop import Epoch
from hkconv.tasks.recipe import Recipe
from hkconv.tasks.summary import Cell, CellResult


class ProgressReporter(Callback):
    """Shows a run on standard error, so that standard output holds the result alone.

    Use it as a context manager: leaving it takes the bar away.
    """

    def __init__(self) -> None:
        console = Console(file=sys.stderr, highlight=False)
        # Of several processes one is enough.
        self.is_terminal = console.is_terminal and find_place().rank == 0
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not self.is_terminal,
        )
        self.bar = self.progress.add_task("loading", total=None, state="")
        self.epochs = self.done = self.total = 0

    def __enter__(self) -> "ProgressReporter":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def run_started(self, recipe: Recipe, cells: list[Cell]) -> None:
        self.epochs, self.total = recipe.optim.epochs, len(cells)

    def cell_started(self, cell: Cell) -> None:
        self.done += 1
        description = f"{cell} ({self.done}/{self.total})"
        self.progress.reset(self.bar, total=self.epochs, description=description, state="")

    def epoch_ended(self, epoch: Epoch) -> None:
        state = f"loss {epoch.loss:.3f}  val {percent(epoch.val_metric)} %"
        self.progress.update(self.bar, completed=epoch.number, state=state)

    def cell_ended(self, result: CellResult) -> None:
        if not self.is_terminal:
            # A run hides no test part.
            test = cast(float, result.test_metric)
            scores = f"validation {percent(result.val_metric)} %, test {percent(test)} %"
            line = f"{result.cell} ({self.done}/{self.total}): {scores}, {result.epochs} epochs, {result.seconds:.1f} s"
            print(line, file=sys.stderr, flush=True)
