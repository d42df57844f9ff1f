"""The results store: one JSON record a line, one file a table, only ever appended to.

A record holds everything that its figure rests on. Several processes may append to one folder; a line that is damaged
stays where it is, is reported and otherwise passed over.
"""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hkconv.engine.files import append_json, make_folder
from hkconv.engine.settings import RuntimeOptions
from hkconv.errors import InputError
from hkconv.tasks.recipe import FIRST_RELEASE, Recipe

SCHEMA = 1
RUNTIME = "runtime"
# The trials that tune a table are in a file of this beginning. Test data is hidden from them.
TUNING = "tuning-"
DEFAULT_FOLDER = Path("results", "records")

# What a record has whether the training succeeded or not.
_ALWAYS = {
    "schema": int,
    "table": str,
    "dataset": str,
    "protocol": str,
    "model": str,
    "variant": str,
    "split": int,
    "seed": int,
    "quick": bool,
    "recipe": dict,
}
_SCORES = ("test", "val", "test_loss", "val_loss", "best_epoch", "epochs", "seconds", "parameters")

# How many trainings there are, and where and how fast they happen, does not change what one of them is.
_NOT_IDENTITY = {"dataset", "protocol", "models", "num_splits", "seeds", *RuntimeOptions.options()}
_DEFAULTS = {name: entry.default for name, entry in Recipe.options().items()} | FIRST_RELEASE

Record = dict[str, Any]


@dataclass(frozen=True)
class Damage:
    """A line that is no record, numbered from 1."""

    file: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.reason}"


def identity(record: Record) -> str:
    """What makes a cell of a table: the same cell is never trained twice, a changed recipe is another cell."""
    parts = [record["table"], record["variant"], training_identity(record)]
    # A score is the same wherever it is found, a time is not.
    if record["table"] == RUNTIME:
        parts += [record["device"], record["recipe"]["capture"]]
    return json.dumps(parts)


def training_identity(record: Record) -> str:
    """What makes a training, in whichever table and under whichever label it stands.

    A field that a record's recipe does not have counts as in 0.1.0 or as its default: it came later, or its model has
    none.
    """
    recipe = {**_DEFAULTS, **record["recipe"]}
    changes = {
        name: value
        for name, value in recipe.items()
        if name not in _NOT_IDENTITY and (name not in _DEFAULTS or value != _DEFAULTS[name])
    }
    names = ("dataset", "protocol", "model", "split", "seed", "quick")
    return json.dumps([*(record[name] for name in names), changes], sort_keys=True)


def append(folder: Path, record: Record) -> None:
    """Add a record to its table's file: one write of one line, safely on the disk when this returns.

    Args:
        folder: of the results; made if it is not there.
        record: plain data, without NaN or Inf.
    """
    append_json(make_folder(folder, "results") / f"{record['table']}.jsonl", record, "results")


def read(folder: Path, tables: Iterable[str]) -> tuple[list[Record], list[Damage]]:
    """Every record of some tables, failures too, and every line that is none.

    Args:
        folder: of the results; it need not exist.
        tables: names of tables; one without a file has no records.

    Returns:
        Records in the order in which they were written, and the damaged lines.
    """
    records, damaged = [], []
    for table in tables:
        path = folder / f"{table}.jsonl"
        for number, line in enumerate(_lines(path), start=1):
            if not line.strip():
                continue
            found = _parse(line, table)
            if isinstance(found, str):
                damaged.append(Damage(path, number, found))
            else:
                records.append(found)
    return records, damaged


def finished(records: Iterable[Record]) -> dict[str, Record]:
    """The successful record of each cell by its :func:`identity`, the earliest where there are several."""
    found: dict[str, Record] = {}
    for record in records:
        if "error" not in record:
            found.setdefault(identity(record), record)
    return found


def failed(records: Iterable[Record]) -> dict[str, Record]:
    """The latest failure of each cell that has not succeeded, by its :func:`identity`."""
    records = list(records)
    succeeded = finished(records)
    failures = {identity(record): record for record in records if "error" in record}
    return {key: record for key, record in failures.items() if key not in succeeded}


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"results {path} cannot be read ({error.strerror})") from None


def _parse(line: bytes, table: str) -> Record | str:
    """The record of a line, or in words why it is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return "not valid JSON"
    if not isinstance(record, dict):
        return "not a JSON object"
    for key, kind in _ALWAYS.items():
        if type(record.get(key)) is not kind:
            return f"{key!r} is missing or not of type {kind.__name__}"
    if record["schema"] != SCHEMA:
        return f"schema {record['schema']}, this hkconv reads {SCHEMA}"
    if record["table"] != table:
        return f"a record of table {record['table']!r} in the file of {table!r}"
    if "error" in record:
        return record
    missing = [key for key in (*_SCORES, "metric") if key not in record]
    if missing:
        return f"{missing[0]!r} is missing"
    score = "val" if table.startswith(TUNING) else "test"
    if not _is_figure(record[score]):
        return f"{score!r} is no number: {record[score]!r}"
    odd = [key for key in _SCORES if record[key] is not None and not _is_figure(record[key])]
    if type(record["metric"]) is not str:
        odd.append("metric")
    return f"{odd[0]!r} is of another type" if odd else record


def _is_figure(value: Any) -> bool:
    # A whole number beyond the range of float64 is none either.
    return type(value) in (int, float) and abs(value) <= sys.float_info.max
