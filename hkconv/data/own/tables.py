"""Tables that people bring, CSV or Parquet, whose cells can say where they stand: an error names file, line, column."""

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hkconv.errors import InputError
from hkconv.opening import check_regular, open_regular

SUFFIXES = (".csv", ".parquet")
# The comma first, which is taken where a heading holds none of them. Where spreadsheets separate cells by semicolons a
# comma is in numbers.
SEPARATORS = (",", "\t", ";")
DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
# What spreadsheets, R and pandas write for a value that is not known, beside nothing at all.
MISSING = ("", "nan", "n/a", "#n/a", "null", "<na>", "nat")


@dataclass(frozen=True, eq=False)
class ColumnTable:
    """Named columns of equal length.

    Args:
        path: the file.
        columns: cells by the column's name: text without spaces around it, or an array of numbers, in which NaN is a
            missing one. Text is empty where a cell is.
        rows: what the file calls each row: its line in CSV, its number from 1 in Parquet.
        unit: ``"line"`` or ``"row"``.
        separator: between the cells of a line; with ``";"`` numbers may have a decimal comma.
    """

    path: Path
    columns: dict[str, list[str] | np.ndarray]
    rows: Sequence[int]
    unit: str
    separator: str = ","

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def heading(self) -> str:
        """Place of the names of the columns, for errors."""
        return f"{self.path}, line 1" if self.unit == "line" else str(self.path)

    def place(self, index: int, column: str) -> str:
        """Place of a cell, for errors."""
        return f"{self.path}, {self.unit} {self.rows[index]}, column {column}"

    def require(self, *names: str) -> None:
        """Raise unless the columns are there."""
        for name in names:
            if name not in self.columns:
                raise InputError(f"{self.heading}, column {name} is missing; there are {', '.join(self.columns)}")

    def refuse_others(self, *names: str) -> None:
        """Raise if there is another column than these."""
        for name in self.columns:
            if name not in names:
                raise InputError(
                    f"{self.heading}, column {name} is unknown; columns are {', '.join(names)}: leave it out"
                )

    def texts(self, name: str) -> list[str]:
        """The cells of a column as text; whole numbers have no decimals."""
        cells = self.columns[name]
        return cells if isinstance(cells, list) else [cell_text(cell) for cell in cells.tolist()]

    def numbers(
        self,
        name: str,
        test: Callable[[np.ndarray], np.ndarray] | None = None,
        what: str = "",
        may_miss: np.ndarray | None = None,
    ) -> np.ndarray:
        """The cells of a column as finite float32 numbers.

        Args:
            name: of the column.
            test: which of the numbers are accepted; all, if left out.
            what: the accepted numbers in words, for the error.
            may_miss: (N,) the cells that are NaN; none, if left out.

        Returns:
            (N,) float32.
        """
        found = self.parsed_numbers(name)
        with np.errstate(over="ignore"):
            single = found.astype(np.float32)
        accepted = np.isfinite(single) if test is None else np.isfinite(single) & test(single)
        accepted = accepted if may_miss is None else accepted | may_miss
        if not accepted.all():
            index = int(np.argmin(accepted))
            got = self.texts(name)[index]
            fault = f"got {got!r}" if got else "the cell is empty"
            raise InputError(f"{self.place(index, name)} must be {what or 'a finite number'}, {fault}")
        return single

    def parsed_numbers(self, name: str) -> np.ndarray:
        """(N,) float64, NaN for whatever is no number."""
        cells = self.columns[name]
        if not isinstance(cells, list):
            return cells.astype(np.float64)
        if self.separator == ";":
            cells = [cell.replace(",", ".") if DECIMAL_COMMA.fullmatch(cell) else cell for cell in cells]
        return np.array([parse_number(cell) for cell in cells], dtype=np.float64)

    def known_texts(self, name: str) -> list[str]:
        """The cells of a column as text, empty where a value is missing."""
        return ["" if is_missing(cell) else cell for cell in self.texts(name)]

    def filled_texts(self, name: str) -> list[str]:
        """The cells of a column as text, none of them empty."""
        cells = self.texts(name)
        if "" in cells:
            raise InputError(f"{self.place(cells.index(''), name)} is empty")
        return cells

    def unique_texts(self, name: str) -> list[str]:
        """The cells of a column as text, no two of them equal and none empty."""
        cells = self.filled_texts(name)
        first: dict[str, int] = {}
        for index, cell in enumerate(cells):
            if cell in first:
                before = f"{self.unit} {self.rows[first[cell]]}"
                raise InputError(f"{self.place(index, name)}: {cell!r} was already in {before}, but must be there once")
            first[cell] = index
        return cells


def find_table(folder: Path, stem: str) -> Path | None:
    """The table of that name in a folder, CSV or Parquet, or None."""
    found = [path for suffix in SUFFIXES if (path := folder / f"{stem}{suffix}").is_file()]
    if len(found) > 1:
        raise InputError(f"{folder} has {found[0].name} and {found[1].name}: leave one of them there")
    return found[0] if found else None


