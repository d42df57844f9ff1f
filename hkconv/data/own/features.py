"""Columns of tables as the features of nodes, in an order that is learned once and kept."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import numpy as np
import torch
from torch import Tensor

from hkconv.data.options import CATEGORY, ERROR, MEAN
from hkconv.data.own.tables import ColumnTable, parse_number
from hkconv.errors import InputError

# More categories than this would be noise, a column for each.
MOST_CATEGORIES = 1000
CATEGORIES_NAMED = 8
# A text that is different in more of the rows than this is a name.
SHARE_OF_NAMES = 0.9

# The column of kinds of rows, of which each may have columns of its own.
TYPE = "type"

BOOLEAN, DATE, UNUSED = "boolean", "date", "unused"
KINDS = (BOOLEAN, DATE, UNUSED)
ANSWERS = ({"no": 0.0, "yes": 1.0}, {"false": 0.0, "true": 1.0})
ISO = "ISO 8601"
DATE_FORMATS = (ISO, "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Feature:
    """A column of a table as features: a number, or a category as one-hot columns.

    Args:
        name: of the column.
        categories: in the order of their one-hot columns; None for a number.
        kind: of a number that is written otherwise, ``"boolean"`` or ``"date"``, in days from 1970; ``"unused"`` for a
            column that nothing is learned from.
        date_format: of dates, as :meth:`datetime.strptime` takes it.
        has_missing: whether a last column tells which values are missing.
    """

    name: str
    categories: tuple[str, ...] | None = None
    kind: str | None = None
    date_format: str | None = None
    has_missing: bool = False

    @property
    def are_numbers(self) -> list[bool]:
        """For each column that a model sees, true if it is a number, false if it is a category's."""
        if self.kind == UNUSED:
            return []
        own = [True] if self.categories is None else [False] * len(self.categories)
        return [*own, *([False] if self.has_missing else [])]

    @property
    def width(self) -> int:
        """Number of columns that a model sees."""
        return len(self.are_numbers)


def learn_features(
    table: ColumnTable, names: Sequence[str], categorical: Collection[str] = (), missing: str = MEAN
) -> tuple[Feature, ...]:
    """Features of the columns of a table: numbers, booleans or dates where every known cell is one, else categories.

    A column in which some cells are numbers and others are not is refused: mostly it is a column of numbers with a slip
    of the pen, which would be learned as a category for each number. One of text that is different in nearly every row
    is a name, and nothing is learned from it.

    Args:
        table: the data to learn from.
        names: the columns.
        categorical: those among them that are categories even if they look like numbers.
        missing: ``"category"`` lets columns tell where a value is missing.

    Returns:
        The features, in the order of ``names``.
    """
    return tuple(_learn(table, name, name in categorical, missing == CATEGORY) for name in names)


def encode(table: ColumnTable, features: Sequence[Feature], missing: str = MEAN) -> Tensor:
    """The features of the rows of a table.

    Args:
        table: has a column for every feature that is used.
        features: as :func:`learn_features` found them, in this table or in another one.
        missing: ``"error"`` refuses missing values.

    Returns:
        (N, F) float32, NaN where a value is missing that no column tells of.
    """
    used = [feature for feature in features if feature.width]
    table.require(*(feature.name for feature in used))
    gaps = _count_missing(table, used)
    if gaps and missing == ERROR:
        raise InputError(
            f"{table.path}: values are missing in {gaps}; fill them in, or let missing be mean or category"
        )
    return torch.from_numpy(
        np.concatenate([np.zeros((len(table), 0), np.float32), *(_columns(table, feature) for feature in used)], axis=1)
    )


def describe_features(
    table: ColumnTable, features: Sequence[Feature], missing: str, known: str = "the training rows"
) -> tuple[str, ...]:
    """Notes on how the columns of a table were taken, a sentence each; ``known`` names the rows of means."""
    notes = []
    gaps = _count_missing(table, [feature for feature in features if feature.width])
    if gaps:
        filled = "a category of their own" if missing == CATEGORY else f"the mean of {known}"
        notes.append(f"missing values: {gaps}; they count as {filled}")
    unused = {feature.name: table.known_texts(feature.name) for feature in features if not feature.width}
    names = [name for name, cells in unused.items() if any(cells)]
    if names:
        notes.append(f"taken as names, different in nearly every row, not as features: {', '.join(names)}")
    if len(names) < len(unused):
        notes.append(f"empty, not used: {', '.join(name for name in unused if name not in names)}")
    return tuple(notes)


def sorted_names(names: Collection[str]) -> tuple[str, ...]:
    """Names of categories or classes in order: by size where all are numbers, else by the alphabet."""
    sizes = {name: parse_number(name) for name in names}
    if any(map(math.isnan, sizes.values())):
        return tuple(sorted(names))
    return tuple(sorted(names, key=lambda name: (sizes[name], name)))


