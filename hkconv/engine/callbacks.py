"""Callbacks: progress displays and loggers hear of every epoch or step of a training.

TensorBoard, Weights & Biases and MLflow are imported when one of them is asked for, and are no dependencies.
The library itself prints nothing.
"""

import csv
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from hkconv.engine.files import write_bytes, write_refusal
from hkconv.errors import InputError, unknown_name

if TYPE_CHECKING:
    from hkconv.engine.loop import Epoch

METRICS_FILE = "metrics.csv"


class Callback:
    """Hears of every stage of a run and does nothing; subclasses show or record what they like.

    A run of ``hkconv train`` is made of cells, one training each: a model on a split with a seed. A run that counts in
    steps is a single training; its records are lines over several steps.
    """

    def run_started(self, recipe: Any, cells: list[Any]) -> None:
        """Data and models are ready; ``cells`` are still to be trained."""

    def cell_started(self, cell: Any) -> None:
        """A training begins."""

    def epoch_ended(self, epoch: "Epoch") -> None:
        """An epoch of the current training ended."""

    def cell_ended(self, result: Any) -> None:
        """The current training ended and its files are written."""

    def run_ended(self) -> None:
        """The run is over, finished or broken off: close what is open."""

    def steps_started(self, step: int, steps: int) -> None:
        """Steps begin after ``step`` and go to ``steps``."""

    def steps_logged(self, entry: Any) -> None:
        """A line was added to the log of a training by steps."""

    def told(self, text: str) -> None:
        """A message for the user."""


class Callbacks(Callback):
    """Several callbacks as one.

    Args:
        callbacks: called in this order.
    """

    def __init__(self, callbacks: Iterable[Callback]):
        self.callbacks = list(callbacks)


def _for_all(stage: str) -> Callable[..., None]:
    def tell(self: Callbacks, *about: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, stage)(*about)

    return tell


for _stage in (name for name in vars(Callback) if not name.startswith("_")):
    setattr(Callbacks, _stage, _for_all(_stage))


class Logger(Callback, ABC):
    """Records the numbers of every epoch or line; subclasses say where."""

    def __init__(self) -> None:
        self.recipe: Any = None
        self.cell: Any = None

    def run_started(self, recipe: Any, cells: list[Any]) -> None:
        self.recipe = recipe

    def cell_started(self, cell: Any) -> None:
        self.cell = cell

    def cell_ended(self, result: Any) -> None:
        self.close()

    def run_ended(self) -> None:
        self.close()

    def epoch_ended(self, epoch: "Epoch") -> None:
        numbers = asdict(epoch)
        self.record("epoch", numbers.pop("number"), numbers)

    def steps_logged(self, entry: Any) -> None:
        numbers = asdict(entry)
        self.record("step", numbers.pop("step"), numbers)

    @abstractmethod
    def record(self, unit: str, number: int, numbers: dict[str, float | None]) -> None:
        """Keep the numbers of an epoch or step of the current cell; ``unit`` says which of the two."""

    @abstractmethod
    def close(self) -> None:
        """End the record of the current cell; a next one begins anew."""


