"""Columns of numbers and of categories as the features of nodes, in an order that is learned once and kept."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hkconv.data.own.tables import ColumnTable, parse_number
from hkconv.errors import InputError

# More categories than this are names or dates, and a column for each would be noise.
MOST_CATEGORIES = 1000
CATEGORIES_NAMED = 8


@dataclass(frozen=True)
class Feature:
    """A column of a table as features: a number, or a category as one-hot columns.

    Args:
        name: of the column.
        categories: in the order of their one-hot columns; None for a number.
    """

    name: str
    categories: tuple[str, ...] | None = None

    @property
    def width(self) -> int:
        """Number of columns that a model sees."""
        return 1 if self.categories is None else len(self.categories)


def learn_features(table: ColumnTable, names: Sequence[str], categorical: Collection[str] = ()) -> tuple[Feature, ...]:
    """Features of the columns of a table: numbers where every cell is one, else categories.

    A column in which some cells are numbers and others are not is refused: mostly it is a column of numbers with a slip
    of the pen, which would be learned as a category for each number.

    Args:
        table: the data to learn from.
        names: the columns.
        categorical: those among them that are categories even if they look like numbers.

    Returns:
        The features, in the order of ``names``.
    """
    return tuple(_learn(table, name, name in categorical) for name in names)


def encode(table: ColumnTable, features: Sequence[Feature]) -> Tensor:
    """The features of the rows of a table.

    Args:
        table: has a column for every feature.
        features: as :func:`learn_features` found them, in this table or in another one.

    Returns:
        (N, F) float32.
    """
    table.require(*(feature.name for feature in features))
    x = np.zeros((len(table), sum(feature.width for feature in features)), dtype=np.float32)
    start = 0
    for feature in features:
        if feature.categories is None:
            x[:, start] = table.numbers(feature.name)
        else:
            x[np.arange(len(table)), start + _category_numbers(table, feature.name, feature.categories)] = 1
        start += feature.width
    return torch.from_numpy(x)


def sorted_names(names: Collection[str]) -> tuple[str, ...]:
    """Names of categories or classes in order: by size where all are numbers, else by the alphabet."""
    sizes = {name: parse_number(name) for name in names}
    if any(map(math.isnan, sizes.values())):
        return tuple(sorted(names))
    return tuple(sorted(names, key=lambda name: (sizes[name], name)))


def _learn(table: ColumnTable, name: str, is_categorical: bool) -> Feature:
    is_number = ~np.isnan(table.parsed_numbers(name))
    if is_number.all() and not is_categorical:
        return Feature(name)
    cells = table.filled_texts(name)
    if is_number.any() and not is_categorical:
        index = int(np.argmin(is_number))
        raise InputError(
            f"{table.place(index, name)}: {cells[index]!r} is no number, but other cells of the column are: "
            "a feature is a number in every row or a category in every row"
        )
    categories = sorted_names(set(cells))
    if len(categories) > MOST_CATEGORIES:
        raise InputError(
            f"{table.path}, column {name} has {len(categories)} different categories, "
            f"more than {MOST_CATEGORIES}: leave it out or group them"
        )
    return Feature(name, categories)


def _category_numbers(table: ColumnTable, name: str, categories: tuple[str, ...]) -> np.ndarray:
    numbers = {category: number for number, category in enumerate(categories)}
    cells = table.filled_texts(name)
    for index, cell in enumerate(cells):
        if cell not in numbers:
            named = ", ".join(categories[:CATEGORIES_NAMED])
            more = ", ..." if len(categories) > CATEGORIES_NAMED else ""
            raise InputError(
                f"{table.place(index, name)}: category {cell!r} was not there in training; known: {named}{more}"
            )
    return np.array([numbers[cell] for cell in cells], dtype=np.int64)
