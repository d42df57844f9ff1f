"""From records of trainings to the cells of the tables, beside the paper's figures and the trainings that are planned.

What must never be mixed is kept apart here: protocols, quick runs and full ones, and different recipes under one name.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from hkconv.data.options import CLEAN
from hkconv.errors import InputError
from hkconv.experiments.epochs import PAPER_ROWS
from hkconv.experiments.recipe_files import TRAINED_TABLES, read_table
from hkconv.experiments.store import RUNTIME, Damage, read, training_identity
from hkconv.experiments.tables import Choice, list_cells
from hkconv.tasks.summary import Spread

Record = Mapping[str, Any]

HKN = "hkn"
PaperFigure = Sequence[float | None] | None
PaperTable = Mapping[str, Mapping[str, PaperFigure]]

# The control in flat space is no form of HKN.
HKN_LABEL = re.compile(r"HKN(?! \(flat\))|K=\d")


class CellKey(NamedTuple):
    """Key of a cell. ``variant`` is the label of its row."""

    table: str
    dataset: str
    protocol: str
    quick: bool
    variant: str


@dataclass(frozen=True)
class CellFigures:
    """Scores of the trainings of one cell.

    Args:
        model: name of the model that was trained.
        metric: what ``tests`` and ``vals`` measure.
        tests, vals: scores by split, means over its seeds; by seed where there is one split only. For the runtime
            table ``tests`` holds the seconds of an epoch, and there are no ``vals``.
        splits, seeds: how many different ones there are.
        trainings: how many trainings the scores come from.
        planned: how many there should be.
        failures: how many gave no score.
        overlap: mean shares of members that parts of the split have in common, empty where they have none.
        test_to_train: members of a test set for each of a training set; None where the records do not say.
        precisions: of links the average precision of the test part, as ``tests``; empty where a record has none.
    """

    model: str
    metric: str
    tests: dict[int, float]
    vals: dict[int, float]
    splits: int
    seeds: int
    trainings: int
    planned: int
    failures: int
    overlap: dict[str, float]
    test_to_train: float | None
    precisions: dict[int, float]

    @property
    def complete(self) -> bool:
        """True if every planned training gave a score."""
        return self.trainings >= self.planned and not self.failures

    @property
    def test(self) -> Spread:
        """Mean and deviation of the test scores."""
        return Spread.of(list(self.tests.values()))

    @property
    def val(self) -> Spread:
        """Mean and deviation of the validation scores, the only ones that a choice may look at."""
        return Spread.of(list(self.vals.values()))


@dataclass(frozen=True)
class Collected:
    """All cells, and what was left out of them.

    Args:
        cells: the figures by place; a cell whose trainings all failed has no scores.
        failures: the records that gave no score, those of recipes that are shown.
        outdated: places whose records are all of another recipe than the planned one.
        missing: planned places without a record.
        retired: by table, the systems on record that none of its recipes plans any more.
        superseded: how many records of other recipes there are under a name that is shown.
        repeated: how many further records of a training there are.
    """

    cells: dict[CellKey, CellFigures]
    failures: list[Record]
    outdated: list[CellKey]
    missing: list[CellKey]
    retired: dict[str, list[str]]
    superseded: int
    repeated: int


def collect_cells(records: Iterable[Record], plan: Iterable[Record] = ()) -> Collected:
    """Sort records into cells.

    Of several recipes under one name the planned one counts, else the one with the latest record: to take the best
    would be a choice by test scores. Of several records of a training the earliest with a score counts, as in the
    store.

    Args:
        records: see :mod:`hkconv.experiments.store`.
        plan: the trainings that make the tables complete, as records without results. A cell that it does not know
            is complete with as many trainings as the fullest of its dataset and protocol has.

    Returns:
        The cells, in an order that does not depend on that of the records.
    """
    records = sorted(records, key=_order)
    several_devices = len({_device(record) for record in records if record["table"] == RUNTIME}) > 1
    groups: dict[CellKey, dict[str, list[Record]]] = {}
    for record in records:
        group = groups.setdefault(_place(record, several_devices), {})
        group.setdefault(_recipe_key(record), []).append(record)
    planned: dict[CellKey, list[str]] = {}
    for training in plan:
        planned.setdefault(_place(training, False), []).append(_recipe_key(training))
    chosen = {place: _chosen(recipes, planned.get(place)) for place, recipes in sorted(groups.items())}
    trainings = {place: _trainings(found) for place, found in chosen.items()}
    counts = _fullest(trainings) | {place: len(keys) for place, keys in planned.items()}
    return Collected(
        cells={place: _figures(place, found, counts[place]) for place, found in trainings.items()},
        failures=[record for found in trainings.values() for record in found.values() if has_failed(record)],
        outdated=[place for place in chosen if place in planned and planned[place][0] not in groups[place]],
        missing=[place for place in planned if place not in groups],
        retired=_retired(groups, planned),
        superseded=len(records) - sum(map(len, chosen.values())),
        repeated=sum(map(len, chosen.values())) - sum(map(len, trainings.values())),
    )


def has_failed(record: Record) -> bool:
    """True if a training gave no score."""
    return "error" in record


class Grid:
    """The cells of one table, full ones or quick ones, with its rows and columns.

    Args:
        table: name of the table.
        quick: whether it is the table of the quick trainings; the two never meet.
        cells: all cells of the report.
        paper: the paper's mean and deviation by dataset and system; its order is that of columns and rows.
    """

    def __init__(self, table: str, quick: bool, cells: Mapping[CellKey, CellFigures], paper: PaperTable) -> None:
        self.table, self.quick, self.paper = table, quick, paper
        self.cells = {place: cell for place, cell in cells.items() if (place.table, place.quick) == (table, quick)}
        self.datasets = list(dict.fromkeys([*paper, *sorted(place.dataset for place in self.cells)]))
        labels = [label for systems in paper.values() for label in systems]
        found = sorted((place.variant for place in self.cells), key=natural_order)
        # The paper's order, HKN and its variants last, as there.
        self.variants = sorted(dict.fromkeys([*labels, *found]), key=lambda label: bool(HKN_LABEL.match(label)))

    def cell(self, dataset: str, protocol: str, variant: str) -> CellFigures | None:
        """A cell, None where nothing was run."""
        return self.cells.get(CellKey(self.table, dataset, protocol, self.quick, variant))

    def column(self, dataset: str, protocol: str) -> dict[str, CellFigures]:
        """The cells of a dataset that have scores, by variant."""
        found = {variant: self.cell(dataset, protocol, variant) for variant in self.variants}
        return {variant: cell for variant, cell in found.items() if cell is not None and cell.tests}

    def complete(self, dataset: str) -> dict[str, CellFigures]:
        """The complete clean cells of a dataset: over other splits a mean is no match for theirs."""
        return {variant: cell for variant, cell in self.column(dataset, CLEAN).items() if cell.complete}

    def best(self, dataset: str) -> str | None:
        """The variant with the best clean test mean among complete cells; None where they cannot be compared."""
        cells = self.complete(dataset)
        if self.table != RUNTIME:
            return max(cells, key=lambda variant: cells[variant].test.mean, default=None)
        machines = {variant.partition(", ")[2] for variant in cells}
        return min(cells, key=lambda variant: cells[variant].test.mean) if len(machines) == 1 else None

    def paper_figure(self, dataset: str, variant: str) -> Spread | None:
        """The paper's figure in percent or seconds, None where it has none or prints NaN."""
        figure = self.paper.get(dataset, {}).get(variant)
        if figure is None or figure[0] is None or figure[0] != figure[0]:
            return None
        return Spread(figure[0], *figure[1:])


