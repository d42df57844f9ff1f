"""Training of one cell or a batch of them, from its recipe to its record, the same for tables, tuning and searches."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import torch

from hkconv.data import NodeDataset, hide_test
from hkconv.data.options import ACCURACY
from hkconv.engine.callbacks import Callback
from hkconv.engine.devices import describe_device, find_device
from hkconv.engine.measuring import peak_cuda, peak_rss
from hkconv.engine.reproducibility import deterministic_algorithms, source_commit, versions
from hkconv.engine.step import CaptureBrokenError, CaptureRefusedError
from hkconv.errors import InputError
from hkconv.experiments.pool import SpoiledError
from hkconv.experiments.store import Record
from hkconv.experiments.tables import TableCell
from hkconv.tasks.building import describe_dataset, load_dataset
from hkconv.tasks.many import train_cells
from hkconv.tasks.recipe import Recipe
from hkconv.tasks.run import train_cell
from hkconv.tasks.summary import CellResult
from hkconv.tasks.tasks import Dataset

# Cells come dataset by dataset, but a system may want its edges or features otherwise than its neighbors.
_KEPT_DATASETS = 2


#: A record, of a training or of its failure; or why the data could not be loaded.
Outcome = Record | InputError


class CellTrainer:
    """Trains cells one after another; the last datasets stay loaded. A copy for another process loads its own.

    Args:
        test_is_hidden: train without the test part, whose scores are then None.
        threads: of PyTorch. Sums split among threads depend on how many there are.
    """

    def __init__(self, *, test_is_hidden: bool = False, threads: int = 1):
        self.test_is_hidden, self.threads = test_is_hidden, threads
        self.datasets: dict[tuple, Dataset] = {}

    def __call__(self, cell: TableCell) -> Outcome:
        """Train a cell, and turn whatever goes wrong in it into a record with ``error``.

        Ctrl-C is passed on: half a training is no result.
        """
        device = find_device(cell.recipe.runtime.device)
        try:
            self.load(cell)
        except InputError as error:
            # Without the frames of its traceback, and it may go to another process.
            return InputError(str(error))
        try:
            return self.train(cell)
        except SpoiledError:
            raise
        # Whatever else goes wrong in one training says nothing about the next.
        except Exception as error:
            if device.type == "cuda":
                torch.cuda.empty_cache()
            return failure(cell, _reason(error), device)

    def train(self, cell: TableCell, reporter: Callback | None = None) -> Record:
        """Train a cell and return its record.

        One that cannot be captured is trained without. Where the attempt has left this process of no use for any
        training, it is a :class:`~hkconv.experiments.pool.SpoiledError`.

        Args:
            cell: what to train.
            reporter: told of every epoch.
        """
        dataset, device = self.load(cell), find_device(cell.recipe.runtime.device)
        try:
            with _spoiling(), torch_threads(self.threads), deterministic_algorithms(cell.recipe.optim.deterministic):
                done, peak = _with_peak(
                    lambda: train_cell(cell.training, cell.recipe, dataset, device, reporter).result, device
                )
        except CaptureRefusedError:
            return self.train(without_capture(cell), reporter)
        if done.interrupted:
            raise KeyboardInterrupt
        return record_of(cell, dataset, device, done, peak)

    def train_together(self, cells: Sequence[TableCell]) -> list[Record | None]:
        """Train cells of one batch of :mod:`hkconv.experiments.batches` as one; return the record of each.

        It says in ``batch`` how many networks they were, and ``seconds`` is its share of their time. None stands for a
        cell that has to be trained by itself.
        """
        first, device = cells[0], find_device(cells[0].recipe.runtime.device)
        dataset, *_ = [self.load(cell) for cell in cells]
        if not isinstance(dataset, NodeDataset) or dataset.metric != ACCURACY or dataset.edge_dim is not None:
            return [None] * len(cells)
        # What is learned from the rows of a split, the scale of its features, is not that of another one.
        if len({dataset.splits[cell.split].scaling for cell in cells}) > 1:
            return [None] * len(cells)
        with _spoiling(), torch_threads(self.threads), deterministic_algorithms(first.recipe.optim.deterministic):
            results = train_cells([cell.training for cell in cells], [cell.recipe for cell in cells], dataset, device)
        return [
            None if done is None else {**record_of(cell, dataset, device, done, None), "batch": len(cells)}
            for cell, done in zip(cells, results)
        ]

    def load(self, cell: TableCell) -> Dataset:
        """Return the dataset of a cell, which has the cell's split."""
        key = cell.recipe.data, cell.recipe.optim.seed, cell.recipe.runtime.data
        if key not in self.datasets:
            dataset = load_dataset(cell.recipe)
            while len(self.datasets) >= _KEPT_DATASETS:
                del self.datasets[next(iter(self.datasets))]
            self.datasets[key] = hide_test(dataset) if self.test_is_hidden else dataset
        dataset = self.datasets[key]
        if cell.split >= len(dataset.splits):
            raise InputError(f"dataset {dataset.name!r} has {len(dataset.splits)} split(s), asked for {cell.split + 1}")
        return dataset