def _learn(table: ColumnTable, name: str, is_categorical: bool, tells_missing: bool) -> Feature:
    cells = table.known_texts(name)
    known = [cell for cell in cells if cell]
    has_missing = tells_missing and bool(_gaps(table, name, cells).any())
    if not known:
        return Feature(name, kind=UNUSED)
    if is_categorical:
        return Feature(name, sorted_names(set(known)), has_missing=has_missing)
    is_number = ~np.isnan(table.parsed_numbers(name))
    if is_number.sum() == len(known):
        return Feature(name, has_missing=has_missing)
    if is_number.any():
        index = next(index for index, cell in enumerate(cells) if cell and not is_number[index])
        raise InputError(
            f"{table.place(index, name)}: {cells[index]!r} is no number, but other cells of the column are: "
            "a feature is a number in every row or a category in every row"
        )
    if any(answers.keys() >= {cell.lower() for cell in known} for answers in ANSWERS):
        return Feature(name, kind=BOOLEAN, has_missing=has_missing)
    date_format = _date_format(table, name, known)
    if date_format is not None:
        return Feature(name, kind=DATE, date_format=date_format, has_missing=has_missing)
    categories = sorted_names(set(known))
    if len(categories) > SHARE_OF_NAMES * len(known):
        return Feature(name, kind=UNUSED)
    if len(categories) > MOST_CATEGORIES:
        raise InputError(
            f"{table.path}, column {name} has {len(categories)} different categories, "
            f"more than {MOST_CATEGORIES}: leave it out or group them"
        )
    return Feature(name, categories, has_missing=has_missing)


def _date_format(table: ColumnTable, name: str, known: list[str]) -> str | None:
    """The format that all cells are dates of, None if there is none."""
    # Most columns of text show with their first cell that they are no dates.
    fitting = [form for form in DATE_FORMATS if all(not math.isnan(_parse_date(cell, form)) for cell in known)]
    if len(fitting) > 1:
        raise InputError(
            f"{table.path}, column {name}: {known[0]!r} and all others may be days and months in either order: "
            "write dates as YYYY-MM-DD"
        )
    return fitting[0] if fitting else None


def _parse_date(cell: str, date_format: str) -> float:
    """The day, from 1970, and its fraction; NaN for what is no date."""
    try:
        found = datetime.fromisoformat(cell) if date_format == ISO else datetime.strptime(cell, date_format)
        return ((found if found.tzinfo else found.replace(tzinfo=UTC)) - EPOCH).total_seconds() / 86_400
    except (ValueError, OverflowError):
        return math.nan


def parse_answer(cell: str) -> float:
    """1 for yes or true, 0 for no or false, NaN for what is no answer."""
    return next((answers[cell.lower()] for answers in ANSWERS if cell.lower() in answers), math.nan)


def _cells(table: ColumnTable, feature: Feature) -> list[str]:
    """The cells of a feature as text, empty where its value is missing."""
    if feature.categories is None:
        return table.known_texts(feature.name)
    # To hkconv 0.2.0 what says that a value is missing was a category.
    return [
        cell if cell in feature.categories else known
        for cell, known in zip(table.texts(feature.name), table.known_texts(feature.name))
    ]


def _count_missing(table: ColumnTable, features: Sequence[Feature]) -> str:
    """The columns with missing values and how many there are, in words; empty without any."""
    counts = {feature.name: int(_gaps(table, feature.name, _cells(table, feature)).sum()) for feature in features}
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count)


def _gaps(table: ColumnTable, name: str, cells: list[str]) -> np.ndarray:
    """(N,) which values are missing: not in rows of a type none of which has the column."""
    is_gap = np.array([not cell for cell in cells], dtype=bool)
    if name == TYPE or TYPE not in table.columns:
        return is_gap
    types = np.array(table.known_texts(TYPE), dtype=str)
    return is_gap & np.isin(types, types[~is_gap])


def _columns(table: ColumnTable, feature: Feature) -> np.ndarray:
    """(N, width) float32."""
    cells = _cells(table, feature)
    is_gap = np.array([not cell for cell in cells], dtype=bool)
    if feature.categories is not None:
        own = np.zeros((len(cells), len(feature.categories)), dtype=np.float32)
        numbers = _category_numbers(table, feature.name, feature.categories, cells)
        own[np.arange(len(cells))[~is_gap], numbers] = 1
        own[is_gap] = 0 if feature.has_missing else np.nan
    else:
        own = _numbers(table, feature, cells, is_gap)[:, None]
    if not feature.has_missing:
        return own
    return np.column_stack([own, _gaps(table, feature.name, cells).astype(np.float32)])


def _numbers(table: ColumnTable, feature: Feature, cells: list[str], is_gap: np.ndarray) -> np.ndarray:
    """(N,) float32, NaN for what is missing."""
    if feature.kind is None:
        return table.numbers(feature.name, may_miss=is_gap)
    parse: Callable[[str], float] = parse_answer
    if feature.kind == DATE:
        parse = partial(_parse_date, date_format=feature.date_format or ISO)
    found = np.array([parse(cell) for cell in cells], dtype=np.float32)
    wrong = np.isnan(found) & ~is_gap
    if wrong.any():
        index = int(wrong.argmax())
        accepted = "yes, no, true or false" if feature.kind == BOOLEAN else f"a date ({feature.date_format})"
        raise InputError(f"{table.place(index, feature.name)} must be {accepted}, got {cells[index]!r}")
    return found


def _category_numbers(table: ColumnTable, name: str, categories: tuple[str, ...], cells: list[str]) -> list[int]:
    """The number of each category that is known."""
    numbers = {category: number for number, category in enumerate(categories)}
    for index, cell in enumerate(cells):
        if cell and cell not in numbers:
            named = ", ".join(categories[:CATEGORIES_NAMED])
            more = ", ..." if len(categories) > CATEGORIES_NAMED else ""
            raise InputError(
                f"{table.place(index, name)}: category {cell!r} was not there in training; known: {named}{more}"
            )
    return [numbers[cell] for cell in cells if cell]
