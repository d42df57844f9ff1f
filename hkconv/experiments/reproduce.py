"""Fills the tables of the paper: trains the cells that the results store does not have yet."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from hkconv.data import describe
from hkconv.data.catalog import CATALOG
from hkconv.engine.devices import find_device
from hkconv.engine.files import make_folder
from hkconv.engine.interrupts import held_back
from hkconv.engine.step import check_capture
from hkconv.errors import InputError
from hkconv.experiments import store
from hkconv.experiments.batches import Batch, BatchTrainer, group_cells, may_spoil, networks_at_once
from hkconv.experiments.pool import Lost, results_of
from hkconv.experiments.recipe_files import RECIPES, TABLES, TRAINED_TABLES, read_table
from hkconv.experiments.runtime import RuntimeCell, list_timings, time_epochs
from hkconv.experiments.store import DEFAULT_FOLDER, RUNTIME, Damage, Record
from hkconv.experiments.tables import Choice, Execution, TableCell, list_cells
from hkconv.experiments.training import CellTrainer, Outcome, failure, without_capture
from hkconv.options import JOBS


@dataclass(frozen=True)
class Order:
    """Tables to fill, and the options of filling them.

    Args:
        tables: some of :data:`~hkconv.experiments.tables.TABLES`.
        choice: which part of them.
        place: where trainings happen.
        jobs: processes that train at the same time. Figures do not depend on it.
        results: folder of the records.
        recipes: folder of the recipes.
    """

    tables: tuple[str, ...]
    choice: Choice = field(default_factory=Choice)
    place: Execution = field(default_factory=Execution)
    jobs: int = 1
    results: Path = DEFAULT_FOLDER
    recipes: Path = RECIPES

    def __post_init__(self) -> None:
        JOBS.check("jobs", self.jobs)


class Watcher:
    """Hears what happens while tables are filled and does nothing; subclasses show what they like."""

    def planned(self, total: int, stored: int, damaged: list[Damage]) -> None:
        """``total`` cells are wanted, of which the store has ``stored``; ``damaged`` lines of it were passed over."""

    def cell_ended(self, record: Record, done: int, total: int, seconds_left: float | None) -> None:
        """A record, perhaps of a failure, was stored; ``done`` of the ``total`` open cells are."""

    def told(self, text: str) -> None:
        """Tell what is being done now."""


@dataclass
class Summary:
    """Outcome of filling the tables.

    Args:
        wanted, stored, added, failed: cells of each table: all, those the store had, those added, those that failed.
        failures: the records of what failed now.
        left_out: datasets whose data could not be had, with the reason.
        damaged: lines of the store that are no records.
        interrupted: whether Ctrl-C ended it.
    """

    wanted: Counter[str] = field(default_factory=Counter)
    stored: Counter[str] = field(default_factory=Counter)
    added: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    failures: list[Record] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    damaged: list[Damage] = field(default_factory=list)
    interrupted: bool = False

    @property
    def is_complete(self) -> bool:
        """True if the store now has every cell that was wanted."""
        return sum(self.stored.values()) + sum(self.added.values()) == sum(self.wanted.values())

    def note(self, record: Record) -> None:
        """Count a record that was stored now."""
        if "error" in record:
            self.failed[record["table"]] += 1
            self.failures.append(record)
        else:
            self.added[record["table"]] += 1


def reproduce(order: Order, watcher: Watcher | None = None) -> Summary:
    """Train every cell of some tables that the store does not have, and store each as soon as it ends.

    A cell that fails is stored as a failure and tried again the next time. One that another table or label has already,
    trained the same way, is taken from there. Ctrl-C keeps all that ended. Nothing is written before recipes, choice,
    device and folder are known to be usable.

    Args:
        order: what to fill.
        watcher: told of every step.

    Returns:
        What it came to.
    """
    trained = [table for table in TRAINED_TABLES if table in order.tables]
    recipes = [recipe for table in trained for recipe in read_table(table, order.recipes)]
    cells = list_cells(recipes, order.choice, order.place) if trained else []
    device = find_device(order.place.device)
    timings = list_timings(order.choice, order.place, device, strict=not trained) if RUNTIME in order.tables else []
    # All tables, for a training that another one has already is not repeated.
    return fill_store(order, cells, timings, TABLES, CellTrainer(), watcher)


def fill_store(
    order: Order,
    cells: list[TableCell],
    timings: list[RuntimeCell],
    tables: tuple[str, ...],
    trainer: CellTrainer,
    watcher: Watcher | None = None,
) -> Summary:
    """Train the cells and time the epochs that a store does not have.

    Args:
        order: where, by how many processes, and where the records go.
        cells, timings: what is wanted.
        tables: those whose records may stand for a cell's.
        trainer: gives a cell's record, and those of a batch of cells.
        watcher: told of every step.
    """
    watcher, summary = watcher or Watcher(), Summary()
    device = find_device(order.place.device)
    if order.place.capture:
        check_capture(device, "node")
    cells, timings = _without_absent_data(order, cells, timings, summary)
    records, summary.damaged = store.read(order.results, tables)
    known = store.finished(records)
    make_folder(order.results, "results")
    for wanted in (*cells, *timings):
        summary.wanted[wanted.table] += 1
        summary.stored[wanted.table] += wanted.identity in known
    total, stored = sum(summary.wanted.values()), sum(summary.stored.values())
    watcher.planned(total, stored, summary.damaged)
    filling = _Filling(order, device, watcher, summary, total - stored, trainer)
    try:
        filling.train([cell for cell in cells if cell.identity not in known], records)
        open_timings = [timing for timing in timings if timing.identity not in known]
        for record in time_epochs(open_timings, device, watcher.told):
            filling.keep(record, None)
    except KeyboardInterrupt:
        summary.interrupted = True
    return summary


def _without_absent_data(
    order: Order, cells: list[TableCell], timings: list[RuntimeCell], summary: Summary
) -> tuple[list[TableCell], list[RuntimeCell]]:
    wanted = {cell.recipe.data.dataset for cell in (*cells, *timings)}
    absent = {info.name: info.location for info in describe(order.place.data) if info.location.startswith("absent")}
    summary.left_out = {name: f"its files are {absent[name]}" for name in sorted(wanted & set(absent))}
    for name, reason in summary.left_out.items():
        if name in order.choice.datasets or wanted <= set(absent):
            raise InputError(f"dataset {name!r} cannot be used: {reason}")
    return (
        [cell for cell in cells if cell.recipe.data.dataset not in absent],
        [timing for timing in timings if timing.recipe.data.dataset not in absent],
    )


class _Filling:
    """Trains cells and stores what comes of them."""

    def __init__(
        self,
        order: Order,
        device: torch.device,
        watcher: Watcher,
        summary: Summary,
        total: int,
        trainer: CellTrainer,
    ):
        self.order, self.device, self.watcher, self.summary = order, device, watcher, summary
        self.done, self.total, self.trainer = 0, total, trainer

    def train(self, cells: list[TableCell], records: list[Record]) -> None:
        """Train some cells, each training once however many cells it stands in."""
        time_left = TimeLeft(record for record in records if record["table"] != RUNTIME)
        groups: dict[str, list[TableCell]] = defaultdict(list)
        for cell in cells:
            groups[cell.training_identity].append(cell)
        elsewhere = {store.training_identity(record): record for record in store.finished(records).values()}
        for key in groups.keys() & elsewhere.keys():
            for cell in groups.pop(key):
                self.keep(_borrowed(elsewhere[key], cell), None)
        first = [group[0] for group in groups.values()]
        batches = group_cells(first, networks_at_once(self.order.place, self.device))
        remaining = dict(groups)
        for cell, outcome in self._outcomes(batches):
            del remaining[cell.training_identity]
            record = self._record(cell, outcome)
            if record is None:
                continue
            time_left.learn(record)
            estimate = time_left.estimate((group[0] for group in remaining.values()), self.order.jobs)
            self.keep(record, estimate)
            for other in groups[cell.training_identity][1:]:
                self.keep(_borrowed(record, other), estimate)

    def _outcomes(self, batches: list[Batch]) -> Iterator[tuple[TableCell, Outcome | Lost]]:
        """Every cell of some batches with what came of it.

        What was lost with others in its batch, or spoiled its process by a capture, is trained again without.
        """
        again: list[Batch] = []
        for batch, outcomes in self._run(batches):
            if not isinstance(outcomes, Lost):
                yield from zip(batch, outcomes)
            elif len(batch) > 1 or (outcomes.is_spoiled and batch[0].recipe.runtime.capture):
                again += [(without_capture(cell),) for cell in batch]
            else:
                yield batch[0], outcomes
        if again:
            yield from self._outcomes(again)

    def _run(self, batches: list[Batch]) -> Iterator[tuple[Batch, list[Outcome] | Lost]]:
        # Drawn one by one: a dataset that turns out to be unreadable is not asked for again.
        jobs = (batch for batch in batches if batch[0].recipe.data.dataset not in self.summary.left_out)
        risk = any(may_spoil(batch[0].recipe.runtime.capture, len(batch), self.device) for batch in batches)
        return results_of(BatchTrainer(self.trainer), jobs, self.order.jobs, may_spoil=risk)

    def keep(self, record: Record, seconds_left: float | None) -> None:
        """Store a record and tell of it."""
        with held_back():
            store.append(self.order.results, record)
            self.summary.note(record)
            self.done += 1
        self.watcher.cell_ended(record, self.done, self.total, seconds_left)

    def _record(self, cell: TableCell, outcome: Outcome | Lost) -> Record | None:
        if isinstance(outcome, Lost):
            return failure(cell, str(outcome), self.device)
        if isinstance(outcome, InputError):
            self.summary.left_out[cell.recipe.data.dataset] = str(outcome)
            return None
        return outcome


def _borrowed(record: Record, cell: TableCell) -> Record:
    """The record of a training as that of another cell that asks for the same one."""
    return {**record, **cell.head(), "same_training_as": f"{record['table']}, {record['variant']}"}


class TimeLeft:
    """Estimate of how long the rest of a table will take, from how long trainings took.

    A training is taken to last as long as others of its model on its dataset; where there are none, of its dataset;
    where there are none of these, in proportion to the nodes and edges of its dataset.

    Args:
        records: of earlier trainings; those that failed are passed over.
    """

    def __init__(self, records: Iterable[Record] = ()):
        self.sums: dict[tuple[str, ...], list[float]] = defaultdict(lambda: [0.0, 0])
        for record in records:
            self.learn(record)

    def learn(self, record: Record) -> None:
        """Take one more training into account."""
        if "error" in record:
            return
        dataset, seconds, quick = record["dataset"], record["seconds"], str(record["quick"])
        for key in ((dataset, record["model"], quick), (dataset, quick)):
            self._add(key, seconds)
        self._add((quick,), seconds / _size(dataset))

    def estimate(self, cells: Iterable[TableCell], processes: int) -> float | None:
        """Return the seconds until some cells are trained by some processes; None as long as nothing is known."""
        expected = [self._expected(cell) for cell in cells]
        known = [seconds for seconds in expected if seconds is not None]
        return sum(known) / processes if len(known) == len(expected) else None

    def _add(self, key: tuple[str, ...], value: float) -> None:
        self.sums[key][0] += value
        self.sums[key][1] += 1

    def _mean(self, key: tuple[str, ...]) -> float | None:
        if key not in self.sums:
            return None
        total, count = self.sums[key]
        return total / count

    def _expected(self, cell: TableCell) -> float | None:
        dataset, quick = cell.recipe.data.dataset, str(cell.quick)
        for key in ((dataset, cell.training.model, quick), (dataset, quick)):
            if key in self.sums:
                return self._mean(key)
        rate = self._mean((quick,))
        return None if rate is None else rate * _size(dataset)


def _size(dataset: str) -> int:
    facts = CATALOG[dataset].facts
    return facts.nodes + facts.edges
