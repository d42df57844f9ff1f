"""What a search may choose: fields of a recipe, each with the values it can take."""

from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from typing import Any

from hkconv.data import NodeDataset
from hkconv.errors import InputError
from hkconv.models.options import HKNOptions
from hkconv.options import rule_of
from hkconv.tasks.tasks import Dataset

# Fields of HKN that tell apart its forms and the variants of the paper's ablations: a search is for one of them.
VARIANT_FIELDS = ("form", "points", "relative")
# Fields whose None stands for one of their words, by the form.
FIELDS_BY_FORM = ("norm", "hidden_act", "readout")


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
}


def _grid(dataset: Dataset) -> Space:
    return PAPER_GRID


def _wide(dataset: Dataset) -> Space:
    """Numbers in wide ranges, every lever of HKN, and both readings of the edges where the graph has one-way ones."""
    space = {**WIDE_NUMBERS, **_levers()}
    if isinstance(dataset, NodeDataset) and dataset.graph.is_directed():
        space["undirected"] = Choices((True, False))
    return space


SPACES: dict[str, Callable[[Dataset], Space]] = {"grid": _grid, "wide": _wide}


def make_space(name: str, model: str, dataset: Dataset, fixed: Collection[str] = ()) -> Space:
    """The space of that name for one model: a baseline's lacks HKN's own fields and is otherwise the same.

    Args:
        name: ``"grid"``, the paper's, or ``"wide"``.
        model: name of the model.
        dataset: to train on, its edges as they come.
        fixed: fields that the user has decided on.

    Returns:
        At least one field of :class:`~hkconv.tasks.recipe.Recipe` with its values.
    """
    if name not in SPACES:
        raise InputError(f"space must be {' or '.join(SPACES)}, got {name!r}")
    foreign = () if model == "hkn" else tuple(HKNOptions.options())
    space = {key: values for key, values in SPACES[name](dataset).items() if key not in (*fixed, *foreign)}
    if not space:
        raise InputError(f"nothing is left to search: every field of space {name!r} is given")
    return space


def describe_space(space: Space) -> dict[str, Any]:
    """The space as JSON can hold it."""
    return {
        name: list(values.values) if isinstance(values, Choices) else asdict(values) for name, values in space.items()
    }


def _levers() -> Space:
    """HKN's switches and words, from the rules of the recipe: a lever that is added there is searched."""
    space: Space = {}
    for entry in HKNOptions.options().values():
        rule = rule_of(entry)
        if entry.name in VARIANT_FIELDS:
            continue
        if rule.kind is bool:
            space[entry.name] = Choices((False, True))
        elif rule.choices:
            has_none = rule.optional and entry.name not in FIELDS_BY_FORM
            space[entry.name] = Choices((None, *rule.choices) if has_none else rule.choices)
    return space
