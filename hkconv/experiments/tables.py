"""Trainings that the tables of the paper are made of."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hkconv.engine.step import batches_return
from hkconv.errors import InputError, did_you_mean
from hkconv.experiments.recipe_files import Repeats, TableRecipe
from hkconv.experiments.store import NOT_KEPT, SCHEMA, Record, identity, training_identity
from hkconv.models.options import foreign_options
from hkconv.options import COUNT
from hkconv.tasks.recipe import FIRST_RELEASE, Recipe, make_recipe
from hkconv.tasks.summary import Cell


@dataclass(frozen=True)
class TableCell:
    """One training of a table.

    Args:
        table: its table.
        variant: the label of its system.
        split, seed: which of the system's trainings.
        quick: whether it belongs to the small, quick form of the table.
        recipe: how it is trained; its ``models`` is a single one.
    """

    table: str
    variant: str
    split: int
    seed: int
    quick: bool
    recipe: Recipe

    @property
    def training(self) -> Cell:
        """Arguments of :func:`hkconv.tasks.run.train_cell`."""
        return Cell(self.recipe.model.models[0], self.split, self.seed)

    def head(self) -> Record:
        """First fields of its record, whatever comes of it."""
        return {
            "schema": SCHEMA,
            "table": self.table,
            "dataset": self.recipe.data.dataset,
            "protocol": self.recipe.data.protocol,
            "model": self.training.model,
            "variant": self.variant,
            "split": self.split,
            "seed": self.seed,
            "quick": self.quick,
            "recipe": kept_fields(self.recipe),
        }

    @property
    def identity(self) -> str:
        """See :func:`hkconv.experiments.store.identity`."""
        return identity(self.head())

    @property
    def training_identity(self) -> str:
        """See :func:`hkconv.experiments.store.training_identity`."""
        return training_identity(self.head())

    def __str__(self) -> str:
        place = f"{self.table} {self.recipe.data.dataset} {self.recipe.data.protocol}"
        return f"{place} {self.variant} split {self.split} seed {self.seed}"


@dataclass(frozen=True)
class Execution:
    """Device and speed of the trainings, which change nothing about what they are.

    Args:
        device: its name, or ``"auto"``.
        data: folder of the datasets; None for the usual one.
        capture: replay training steps as CUDA graphs where a task allows it.
        batch: the most networks that are trained at once, see :mod:`hkconv.experiments.batches`; None for many on a
            GPU, and for one elsewhere or with ``capture``.
    """

    device: str = "auto"
    data: str | None = None
    capture: bool = False
    batch: int | None = None

    def __post_init__(self) -> None:
        if self.batch is not None:
            COUNT.check("batch", self.batch)
        if self.capture and self.batch not in (None, 1):
            raise InputError(f"capture records the steps of one network: batch must be 1 with it, got {self.batch}")

    def recipe_for(self, table: TableRecipe, protocol: str, model: str, values: Mapping[str, Any]) -> Recipe:
        """Return the recipe of a model on a table's dataset, with algorithms that repeat exactly."""
        data = {"dataset": table.dataset, "task": table.given_task, "protocol": protocol}
        fixed = {**data, "models": (model,), "deterministic": True}
        capture = self.capture and batches_return(table.task, values.get("groupings"))
        return make_recipe(
            {**FIRST_RELEASE, **values, **fixed, "device": self.device, "data": self.data, "capture": capture}
        )


@dataclass(frozen=True)
class Choice:
    """Part of the tables that is wanted; an empty choice leaves nothing out."""

    datasets: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    quick: bool = False


def list_cells(
    recipes: Iterable[TableRecipe], choice: Choice | None = None, place: Execution | None = None
) -> list[TableCell]:
    """Every training of some recipes: recipe by recipe, protocol by protocol, system by system.

    Args:
        recipes: of one table or several.
        choice: what of them is wanted; a name that none of them has is an :class:`InputError`.
        place: where they will be trained.

    Returns:
        At least one training.
    """
    recipes, choice, place = list(recipes), choice or Choice(), place or Execution()
    wanted = wanted_systems(recipes, choice)
    check_names(choice.protocols, [name for recipe in recipes for name in recipe.protocols], "protocol")
    cells = [cell for found in wanted for cell in _system_cells(*found, choice.quick, place)]
    if not cells:
        raise InputError("no recipe has the datasets, systems and protocols together that were asked for")
    return cells


def wanted_systems(recipes: Collection[TableRecipe], choice: Choice) -> list[tuple[TableRecipe, str, str]]:
    """Return the recipe, protocol and label of every system that a choice has; an unknown one is an error."""
    check_names(choice.datasets, [recipe.dataset for recipe in recipes], "dataset")
    check_names(choice.systems, [label for recipe in recipes for label in recipe.systems], "system")
    return [
        (recipe, protocol, label)
        for recipe in recipes
        if is_wanted(recipe.dataset, choice.datasets)
        for protocol in recipe.protocols
        if is_wanted(protocol, choice.protocols)
        for label in recipe.systems
        if is_wanted(label, choice.systems)
    ]


def kept_fields(recipe: Recipe) -> dict[str, Any]:
    """Return what a record keeps of a training recipe: the fields that its model uses."""
    left_out = NOT_KEPT | foreign_options(recipe.model.models[0])
    # A time depends on it.
    kept = {**recipe.identity(), "capture": recipe.runtime.capture}
    return {name: value for name, value in kept.items() if name not in left_out}


def check_names(given: Collection[str], known: Iterable[str], what: str) -> None:
    """Every name that was asked for is one of those that there are."""
    known = list(dict.fromkeys(known))
    for name in given:
        if name not in known:
            raise InputError(f"unknown {what} {name!r} of these tables; {did_you_mean(name, known)}")


def is_wanted(name: str, chosen: Collection[str]) -> bool:
    """True if a choice has the name, or leaves nothing out."""
    return not chosen or name in chosen


def _system_cells(recipe: TableRecipe, protocol: str, label: str, quick: bool, place: Execution) -> list[TableCell]:
    system, repeats = recipe.systems[label], recipe.protocols[protocol]
    if quick:
        repeats = _cut_down(repeats, recipe.quick)
    # What a system was found to need goes before what all share, and the protocol and --quick before both.
    values = {**recipe.settings, **system.chosen_for(protocol), **repeats.settings, "num_splits": repeats.num_splits}
    trained = place.recipe_for(recipe, protocol, system.model, values)
    return [
        TableCell(recipe.table, label, split, seed, quick, trained)
        for split in range(repeats.num_splits)
        for seed in range(repeats.seeds)
    ]


def _cut_down(repeats: Repeats, quick: Repeats) -> Repeats:
    return Repeats(
        min(repeats.num_splits, quick.num_splits),
        min(repeats.seeds, quick.seeds),
        {**repeats.settings, **quick.settings},
    )
