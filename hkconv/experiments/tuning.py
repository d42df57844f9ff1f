"""Tunes the systems of a table on validation data: every one by as many trials as the others.

A trial trains a system with settings drawn from the table's space, on splits whose test part is hidden. All systems
meet the same draws of the settings they share. What does best on validation data goes to ``tuned/``, where the recipes
find it. The space of a table is ``recipes/tuning/TABLE.yaml``::

    trials: 20                       # a system, the settings as the recipe has them being the first
    num_splits: 2                    # a trial
    budgets: {published: {trials: 6}, clean/texas: {num_splits: 3}}   # other numbers for some, may be left out
    space: {lr: [0.005, 0.01], ...}  # for every system
    own: {HKN: {kernel_size: [2, 4, 8]}, ...}   # for one, before what all share

A split's validation part may hold members of another's test part. One setting for all splits is what is usual; with a
choice for every split by itself there would be no such meeting, and five times as many trainings.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from hkconv.data.catalog import CATALOG
from hkconv.data.dataset import CLEAN
from hkconv.data.protocols import CHOICES as PROTOCOLS
from hkconv.errors import InputError
from hkconv.experiments import store
from hkconv.experiments.cell_training import train_to_record
from hkconv.experiments.recipe_files import (
    RECIPES,
    TRAINED_TABLES,
    Settings,
    System,
    TableRecipe,
    Tuned,
    read_table,
    read_tuned,
    save_tuned,
)
from hkconv.experiments.reproduce import Order, Summary, Watcher, fill_store
from hkconv.experiments.store import TUNING, Record
from hkconv.experiments.tables import Choice, Place, TableCell, check_names, is_wanted
from hkconv.tasks.recipe import make_recipe, read_recipe_file

Values = list[Any]
Space = dict[str, Values]

# Which random numbers: those of the space that all share, and those of a system's own.
_SHARED, _OWN = 0, 1


@dataclass(frozen=True)
class Budget:
    """How many trials every system of a dataset gets, and how many splits a trial trains on."""

    trials: int
    num_splits: int

    def __post_init__(self) -> None:
        for entry in fields(self):
            number = getattr(self, entry.name)
            if type(number) is not int or number < 1:
                raise InputError(f"{entry.name} must be a whole number of at least 1, got {number!r}")


@dataclass(frozen=True)
class Tuning:
    """How a table is tuned.

    Args:
        table: its name.
        budget: of every dataset that has none of its own.
        budgets: others, by ``PROTOCOL/DATASET`` or by ``PROTOCOL`` for all datasets of one.
        space: values of every field that is tried for all systems.
        own: by label, fields of that system alone, or other values for it.
    """

    table: str
    budget: Budget
    budgets: dict[str, Budget]
    space: Space
    own: dict[str, Space]

    def budget_of(self, protocol: str, dataset: str) -> Budget:
        """The budget that the systems of a dataset have under a protocol."""
        return self.budgets.get(f"{protocol}/{dataset}") or self.budgets.get(protocol) or self.budget

    def draw(self, label: str, number: int, fixed: Mapping[str, Any]) -> Settings:
        """The settings of one trial; the first has none of its own.

        Args:
            label: of the system.
            number: of the trial, from 0.
            fixed: fields that are not tuned.
        """
        if number == 0:
            return {}
        own = self.own.get(label, {})
        shared = {name: values for name, values in self.space.items() if name not in own}
        drawn = {**_draw(self.space, _SHARED, number), **_draw(own, _OWN, number)}
        kept = {name: value for name, value in drawn.items() if name in {**shared, **own} and name not in fixed}
        # With every edge in both directions there is nothing to tell apart.
        if kept.get("undirected", fixed.get("undirected", True)):
            kept.pop("directions", None)
        return kept


@dataclass(frozen=True)
class Trial:
    """A trial of a system: what was drawn, and a training for each split."""

    number: int
    drawn: Settings
    cells: tuple[TableCell, ...]


@dataclass(frozen=True)
class Finding:
    """What tuning a system on a dataset under a protocol came to.

    Args:
        dataset, protocol, label: which system.
        best: the trial with the highest mean validation score; the lowest mean loss among equals.
        score: its mean validation score.
        first: that of the recipe's own settings; None if they failed.
        finished: trials with a score on every split.
        trials: how many there are.
    """

    dataset: str
    protocol: str
    label: str
    best: Trial
    score: float
    first: float | None
    finished: int
    trials: int


def read_tuning(
    table: str, folder: Path = RECIPES, *, trials: int | None = None, num_splits: int | None = None
) -> Tuning:
    """How a table is tuned.

    Args:
        table: its name.
        folder: of the recipes.
        trials, num_splits: instead of what the file says.
    """
    path = folder / "tuning" / f"{table}.yaml"
    if table not in TRAINED_TABLES or not path.exists():
        known = sorted(found.stem for found in path.parent.glob("*.yaml"))
        raise InputError(f"table {table!r} cannot be tuned; accepted: {', '.join(known)}")
    values = read_recipe_file(path)
    keys = ("trials", "num_splits", "space", "own")
    if set(values) - {"budgets"} != set(keys):
        raise InputError(f"recipe {path} must hold {', '.join(keys)}, got {', '.join(map(str, values)) or 'nothing'}")
    try:
        if not isinstance(values["own"], dict):
            raise InputError(f"own must hold a space for each system that has one, got {values['own']!r}")
        space, own = _space(values["space"]), {label: _space(found) for label, found in values["own"].items()}
        usual = Budget(values["trials"], values["num_splits"])
        budgets = _budgets(values.get("budgets", {}), usual)
    except InputError as error:
        raise InputError(f"recipe {path}: {error}") from None
    given = {name: number for name, number in (("trials", trials), ("num_splits", num_splits)) if number is not None}
    budgets = {name: replace(budget, **given) for name, budget in budgets.items()}
    return Tuning(table, replace(usual, **given), budgets, space, own)


def list_trials(
    tuning: Tuning, recipes: Iterable[TableRecipe], choice: Choice | None = None, place: Place | None = None
) -> dict[tuple[str, str, str], list[Trial]]:
    """Every trial by dataset, protocol and system.

    Args:
        tuning: how the table is tuned.
        recipes: the table's.
        choice: what of them is wanted; without protocols, ``clean`` alone.
        place: where they will be trained.
    """
    recipes, choice, place = list(recipes), choice or Choice(), place or Place()
    check_names(choice.datasets, [recipe.dataset for recipe in recipes], "dataset")
    check_names(choice.systems, [label for recipe in recipes for label in recipe.systems], "system")
    for name in choice.protocols:
        if not any(name in recipe.protocols for recipe in recipes):
            raise InputError(f"no recipe of table {tuning.table!r} has protocol {name!r}")
    return {
        (recipe.dataset, protocol, label): _trials(tuning, recipe, protocol, label, place)
        for recipe in recipes
        if is_wanted(recipe.dataset, choice.datasets)
        for protocol in choice.protocols or (CLEAN,)
        if protocol in recipe.protocols
        for label in recipe.systems
        if is_wanted(label, choice.systems)
    }


def tune(tuning: Tuning, order: Order, watcher: Watcher | None = None) -> Summary:
    """Train every trial that the store does not have. See :func:`hkconv.experiments.reproduce.reproduce`.

    Args:
        tuning: how the table is tuned.
        order: choice, place and folders.
        watcher: told of every step.
    """
    cells = [cell for trials in _ordered(tuning, order).values() for trial in trials for cell in trial.cells]
    # Two trials may have drawn the same.
    distinct = list({cell.identity: cell for cell in cells}.values())
    train = partial(train_to_record, test_is_hidden=True)
    return fill_store(order, distinct, [], (TUNING + tuning.table,), train, watcher)


def find_best(tuning: Tuning, order: Order) -> list[Finding]:
    """The best trial of every system whose trials are all in the store, failures included; of the others nothing.

    Args:
        tuning, order: as :func:`tune` takes them.
    """
    records, _ = store.read(order.results, [TUNING + tuning.table])
    known, failures = store.finished(records), store.failed(records)
    return [
        finding
        for place, trials in _ordered(tuning, order).items()
        if all(cell.identity in known or cell.identity in failures for trial in trials for cell in trial.cells)
        for finding in _finding(place, trials, known)
    ]


def write_tuned(table: str, findings: Iterable[Finding], folder: Path = RECIPES) -> list[Path]:
    """Write the best settings to where the recipes find them; what is there of other systems stays.

    Args:
        table: name of the table.
        findings: from :func:`find_best`.
        folder: of the recipes.

    Returns:
        The files written.
    """
    tuned: dict[str, Tuned] = {}
    for finding in findings:
        if finding.dataset not in tuned:
            tuned[finding.dataset] = read_tuned(f"{table}/{finding.dataset}", folder)
        tuned[finding.dataset].setdefault(finding.protocol, {})[finding.label] = finding.best.drawn
    return [save_tuned(table, tuned, folder)] if tuned else []


def _ordered(tuning: Tuning, order: Order) -> dict[tuple[str, str, str], list[Trial]]:
    return list_trials(tuning, read_table(tuning.table, order.recipes), order.choice, order.place)


def _trials(tuning: Tuning, recipe: TableRecipe, protocol: str, label: str, place: Place) -> list[Trial]:
    system, repeats = recipe.systems[label], recipe.protocols[protocol]
    fixed = {**repeats.settings, **_edges(recipe)}
    drawn = [tuning.draw(label, number, fixed) for number in range(tuning.budget_of(protocol, recipe.dataset).trials)]
    return [
        Trial(number, settings, _cells(tuning, recipe, protocol, label, system, settings, place))
        for number, settings in enumerate(drawn)
    ]


def _edges(recipe: TableRecipe) -> Settings:
    """Graphs whose edges all go both ways have but one reading."""
    return {} if CATALOG[recipe.dataset].one_way else {"undirected": True}


def _cells(
    tuning: Tuning,
    recipe: TableRecipe,
    protocol: str,
    label: str,
    system: System,
    drawn: Settings,
    place: Place,
) -> tuple[TableCell, ...]:
    repeats = recipe.protocols[protocol]
    num_splits = min(tuning.budget_of(protocol, recipe.dataset).num_splits, repeats.num_splits)
    values = {**recipe.settings, **system.settings, **repeats.settings, **drawn, "num_splits": num_splits}
    trained = place.recipe_for(recipe, protocol, system.model, values)
    return tuple(TableCell(TUNING + recipe.table, label, split, 0, False, trained) for split in range(num_splits))


def _finding(place: tuple[str, str, str], trials: list[Trial], known: Mapping[str, Record]) -> list[Finding]:
    scored = []
    for trial in trials:
        records = [known.get(cell.identity) for cell in trial.cells]
        found = [record for record in records if record is not None]
        if len(found) == len(records):
            score, loss = (fmean(record[name] for record in found) for name in ("val", "val_loss"))
            scored.append((score, -loss, -trial.number, trial))
    if not scored:
        return []
    score, _, _, best = max(scored, key=lambda entry: entry[:3])
    first = next((value for value, _, number, _ in scored if number == 0), None)
    return [Finding(*place, best, score, first, len(scored), len(trials))]


def _budgets(given: Any, usual: Budget) -> dict[str, Budget]:
    """Budgets that differ from the usual one, by names that say for what."""
    if not isinstance(given, dict) or not all(isinstance(found, dict) for found in given.values()):
        raise InputError(f"budgets must hold trials or num_splits for each name, got {given!r}")
    for name, found in given.items():
        protocol, _, dataset = str(name).partition("/")
        if protocol not in PROTOCOLS or (dataset and dataset not in CATALOG):
            raise InputError(f"a budget must be for PROTOCOL or PROTOCOL/DATASET, got {name!r}")
        for key in found:
            if key not in ("trials", "num_splits"):
                raise InputError(f"budget {name!r} must hold trials or num_splits, got {key!r}")
    return {name: replace(usual, **found) for name, found in given.items()}


def _space(given: Any) -> Space:
    """Fields of a training recipe, each with values that it accepts."""
    if not isinstance(given, dict) or not all(isinstance(values, list) and values for values in given.values()):
        raise InputError(f"a space must hold a list of values for each field, got {given!r}")
    return {name: [make_recipe({name: value}).flat()[name] for value in values] for name, values in given.items()}


def _draw(space: Space, stream: int, number: int) -> Settings:
    """Values drawn evenly; the same for the same number, whatever else is drawn."""
    return {
        name: values[np.random.default_rng([stream, number, *name.encode()]).integers(len(values))]
        for name, values in space.items()
    }