def scaled(spread: Spread, factor: float) -> Spread:
    """A spread in another unit."""
    return Spread(factor * spread.mean, None if spread.deviation is None else factor * spread.deviation)


def natural_order(label: str) -> tuple[tuple[str, int], ...]:
    """Sorts ``K=9`` before ``K=10``."""
    return tuple((text, int(number or 0)) for text, number in re.findall(r"([^\d]*)(\d*)", label))


@dataclass(frozen=True)
class Plan:
    """Contents of the recipe files.

    Args:
        paper: the paper's mean and deviation by table, dataset and system: in percent, for the runtime table in
            seconds.
        trainings: every training that is asked for, in full and quick, as a record without results. The runtime
            table has none: its cells depend on the machine.
    """

    paper: dict[str, PaperTable]
    trainings: list[Record]


def read_plan(tables: Iterable[str] = TRAINED_TABLES) -> Plan:
    """The plan of this library's own recipe files, for some tables and the times."""
    recipes = {table: read_table(table) for table in tables}
    paper = {table: {recipe.dataset: recipe.paper for recipe in found} for table, found in recipes.items()}
    together = [recipe for found in recipes.values() for recipe in found]
    cells = [cell for quick in (False, True) for cell in list_cells(together, Choice(quick=quick))]
    return Plan({**paper, RUNTIME: _paper_times()}, [cell.head() for cell in cells])


def read_grid(folder: Path, table: str) -> tuple[Grid, list[Damage]]:
    """One table of full trainings from the results store, held against the plan.

    Args:
        folder: of the results.
        table: its name.

    Returns:
        The grid, and the damaged lines, which are not in it.
    """
    records, damaged = read(folder, [table])
    if not any(not record["quick"] for record in records):
        lines = f" ({len(damaged)} damaged)" if damaged else ""
        raise InputError(
            f"results {folder} has no record of table {table}{lines}; `hkconv reproduce {table}` makes them"
        )
    plan = read_plan([table])
    return Grid(table, False, collect_cells(records, plan.trainings).cells, plan.paper[table]), damaged