def read_table(path: Path, *, may_be_empty: bool = False) -> ColumnTable:
    """Read a table with a heading.

    Args:
        path: ``.csv``, UTF-8 text whose first line names the columns, separated by commas, semicolons or tabs, or
            ``.parquet``.
        may_be_empty: whether a table without rows is accepted.

    Returns:
        The table.
    """
    table = _read_parquet(path) if path.suffix == ".parquet" else _read_csv(path, None)
    if not len(table) and not may_be_empty:
        raise InputError(f"{path} has no rows: at least one is needed")
    return table


def read_bare_table(path: Path, name: str, width: int | None = None) -> ColumnTable:
    """Read comma-separated lines without a heading.

    Args:
        path: a UTF-8 text file.
        name: of the columns, which are ``NAME`` or, where there are more than one, ``NAME 1``, ``NAME 2``, ...
        width: how many columns there must be; any number, if left out.

    Returns:
        The table; it may have no rows.
    """
    table = _read_csv(path, name)
    if width is not None and len(table) and len(table.columns) != width:
        raise InputError(f"{path}, {table.unit} {table.rows[0]} must have {width} columns, got {len(table.columns)}")
    return table


def cell_text(value: Any) -> str:
    """A value as a person would write it: nothing for None and NaN, whole numbers without decimals.

    What UTF-8 cannot hold, half a pair of surrogates, becomes a question mark.
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, bytes):
        return value.hex()
    return str(value).strip().encode("utf-8", "replace").decode("utf-8")


def is_missing(cell: str) -> bool:
    """Return True if a cell says that its value is not known."""
    return cell.lower() in MISSING or cell == "NA"


def parse_number(cell: str) -> float:
    """The number that a text is, NaN where it is none."""
    # Python reads 1_000 as a thousand; to everybody else it is text.
    if "_" in cell:
        return math.nan
    try:
        return float(cell)
    except ValueError:
        return math.nan


def _read_csv(path: Path, bare_name: str | None) -> ColumnTable:
    separator = "," if bare_name is not None else _find_separator(path)
    lines = _lines(path, separator)
    first = next(lines, None)
    if first is None:
        if bare_name is None:
            raise InputError(f"{path} is empty: its first line should name the columns")
        return ColumnTable(path, {}, [], "line")
    if bare_name is None:
        names = _checked_names(first[1], path)
        rows = []
    else:
        names = [bare_name] if len(first[1]) == 1 else [f"{bare_name} {place + 1}" for place in range(len(first[1]))]
        rows = [first]
    for number, cells in lines:
        if len(cells) != len(names):
            raise InputError(f"{path}, line {number} has {len(cells)} columns, but the first line has {len(names)}")
        rows.append((number, cells))
    columns = [list(column) for column in zip(*(cells for _, cells in rows))] or [[] for _ in names]
    return ColumnTable(path, dict(zip(names, columns)), [number for number, _ in rows], "line", separator)


def _find_separator(path: Path) -> str:
    """The separator that divides the heading into the most columns."""
    columns = {}
    for separator in SEPARATORS:
        try:
            columns[separator] = len(next(_lines(path, separator), (0, []))[1])
        except InputError:
            columns[separator] = 0  # a quote that closes before its cell ends
    return max(SEPARATORS, key=columns.__getitem__)


def _lines(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The lines that are not blank, with their numbers."""
    try:
        # The signature at the beginning of a file that a spreadsheet wrote is no part of the first name.
        with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=separator, strict=True, skipinitialspace=True)
            try:
                for cells in reader:
                    cells = [cell.strip() for cell in cells]
                    if any(cells):
                        yield reader.line_num, cells
            except csv.Error as error:
                raise InputError(f"{path}, line {reader.line_num}: {error}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text in UTF-8") from None


def _checked_names(names: list[str], path: Path) -> list[str]:
    found: set[str] = set()
    for place, name in enumerate(names):
        if not name:
            raise InputError(f"{path}, line 1: column {place + 1} has no name")
        if name in found:
            raise InputError(f"{path}, line 1, column {name} is there twice")
        found.add(name)
    return names


def _read_parquet(path: Path) -> ColumnTable:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise InputError(
            f"{path} needs PyArrow ({error}): install it with pip install 'hkconv[parquet]', or bring CSV"
        ) from None
    try:
        check_regular(path)
        found = parquet.read_table(path)
        # A name may be there twice, which a dictionary would hide.
        names = _checked_names([name.strip() for name in found.column_names], path)
        columns = {name: _cells(column, path, name) for name, column in zip(names, found.columns)}
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or 'damaged'})") from None
    # Damaged files fail with whatever error comes first.
    except Exception as error:
        raise InputError(f"{path} is not a valid Parquet file ({type(error).__name__})") from None
    return ColumnTable(path, columns, range(1, found.num_rows + 1), "row")


def _cells(column: Any, path: Path, name: str) -> list[str] | np.ndarray:
    from pyarrow import types

    if types.is_nested(column.type):
        raise InputError(f"{path}, column {name} holds lists or structures: give each of their values its own column")
    is_number = types.is_floating(column.type) or types.is_integer(column.type)
    if is_number and (column.null_count == 0 or types.is_floating(column.type)):
        return column.to_numpy()
    return [cell_text(value) for value in column.to_pylist()]
