"""Search spaces: fields of a recipe, each with the values it can take; named ones, and those of the tables.

A table's space and budget are ``recipes/tuning/TABLE.yaml``::

    trials: 20                       # a system, the settings as the recipe has them being the first
    num_splits: 2                    # a trial
    budgets: {published: {trials: 6}, clean/texas: {num_splits: 3}}   # other numbers for some, may be left out
    space: {lr: [0.005, 0.01], ...}  # for every system
    own: {HKN: {kernel_size: [2, 4, 8]}, ...}   # for one, before what all share
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hkconv.data import NodeDataset
from hkconv.data.catalog import CATALOG
from hkconv.data.options import CHOICES as PROTOCOLS
from hkconv.data.options import DIRECTIONS
from hkconv.errors import InputError
from hkconv.experiments.recipe_files import RECIPES, TRAINED_TABLES, Settings
from hkconv.models.options import OWN_OPTIONS, ModelOptions, foreign_options
from hkconv.options import COUNT, REPEATS, rule_of
from hkconv.tasks.recipe import make_recipe, read_recipe_file
from hkconv.tasks.tasks import Dataset

# Fields of HKN that tell apart its forms and the variants of the paper's ablations: a search is for one of them.
VARIANT_FIELDS = ("form", "points", "relative")
# Fields whose None stands for one of their words, by the form.
FIELDS_BY_FORM = ("norm", "hidden_act", "readout")

# Random streams: of the space that all systems share, and of a system's own.
_SHARED, _OWN = 0, 1


@dataclass(frozen=True)
class Choices:
    """A few values without an order."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included; whole ones if the ends are ``int``.

    Args:
        low: the least.
        high: the largest.
        log: draw the logarithm evenly instead of the number.
    """

    low: float
    high: float
    log: bool = False


Dimension = Choices | Range
Space = dict[str, Dimension]

# The grid of the paper's section on implementation details.
PAPER_GRID: Space = {
    "kernel_size": Range(2, 9),
    "lr": Choices((0.001, 0.005, 0.01)),
    "weight_decay": Choices((0.0, 0.01, 0.001)),
    "dropout": Choices((0.25, 0.5, 0.75, 0.9)),
    "num_layers": Range(2, 7),
}

WIDE_NUMBERS: Space = {
    "hidden_dim": Choices((16, 32, 64, 128)),
    "num_layers": Range(1, 7),
    "kernel_size": Range(2, 9),
    "lr": Range(5e-4, 5e-2, log=True),
    # So small a penalty that the least of it stands for none.
    "weight_decay": Range(1e-6, 1e-1, log=True),
    "dropout": Range(0.0, 0.9),
    "alpha": Range(0.0, 1.0),
    "theta": Range(0.1, 2.0),
}


def _wide(model: str, dataset: Dataset) -> Space:
    """Numbers in wide ranges, every lever of the model, every direction of edges where the graph has one-way ones."""
    space = {**WIDE_NUMBERS, **_levers(model)}
    if isinstance(dataset, NodeDataset) and dataset.graph.is_directed():
        space["direction"] = Choices(DIRECTIONS)
    return space


def make_space(name: str, model: str, dataset: Dataset, fixed: Collection[str] = ()) -> Space:
    """Return the space of that name for one model: the same for all but for options that others do not have.

    Args:
        name: ``"grid"``, the paper's, or ``"wide"``.
        model: name of the model.
        dataset: to train on, its edges as they come.
        fixed: fields that the user has decided on.

    Returns:
        At least one field of :class:`~hkconv.tasks.recipe.Recipe` with its values.
    """
    if name not in ("grid", "wide"):
        raise InputError(f"space must be grid or wide, got {name!r}")
    whole = PAPER_GRID if name == "grid" else _wide(model, dataset)
    left_out = {*fixed, *foreign_options(model)}
    space = {key: values for key, values in whole.items() if key not in left_out}
    if not space:
        raise InputError(f"nothing is left to search: every field of space {name!r} is given")
    return space


def describe_space(space: Space) -> dict[str, Any]:
    """Return the space as JSON can hold it."""
    return {
        name: list(values.values) if isinstance(values, Choices) else asdict(values) for name, values in space.items()
    }


def _levers(model: str) -> Space:
    """A model's switches and words, from the rules of the recipe: a lever that is added there is searched."""
    space: Space = {}
    for name in OWN_OPTIONS.get(model, ()):
        rule = rule_of(ModelOptions.options()[name])
        if name in VARIANT_FIELDS:
            continue
        if rule.kind is bool:
            space[name] = Choices((False, True))
        elif rule.choices:
            has_none = rule.optional and name not in FIELDS_BY_FORM
            space[name] = Choices((None, *rule.choices) if has_none else rule.choices)
    return space


