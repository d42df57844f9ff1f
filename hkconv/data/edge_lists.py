"""Graphs that users bring as a file: one edge a line, its two ends named by whatever they like."""

import csv
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.opening import open_regular

# What the columns of a heading are usually called; needed only where the nodes have no numbers for names.
HEADINGS = {"source", "target", "src", "dst", "from", "to", "u", "v", "node1", "node2", "id1", "id2"}


class EdgeList(NamedTuple):
    """A graph read from a file.

    Args:
        edge_index: (2, E) int64, an edge a line and in its order.
        names: the nodes' names, in the order in which they first occur.
        heading: whether the first line was taken for names of columns.
    """

    edge_index: Tensor
    names: list[str]
    heading: bool


def read_edge_list(path: str | os.PathLike[str]) -> EdgeList:
    """Read comma-separated lines of two names each.

    The first line is a heading where it holds no numbers and all other lines hold nothing else, or where its words are
    usual headings that occur in no other line. Blank lines are skipped.

    Args:
        path: a UTF-8 text file.

    Returns:
        The edges and the names of the nodes.
    """
    lines = list(_lines(Path(path)))
    heading = _is_heading(lines)
    numbers: dict[str, int] = {}
    pairs = [[numbers.setdefault(name, len(numbers)) for name in line] for line in lines[heading:]]
    if not pairs:
        raise InputError(f"{path} holds no edges: every line should name two nodes, separated by a comma")
    return EdgeList(torch.tensor(pairs).t().contiguous(), list(numbers), heading)


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    try:
        # The signature at the beginning of a file that a spreadsheet wrote is no part of the first name.
        with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            for cells in reader:
                names = tuple(cell.strip() for cell in cells)
                if any(names):
                    yield _checked(names, f"{path}, line {reader.line_num}")
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text in UTF-8: an edge list has two names a line") from None
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: {error}") from None


def _checked(names: tuple[str, ...], place: str) -> tuple[str, str]:
    if len(names) != 2:
        raise InputError(f"{place}: an edge is two names separated by a comma, got {len(names)} columns")
    if not all(names):
        raise InputError(f"{place}: a name is empty, an edge needs two")
    return names


def _is_heading(lines: list[tuple[str, str]]) -> bool:
    if not lines:
        return False
    first, others = lines[0], {name for line in lines[1:] for name in line}
    if any(map(_is_number, first)) or others & set(first):
        return False
    above_numbers = bool(others) and all(map(_is_number, others))
    return above_numbers or HEADINGS.issuperset(name.lower() for name in first)


def _is_number(name: str) -> bool:
    return name.lstrip("-").isdecimal()
