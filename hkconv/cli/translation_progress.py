"""What one sees while a translator trains: a bar on a terminal, a line each few steps in a pipe."""

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from hkconv.engine.launch import find_place
from hkconv.language.log import LogEntry
from hkconv.language.trainer import Watcher


class TranslationProgress(Watcher):
    """Shows a training on standard error, so that standard output holds the result alone.

    Use it as a context manager: leaving it takes the bar away.
    """

    def __init__(self) -> None:
        self.console = Console(file=sys.stderr, highlight=False, soft_wrap=True)
        self.progress = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            # Of several processes one is enough.
            disable=not self.console.is_terminal or find_place().rank > 0,
        )
        self.bar = self.progress.add_task("", total=None, state="reading text")
        self.validation = ""
        self.steps = 0

    def __enter__(self) -> "TranslationProgress":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def told(self, text: str) -> None:
        self.console.print(text, markup=False)

    def started(self, step: int, steps: int) -> None:
        self.steps = steps
        self.progress.reset(self.bar, total=steps, completed=step, state="")

    def logged(self, entry: LogEntry) -> None:
        if entry.validation_loss is not None:
            self.validation = f"  val {entry.validation_loss:.3f}"
        state = f"loss {entry.loss:.3f}{self.validation}  {entry.tokens_per_second:,.0f} tokens/s"
        self.progress.update(self.bar, completed=entry.step, state=state)
        if not self.console.is_terminal:
            self.told(f"step {entry.step}/{self.steps}  {state}")
