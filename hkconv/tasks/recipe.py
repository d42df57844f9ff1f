"""Everything a training run can be told, as one checked object: from Python, from YAML or from the command line.

It loads neither PyTorch nor a model, so that the command line can read its fields and still start quickly.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hkconv.data.options import DataOptions
from hkconv.engine.settings import OptimOptions, RuntimeOptions, Settings
from hkconv.errors import InputError
from hkconv.models.options import DEFAULT_MODELS, OPTIONS_OF_PAPER, REMOVED_OPTIONS, ModelOptions, without_removed
from hkconv.opening import read_text
from hkconv.options import Options

# What a recipe of hkconv 0.1.0 means where it says nothing.
FIRST_RELEASE = {
    "form": "paper",
    "readout": "last",
    "hidden_dim": 16,
    "num_layers": 2,
    "kernel_size": 4,
    "lr": 0.02,
    "weight_decay": 5e-3,
    "dropout": 0.2,
    "epochs": 200,
    "patience": 50,
    "edge_attributes": False,
}
# What a run or a record without these options was trained with: they came later.
BEFORE = {"edge_attributes": False}

# Options of earlier files and records that have another name today, and what their values are called.
RENAMED: dict[str, tuple[str, dict[Any, Any]]] = {"undirected": ("direction", {True: "both", False: "in"})}

# Why a link task has no training on all labels.
NO_REFIT = "refit is for node and graph tasks: links are predicted with all of them anyway"

# No recipe nests more than four.
DEEPEST = 20

# The safe loader, in C where PyYAML was built with it: the tables have a hundred files.
YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, kw_only=True)
class Recipe(Options):
    """A training run: data, models, how to train them, and where everything goes.

    The field ``lr`` of the group ``optim`` is the option ``--lr`` of a command, and in YAML ``optim: {lr: 0.01}`` or
    ``lr: 0.01``. Every field is checked; ``hkconv train --help`` says what each is for. A resumed run may change
    ``runtime``; the other groups say what it is.
    """

    data: DataOptions = field(default_factory=DataOptions)
    model: ModelOptions = field(default_factory=ModelOptions)
    optim: OptimOptions = field(default_factory=OptimOptions)
    runtime: RuntimeOptions = field(default_factory=RuntimeOptions)

    def __post_init__(self) -> None:
        super().__post_init__()
        neighbors, num_layers = self.optim.neighbors, self.model.num_layers
        if neighbors is not None and len(neighbors) != num_layers:
            raise InputError(f"neighbors must have a number for each of the {num_layers} layers, got {len(neighbors)}")

    def identity(self) -> dict[str, Any]:
        """All values that results depend on, by the names of options: those of every group but ``runtime``."""
        return {**self.data.flat(), **self.model.flat(), **self.optim.flat()}

    def settings(self, seed: int) -> Settings:
        """Return the settings of one training, which has a seed of its own."""
        return Settings(**{**vars(self.optim), **vars(self.runtime), "seed": seed})


def make_recipe(values: Mapping[str, Any] | None = None, /, **options: Any) -> Recipe:
    """A recipe from names and values.

    Args:
        values: some of the options, such as ``{"lr": 0.1}`` or, by group, ``{"optim": {"lr": 0.1}}``.
        options: further ones, which take precedence.

    Returns:
        The recipe; an :class:`InputError` names an unknown key with the nearest known one.
    """
    return Recipe.of({**flat_values(values or {}), **flat_values(options)})


def flat_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Options by their names alone, unchecked, from some that may lie in groups."""
    return Recipe.flattened(values, "the recipe")


def renamed(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Options by the names of today; of one that is given by both names that of today counts."""
    found = {}
    for name, value in flat.items():
        if name in RENAMED:
            new, words = RENAMED[name]
            # Links were used both ways whatever it said.
            value = True if flat.get("task") == "link" else value
            found[new] = flat.get(new, words[value] if isinstance(value, bool) else value)
        else:
            found[name] = value
    return found


def upgraded(values: Mapping[str, Any]) -> dict[str, Any]:
    """Options by their names alone: those of hkconv 0.1.0 as what they were, any other as they are.

    Args:
        values: some of the options. Without groups, without ``form`` and with an option of the paper's form they are of
            0.1.0, which had no other and, where it was not told otherwise, a root branch.

    Returns:
        The options; an :class:`InputError` if they are of an HKN that can no longer be built.
    """
    flat = renamed(Recipe.flattened(values, "the recipe", also=(*RENAMED, *REMOVED_OPTIONS)))
    has_groups = any(isinstance(value, Mapping) for value in values.values())
    of_then = (*OPTIONS_OF_PAPER, *REMOVED_OPTIONS)
    if not has_groups and "form" not in flat and any(name in flat for name in of_then):
        flat = {**FIRST_RELEASE, "root": True, **flat}
    if "hkn" not in ModelOptions.of({"models": flat.get("models", DEFAULT_MODELS)}).models:
        return {name: value for name, value in flat.items() if name not in REMOVED_OPTIONS}
    return without_removed(flat)


def read_recipe_file(path: Path | str) -> dict[str, Any]:
    """The keys and values of a YAML recipe, unchecked.

    Args:
        path: the file.

    Returns:
        What the file says; empty for an empty file.
    """
    try:
        text = read_text(path)
        fault = _find_fault(text)
        values = None if fault else _plain_data(text)
    except OSError as error:
        raise InputError(f"recipe {path} cannot be read ({error.strerror})") from None
    # Dates that are none, numbers of thousands of digits and nests of thousands of lists fail with errors of Python's.
    except Exception as error:
        place = _place(getattr(error, "problem_mark", None))
        raise InputError(f"recipe {path} is not valid YAML{place}") from None
    if fault:
        raise InputError(f"recipe {path} {fault}")
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InputError(f"recipe {path} must hold keys and values such as 'lr: 0.01', got a {type(values).__name__}")
    return values


def check_run(folder: Path | str) -> Path:
    """The folder of a run; an :class:`InputError` where there is none."""
    if not os.path.isdir(folder):
        raise InputError(f"run must be a folder that `hkconv train` made, got {folder}, which does not exist")
    return Path(folder)


def _find_fault(text: str) -> str | None:
    """Return in words what makes a text too much to read: found event by event, before anything is made of it."""
    depth = 0
    for event in yaml.parse(text, YAML):
        # A value that stands for others, and those for others again, can mean more than memory holds.
        if isinstance(event, yaml.AliasEvent):
            return f"refers to another value{_place(event.start_mark)} (*{event.anchor}): write it out"
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            return f"nests its values more than {DEEPEST} deep{_place(event.start_mark)}"
    return None


def _plain_data(text: str) -> object:
    """Return what ``yaml.safe_load`` makes of a text."""
    loader = YAML(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def _place(mark: "yaml.error.Mark | yaml._yaml.Mark | None") -> str:
    return f" in line {mark.line + 1}" if mark else ""
