"""From records of trainings to the cells of the tables: which belong together, and what they come to.

What must never be mixed is kept apart here: protocols, quick runs and full ones, and different recipes under one name.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from hkconv.experiments.store import RUNTIME, training_identity
from hkconv.tasks.summary import Spread

Record = Mapping[str, Any]

HKN = "hkn"


class Place(NamedTuple):
    """Where a cell stands. ``variant`` is the label of its row."""

    table: str
    dataset: str
    protocol: str
    quick: bool
    variant: str


@dataclass(frozen=True)
class CellFigures:
    """What the trainings of one cell came to.

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

    @property
    def complete(self) -> bool:
        """Whether every planned training gave a score."""
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
        superseded: how many records of other recipes there are under a name that is shown.
        repeated: how many further records of a training there are.
    """

    cells: dict[Place, CellFigures]
    failures: list[Record]
    outdated: list[Place]
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
    groups: dict[Place, dict[str, list[Record]]] = {}
    for record in records:
        group = groups.setdefault(_place(record, several_devices), {})
        group.setdefault(_recipe_key(record), []).append(record)
    planned: dict[Place, list[str]] = {}
    for training in plan:
        planned.setdefault(_place(training, False), []).append(_recipe_key(training))
    chosen = {place: _chosen(recipes, planned.get(place)) for place, recipes in sorted(groups.items())}
    trainings = {place: _trainings(found) for place, found in chosen.items()}
    counts = _fullest(trainings) | {place: len(keys) for place, keys in planned.items()}
    return Collected(
        cells={place: _figures(place, found, counts[place]) for place, found in trainings.items()},
        failures=[record for found in trainings.values() for record in found.values() if has_failed(record)],
        outdated=[place for place in chosen if place in planned and planned[place][0] not in groups[place]],
        superseded=len(records) - sum(map(len, chosen.values())),
        repeated=sum(map(len, chosen.values())) - sum(map(len, trainings.values())),
    )


def has_failed(record: Record) -> bool:
    """Whether a training gave no score."""
    return "error" in record


def _place(record: Record, several_devices: bool) -> Place:
    label = [record["variant"]]
    # A score is the same wherever and however fast it was found, a time is not.
    if record["table"] == RUNTIME and several_devices:
        label.append(_device(record))
    if record["table"] == RUNTIME and record["recipe"].get("capture"):
        label.append("captured")
    return Place(record["table"], record["dataset"], record["protocol"], record["quick"], ", ".join(label))


def _device(record: Record) -> str:
    return record.get("device") or "unknown device"


def _order(record: Record) -> tuple[str, str]:
    return record.get("when") or "", json.dumps(record, sort_keys=True)


def _recipe_key(record: Record) -> str:
    """What the trainings of a cell have in common."""
    return training_identity({**record, "split": 0, "seed": 0})


def _chosen(recipes: dict[str, list[Record]], planned: list[str] | None) -> list[Record]:
    """The records of the planned recipe, else of the one that was last recorded."""
    if planned and planned[0] in recipes:
        return recipes[planned[0]]
    return max(recipes.values(), key=lambda found: _order(found[-1]))


def _fullest(trainings: dict[Place, dict[tuple[int, int], Record]]) -> dict[Place, int]:
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


def _figures(place: Place, trainings: dict[tuple[int, int], Record], planned: int) -> CellFigures:
    scored = {key: record for key, record in trainings.items() if not has_failed(record)}
    first = next(iter((scored or trainings).values()))
    splits = {split for split, _ in scored}

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