class CsvLogger(Logger):
    """A row for every epoch or line in ``metrics.csv``; a resumed training replaces the rows that it repeats.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path):
        super().__init__()
        self.path = folder / METRICS_FILE
        self.file: TextIO | None = None

    def cell_started(self, cell: Any) -> None:
        super().cell_started(cell)
        self.close()

    def record(self, unit: str, number: int, numbers: dict[str, float | None]) -> None:
        cell = {} if self.cell is None else asdict(self.cell)
        row = {**cell, unit: number, **numbers}
        try:
            if self.file is None:
                self._cut(cell, unit, number, list(row))
                self.file = self.path.open("a", newline="", encoding="utf-8")
                if self.file.tell() == 0:
                    csv.writer(self.file).writerow(row)
            csv.writer(self.file).writerow(["" if value is None else value for value in row.values()])
            # A killed process must not take rows with it.
            self.file.flush()
        except OSError as error:
            raise write_refusal(self.path, "the log", error) from None

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None

    def _cut(self, cell: dict[str, Any], unit: str, number: int, names: list[str]) -> None:
        """Remove the rows of a cell from a number on: they are recorded anew. What is damaged goes too."""
        if not self.path.exists():
            return
        known = {name: str(value) for name, value in cell.items()}
        text = self.path.read_text(encoding="utf-8", errors="replace")
        header, *rows = text.splitlines(keepends=True) or [""]
        if header.rstrip("\r\n").split(",") != names or not header.endswith("\n"):
            header, rows = "", []

        def is_kept(line: str) -> bool:
            row = dict(zip(names, next(csv.reader([line]))))
            is_whole = line.endswith("\n") and len(row) == len(names) and "\ufffd" not in line
            is_repeated = known.items() <= row.items() and row.get(unit, "").isdecimal() and int(row[unit]) >= number
            return is_whole and not is_repeated

        kept = "".join([header, *filter(is_kept, rows)])
        if kept != text:
            write_bytes(self.path, kept.encode(), "the log")


class TensorBoardLogger(Logger):
    """Curves for TensorBoard in ``tensorboard/`` of the run's folder.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path):
        super().__init__()
        module = _imported("tensorboard", "torch.utils.tensorboard", "tensorboard")
        self.folder, self.make_writer = folder / "tensorboard", module.SummaryWriter
        self.writer: Any = None

    def record(self, unit: str, number: int, numbers: dict[str, float | None]) -> None:
        if self.writer is None:
            self.writer = self.make_writer(str(self.folder / _name(self.cell)))
        for name, value in _known(numbers).items():
            self.writer.add_scalar(name, value, number)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None


class WandbLogger(Logger):
    """A run of Weights & Biases for every training, in the project ``hkconv``.

    Args:
        folder: of the run; their files go there.
    """

    def __init__(self, folder: Path):
        super().__init__()
        self.folder, self.wandb = folder, _imported("wandb", "wandb", "wandb")
        self.run: Any = None

    def record(self, unit: str, number: int, numbers: dict[str, float | None]) -> None:
        if self.run is None:
            config = None if self.recipe is None else self.recipe.flat()
            self.run = self.wandb.init(project="hkconv", name=_name(self.cell), dir=str(self.folder), config=config)
        self.run.log(_known(numbers), step=number)

    def close(self) -> None:
        if self.run is not None:
            self.run.finish()
            self.run = None


class MlflowLogger(Logger):
    """A run of MLflow for every training, in the store that MLflow is set up for.

    Args:
        folder: of the run; a tag of MLflow's run names it.
    """

    def __init__(self, folder: Path):
        super().__init__()
        self.folder, self.mlflow = folder, _imported("mlflow", "mlflow", "mlflow")
        self.is_running = False

    def record(self, unit: str, number: int, numbers: dict[str, float | None]) -> None:
        if not self.is_running:
            self.mlflow.start_run(run_name=_name(self.cell), tags={"folder": str(self.folder)})
            self.is_running = True
        self.mlflow.log_metrics(_known(numbers), step=number)

    def close(self) -> None:
        if self.is_running:
            self.mlflow.end_run()
            self.is_running = False


LOGGERS: dict[str, Callable[[Path], Logger]] = {
    "tensorboard": TensorBoardLogger,
    "wandb": WandbLogger,
    "mlflow": MlflowLogger,
}


def make_loggers(names: tuple[str, ...], folder: Path) -> list[Callback]:
    """Return the loggers of a run: one for CSV, and those that are named.

    Args:
        names: any of ``"tensorboard"``, ``"wandb"`` and ``"mlflow"``; an :class:`InputError` says what to install for
            one that is missing.
        folder: of the run.
    """
    for name in names:
        if name not in LOGGERS:
            raise unknown_name("logger", name, LOGGERS)
    return [CsvLogger(folder), *(LOGGERS[name](folder) for name in dict.fromkeys(names))]


def _imported(logger: str, module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise InputError(f"the logger {logger} needs the package {package}: pip install {package}") from None


def _name(cell: Any) -> str:
    return "training" if cell is None else str(cell)


def _known(numbers: dict[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in numbers.items() if value is not None}
