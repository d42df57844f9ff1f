"""Labels in tables: the class of each row, a number to predict, or answers to several yes-or-no questions."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hkconv.data.checks import UNKNOWN
from hkconv.data.options import ACCURACY, QUESTION_METRICS, R2
from hkconv.data.own.features import SHARE_OF_NAMES, parse_answer
from hkconv.data.own.tables import ColumnTable
from hkconv.errors import InputError

LABEL, TARGET = "label", "target"
# What the names of the columns of questions begin with.
QUESTION = "label:"
QUESTION_METRIC = QUESTION_METRICS[0]
# Numbers of which nearly every row has its own are no classes, unless they are few.
FEW_CLASSES = 20


class Labels(NamedTuple):
    """Labels of some nodes or graphs.

    Args:
        words: of each, empty where it has none: the name of its class; the number to predict; or the answers, 1, 0 or
            nothing, with commas between them.
        metric: that the task is scored by.
        names: of the questions, or of the number; none of classes.
    """

    words: list[str]
    metric: str = ACCURACY
    names: tuple[str, ...] = ()


def is_label(column: str) -> bool:
    """Return True if a column of that name is a label and no feature."""
    return column in (LABEL, TARGET) or column.startswith(QUESTION)


def read_labels(table: ColumnTable) -> Labels:
    """The labels of the rows of a table.

    Args:
        table: with at most one of a column ``label``, a column ``target``, and columns ``label:QUESTION``.
    """
    found = [name for name in table.columns if is_label(name)]
    questions = [name for name in found if name.startswith(QUESTION)]
    if len(found) > max(1, len(questions)):
        raise InputError(
            f"{table.heading}: there is one task at a time, a column {LABEL} of classes, a column {TARGET} of numbers, "
            f"or columns {QUESTION}QUESTION of answers, but there are {', '.join(found)}"
        )
    if not found:
        return Labels([""] * len(table))
    if found == [LABEL]:
        return Labels(_class_names(table))
    if found == [TARGET]:
        missing = np.array([not cell for cell in table.known_texts(TARGET)], dtype=bool)
        return numbers(table.numbers(TARGET, may_miss=missing), TARGET)
    if any(name == QUESTION for name in questions):
        raise InputError(f"{table.heading}, column {QUESTION}: the name of the question is missing after the colon")
    columns = np.stack([_answers(table, name) for name in questions], axis=1)
    return answers(columns, [name.removeprefix(QUESTION) for name in questions])


def numbers(values: np.ndarray, name: str) -> Labels:
    """The labels of (N,) numbers, NaN where unknown."""
    words = ["" if math.isnan(value) else repr(value) for value in values.tolist()]
    return Labels(words, R2, (name,))


def answers(values: np.ndarray, names: Sequence[str]) -> Labels:
    """The labels of (N, T) answers, NaN where unknown, to T questions."""
    rows = [["" if math.isnan(value) else str(int(value)) for value in row] for row in values.tolist()]
    return Labels([",".join(row) if any(row) else "" for row in rows], QUESTION_METRIC, tuple(names))


def split_of_column(table: ColumnTable, labels: Labels) -> list[dict[str, Tensor]] | None:
    """The split that a column ``split`` describes, ``train``, ``val``, ``test`` or nothing for each row.

    Args:
        table: of the nodes or graphs.
        labels: of its rows.

    Returns:
        One split, in which a part that no row is in is empty; None without the column, or without labels.
    """
    if "split" not in table.columns or not any(map(is_label, table.columns)):
        return None
    parts: dict[str, list[int]] = {"train": [], "val": [], "test": []}
    for index, (part, label) in enumerate(zip(table.known_texts("split"), labels.words)):
        if part not in ("", *parts):
            raise InputError(f"{table.place(index, 'split')} must be train, val, test or empty, got {part!r}")
        if part and not label:
            raise InputError(f"{table.place(index, 'split')} is {part}, but the label is empty")
        if part:
            parts[part].append(index)
    return [{name: torch.tensor(members, dtype=torch.int64) for name, members in parts.items()}]


def label_numbers(words: Sequence[str], metric: str, names: Sequence[str]) -> Tensor:
    """The labels as a dataset has them.

    Args:
        words, metric: see :class:`Labels`.
        names: of classes or questions, in the order of a model.

    Returns:
        (N,) int64 classes, ``UNKNOWN`` where there is none, or (N, T) float32, NaN where unknown.
    """
    if metric == ACCURACY:
        places = {"": UNKNOWN, **{name: place for place, name in enumerate(names)}}
        return torch.tensor([places[word] for word in words])
    rows = [word.split(",") if word else [""] * len(names) for word in words]
    return torch.tensor([[float(cell) if cell else math.nan for cell in row] for row in rows], dtype=torch.float32)


def _class_names(table: ColumnTable) -> list[str]:
    names = table.known_texts(LABEL)
    known = [name for name in names if name]
    is_number = ~np.isnan(table.parsed_numbers(LABEL))
    most = max(FEW_CLASSES, SHARE_OF_NAMES * len(known))
    if len({*known}) > most and is_number.sum() == len(known):
        raise InputError(
            f"{table.heading}, column {LABEL} has {len({*known})} different numbers in {len(known)} rows, a class for "
            f"each: to predict numbers call the column {TARGET}"
        )
    return names


def _answers(table: ColumnTable, name: str) -> np.ndarray:
    """(N,) 1, 0 or NaN."""
    cells, found = table.known_texts(name), table.parsed_numbers(name)
    found = np.array([parse_answer(cell) if np.isnan(number) else number for cell, number in zip(cells, found)])
    wrong = ~np.isin(found, (0, 1)) & np.array([cell != "" for cell in cells], dtype=bool)
    if wrong.any():
        index = int(wrong.argmax())
        raise InputError(
            f"{table.place(index, name)} must be yes, no, true, false, 1, 0 or empty, got {cells[index]!r}"
        )
    return found
