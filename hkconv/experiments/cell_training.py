"""One cell of a table, from its recipe to its record, so that it comes out the same wherever it is trained."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import torch

from hkconv.benchmarking.memory import peak_cuda, peak_rss
from hkconv.data import hide_test
from hkconv.engine.capture import CaptureBrokenError, CaptureRefusedError
from hkconv.engine.devices import describe_device, find_device
from hkconv.engine.environment import source_commit, versions
from hkconv.engine.seeds import deterministic_algorithms
from hkconv.engine.settings import OptimOptions, RuntimeOptions
from hkconv.errors import InputError
from hkconv.experiments.store import Record
from hkconv.experiments.tables import TableCell
from hkconv.experiments.workers import SpoiledError
from hkconv.tasks.building import describe_dataset, load_dataset
from hkconv.tasks.recipe import Recipe
from hkconv.tasks.run import train_cell
from hkconv.tasks.tasks import Dataset


@dataclass(frozen=True)
class Outcome:
    """A record, of a training or of its failure; or None and why the data could not be loaded."""

    record: Record | None
    data_error: str = ""


def train_to_record(cell: TableCell, test_is_hidden: bool = False) -> Outcome:
    """Train a cell with one thread and algorithms that repeat exactly.

    A training that fails, because a loss is not finite or memory runs out, gives a record with ``error``. Ctrl-C is
    passed on: half a training is no result. One that cannot be captured is trained without; where the attempt has left
    this process of no use for any training, it is a :class:`~hkconv.experiments.workers.SpoiledError`.

    Args:
        cell: what to train.
        test_is_hidden: train without the test part, whose scores are then None.
    """
    device = find_device(cell.recipe.runtime.device)
    try:
        dataset = _load(_loaded_by(cell.recipe), test_is_hidden)
        _check_split(dataset, cell)
    except InputError as error:
        return Outcome(None, str(error))
    try:
        with one_thread(), deterministic_algorithms(cell.recipe.optim.deterministic):
            return Outcome(_trained(cell, dataset, device))
    except CaptureBrokenError as error:
        raise SpoiledError(str(error)) from error
    # Whatever else goes wrong in one training says nothing about the next.
    except Exception as error:
        if device.type == "cuda":
            torch.cuda.empty_cache()
        return Outcome(failure(cell, _reason(error), device))


def failure(cell: TableCell, reason: str, device: torch.device) -> Record:
    """The record of a cell whose training failed."""
    return {**cell.head(), "error": reason, **_circumstances(device)}


@contextmanager
def one_thread() -> Iterator[None]:
    """Within this block PyTorch computes with one thread: sums split among threads depend on how many there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _loaded_by(recipe: Recipe) -> Recipe:
    """What of a recipe its dataset depends on: cells that have it in common share the dataset."""
    optim, runtime = OptimOptions(seed=recipe.optim.seed), RuntimeOptions(data=recipe.runtime.data)
    return Recipe(data=recipe.data, optim=optim, runtime=runtime)


# Cells come dataset by dataset, but a system may want its edges or features otherwise than its neighbours.
@lru_cache(maxsize=2)
def _load(recipe: Recipe, test_is_hidden: bool) -> Dataset:
    dataset = load_dataset(recipe)
    return hide_test(dataset) if test_is_hidden else dataset


def _check_split(dataset: Dataset, cell: TableCell) -> None:
    if cell.split >= len(dataset.splits):
        raise InputError(f"dataset {dataset.name!r} has {len(dataset.splits)} split(s), asked for {cell.split + 1}")


def _trained(cell: TableCell, dataset: Dataset, device: torch.device) -> Record:
    try:
        return {**cell.head(), **_scores(cell, dataset, device), **_circumstances(device)}
    except CaptureRefusedError:
        plain = replace(cell, recipe=cell.recipe.replace(capture=False))
        return _trained(plain, dataset, device)


def _scores(cell: TableCell, dataset: Dataset, device: torch.device) -> dict[str, Any]:
    done, peak = _with_peak(lambda: train_cell(cell.training, cell.recipe, dataset, device).result, device)
    if done.interrupted:
        raise KeyboardInterrupt
    return {
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
        "split_sizes": {part: len(members) for part, members in dataset.splits[cell.split].parts.items()},
        "dataset_info": describe_dataset(dataset),
        # Only where there is something to say: most records have none.
        **({} if done.guard is None else {"guard": done.guard}),
    }


def _with_peak(call: Callable[[], Any], device: torch.device) -> tuple[Any, int | None]:
    """What the call returns, and the most memory it took beyond what was there before."""
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
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _reason(error: Exception) -> str:
    """The error in one line."""
    lines = str(error).splitlines() or [""]
    return lines[0] if isinstance(error, InputError) else f"{type(error).__name__}: {lines[0]}"
