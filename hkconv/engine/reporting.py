"""How a run tells what it is doing, so that the library itself prints nothing."""

from hkconv.engine.loop import Epoch
from hkconv.tasks.recipe import Recipe
from hkconv.tasks.summary import Cell, CellResult


class Reporter:
    """Hears of every step of a run and does nothing; subclasses show what they like."""

    def run_started(self, recipe: Recipe, cells: list[Cell]) -> None:
        """Data and models are ready; ``cells`` are still to be trained."""

    def cell_started(self, cell: Cell) -> None:
        """A training begins."""

    def epoch_ended(self, epoch: Epoch) -> None:
        """An epoch of the current training ended."""

    def cell_ended(self, result: CellResult) -> None:
        """The current training ended and its files are written."""