@dataclass(frozen=True)
class SharedDraws:
    """Sampler of a table: every system meets the same random draws of the settings it shares with the others.

    Args:
        space: few values of every field that is tried for all systems.
        own: by label, fields of that system alone, or other values for it.
    """

    space: dict[str, Choices]
    own: dict[str, dict[str, Choices]]

    def draw(self, label: str, number: int, fixed: Mapping[str, Any]) -> Settings:
        """Return the settings of one trial; the first has none of its own.

        Args:
            label: of the system.
            number: of the trial, from 0.
            fixed: fields that are not tuned.
        """
        if number == 0:
            return {}
        drawn = {**_draw(self.space, _SHARED, number), **_draw(self.own.get(label, {}), _OWN, number)}
        return {name: value for name, value in drawn.items() if name not in fixed}


@dataclass(frozen=True)
class Budget:
    """Number of trials that every system of a dataset gets, and of splits that a trial trains on."""

    trials: int
    num_splits: int

    def __post_init__(self) -> None:
        COUNT.check("trials", self.trials)
        REPEATS.check("num_splits", self.num_splits)


@dataclass(frozen=True)
class Tuning:
    """Plan by which a table is tuned.

    Args:
        table: its name.
        budget: of every dataset that has none of its own.
        budgets: others, by ``PROTOCOL/DATASET`` or by ``PROTOCOL`` for all datasets of one.
        sampler: what is drawn.
    """

    table: str
    budget: Budget
    budgets: dict[str, Budget]
    sampler: SharedDraws

    def budget_of(self, protocol: str, dataset: str) -> Budget:
        """Return the budget that the systems of a dataset have under a protocol."""
        return self.budgets.get(f"{protocol}/{dataset}") or self.budgets.get(protocol) or self.budget


def read_tuning(
    table: str, folder: Path = RECIPES, *, trials: int | None = None, num_splits: int | None = None
) -> Tuning:
    """Read how a table is tuned.

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
        own = {label: read_space(found) for label, found in values["own"].items()}
        sampler = SharedDraws(read_space(values["space"]), own)
        usual = Budget(values["trials"], values["num_splits"])
        budgets = _budgets(values.get("budgets", {}), usual)
    except InputError as error:
        raise InputError(f"recipe {path}: {error}") from None
    given = {name: number for name, number in (("trials", trials), ("num_splits", num_splits)) if number is not None}
    budgets = {name: replace(budget, **given) for name, budget in budgets.items()}
    return Tuning(table, replace(usual, **given), budgets, sampler)


def read_space(given: Any) -> dict[str, Choices]:
    """Return the space of a table's file: a list of values for each field, all of which a recipe accepts.

    Args:
        given: as YAML has it.
    """
    if not isinstance(given, dict) or not all(isinstance(values, list) and values for values in given.values()):
        raise InputError(f"a space must hold a list of values for each field, got {given!r}")
    return {
        name: Choices(tuple(make_recipe({name: value}).flat()[name] for value in values))
        for name, values in given.items()
    }


def _draw(space: dict[str, Choices], stream: int, number: int) -> Settings:
    """Draw values evenly; the same for the same number, whatever else is drawn."""
    return {
        name: found.values[np.random.default_rng([stream, number, *name.encode()]).integers(len(found.values))]
        for name, found in space.items()
    }


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