def _place(record: Record, several_devices: bool) -> CellKey:
    label = [record["variant"]]
    # A score is the same wherever and however fast it was found, a time is not.
    if record["table"] == RUNTIME and several_devices:
        label.append(_device(record))
    if record["table"] == RUNTIME and record["recipe"].get("capture"):
        label.append("captured")
    return CellKey(record["table"], record["dataset"], record["protocol"], record["quick"], ", ".join(label))


def _device(record: Record) -> str:
    return record.get("device") or "unknown device"


def _order(record: Record) -> tuple[str, str]:
    return record.get("when") or "", json.dumps(record, sort_keys=True)


def _recipe_key(record: Record) -> str:
    """Return what the trainings of a cell have in common."""
    return training_identity({**record, "split": 0, "seed": 0})


def _chosen(recipes: dict[str, list[Record]], planned: list[str] | None) -> list[Record]:
    """The records of the planned recipe, else of the one that was last recorded."""
    if planned and planned[0] in recipes:
        return recipes[planned[0]]
    return max(recipes.values(), key=lambda found: _order(found[-1]))


def _retired(places: Iterable[CellKey], planned: Iterable[CellKey]) -> dict[str, list[str]]:
    """The systems of planned tables that have records and no plan, by table."""
    known: dict[str, set[str]] = {}
    for place in planned:
        known.setdefault(place.table, set()).add(place.variant)
    found: dict[str, list[str]] = {}
    for table, variant in sorted({(place.table, place.variant) for place in places}):
        if table in known and variant not in known[table]:
            found.setdefault(table, []).append(variant)
    return found


def _fullest(trainings: dict[CellKey, dict[tuple[int, int], Record]]) -> dict[CellKey, int]:
    """For each place the most trainings that any place of its column has."""
    most: dict[tuple, int] = {}
    for place, found in trainings.items():
        most[place[:4]] = max(most.get(place[:4], 0), len(found))
    return {place: most[place[:4]] for place in trainings}


def _trainings(records: list[Record]) -> dict[tuple[int, int], Record]:
    """One record of every split and seed."""
    found: dict[tuple[int, int], Record] = {}
    for record in sorted(records, key=has_failed):
        found.setdefault((record["split"], record["seed"]), record)
    return dict(sorted(found.items()))


def _figures(place: CellKey, trainings: dict[tuple[int, int], Record], planned: int) -> CellFigures:
    scored = {key: record for key, record in trainings.items() if not has_failed(record)}
    first = next(iter((scored or trainings).values()))
    splits = {split for split, _ in scored}
    has_precisions = all(record.get("test_ap") is not None for record in scored.values())

    def by_unit(values: dict[tuple[int, int], float]) -> dict[int, float]:
        if len(splits) == 1:
            return {seed: value for (_, seed), value in values.items()}
        return {split: fmean(value for (own, _), value in values.items() if own == split) for split in sorted(splits)}

    return CellFigures(
        model=first["model"],
        metric=first.get("metric", ""),
        tests=by_unit({key: record["test"] for key, record in scored.items()}),
        vals={} if place.table == RUNTIME else by_unit({key: record["val"] for key, record in scored.items()}),
        splits=len(splits),
        seeds=len({seed for _, seed in scored}),
        trainings=len(scored),
        planned=planned,
        failures=len(trainings) - len(scored),
        overlap=_overlap(trainings.values()),
        test_to_train=_test_to_train(scored.values()),
        precisions=by_unit({key: record["test_ap"] for key, record in scored.items()}) if has_precisions else {},
    )


def _overlap(records: Iterable[Record]) -> dict[str, float]:
    found = [record.get("dataset_info", {}).get("overlap", {}) for record in records]
    names = dict.fromkeys(name for overlap in found for name in overlap)
    return {name: fmean(overlap[name] for overlap in found if name in overlap) for name in names}


def _test_to_train(records: Iterable[Record]) -> float | None:
    sizes = [record.get("split_sizes") or {} for record in records]
    if not sizes or not all(sizes):
        return None
    return fmean(size["test"] / size["train"] for size in sizes)


def _paper_times() -> PaperTable:
    return {
        row.dataset: {
            "HGCN": (row.hgcn, None),
            "H2H-GCN": (row.h2h_gcn, None),
            "HyboNet": (row.hybonet, None),
            "HKN": (row.hknet, None),
        }
        for row in PAPER_ROWS
    }