def failure(cell: TableCell, reason: str, device: torch.device) -> Record:
    """Return the record of a cell whose training failed."""
    return {**cell.head(), "error": reason, **_circumstances(device)}


def split_cells(table: str, label: str, recipe: Recipe, seed: int) -> tuple[TableCell, ...]:
    """Return the trainings of a trial: one for each split of its recipe.

    Args:
        table, label: in which table and under which name.
        recipe: how to train.
        seed: of all of them.
    """
    return tuple(TableCell(table, label, split, seed, False, recipe) for split in range(recipe.data.num_splits))


def without_capture(cell: TableCell) -> TableCell:
    """Return the same training, step by step instead of as a CUDA graph."""
    return replace(cell, recipe=cell.recipe.replace(capture=False))


@contextmanager
def _spoiling() -> Iterator[None]:
    """Tell the pool that a capture which failed half-way has left this process of no use."""
    try:
        yield
    except CaptureBrokenError as error:
        raise SpoiledError(str(error)) from error


@contextmanager
def torch_threads(number: int = 1) -> Iterator[None]:
    """Let PyTorch compute with so many threads within this block."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def record_of(cell: TableCell, dataset: Dataset, device: torch.device, done: CellResult, peak: int | None) -> Record:
    """Return the record of a finished training.

    Args:
        cell: what was trained.
        dataset, device: on which data and where.
        done: its scores.
        peak: bytes of memory that it took, None where they were not measured.
    """
    return {
        **cell.head(),
        "metric": done.metric,
        "test": done.test_metric,
        "val": done.val_metric,
        "test_loss": done.test_loss,
        "val_loss": done.val_loss,
        "best_epoch": done.best_epoch,
        "epochs": done.epochs,
        "seconds": done.seconds,
        "peak_memory_bytes": peak,
        "parameters": done.parameters,
        # The members of a part of links are pairs, (2, P).
        "split_sizes": {part: members.size(-1) for part, members in dataset.splits[cell.split].parts.items()},
        "dataset_info": describe_dataset(dataset),
        # Only where there is something to say: most records have none.
        **{name: value for name, value in (("guard", done.guard), ("test_ap", done.test_ap)) if value is not None},
        **_circumstances(device),
    }


def _with_peak(call: Callable[[], Any], device: torch.device) -> tuple[Any, int | None]:
    """Return what the call returns, and the most memory it took beyond what was there before."""
    returned = []

    def keep() -> None:
        returned.append(call())

    peak = peak_cuda(keep, device) if device.type == "cuda" else peak_rss(keep)
    return returned[0], peak.bytes


def _circumstances(device: torch.device) -> dict[str, Any]:
    return {
        "device": describe_device(device),
        "versions": versions(),
        "commit": source_commit(),
        "when": datetime.now(UTC).isoformat(timespec="minutes").replace("+00:00", "Z"),
    }


def _reason(error: Exception) -> str:
    """Return the error in one line."""
    lines = str(error).splitlines() or [""]
    return lines[0] if isinstance(error, InputError) else f"{type(error).__name__}: {lines[0]}"
