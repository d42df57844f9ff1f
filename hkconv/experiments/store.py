"""The results store: a folder a table, in it a CSV file for each protocol, only ever appended to.

A row is one training: its system, split and seed, its scores, where and when it was found. What many rows have in
common stands once in the folder's ``settings.jsonl`` under an id: the recipe and model (column ``settings``), the data,
metric, device and versions (column ``context``), and the commit in full. Recipes there are differences to the first
line's, ``base``.

Several processes may append to one folder; a line that is damaged stays where it is, is reported and otherwise passed
over. ``TABLE.jsonl``, the form of hkconv 0.1, is read too.
"""

import csv
import hashlib
import io
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hkconv.engine.files import append_json, append_line, make_folder
from hkconv.engine.settings import RuntimeOptions
from hkconv.errors import InputError
from hkconv.models.options import REMOVED_OPTIONS, removed_in
from hkconv.opening import read_bytes
from hkconv.tasks.recipe import FIRST_RELEASE, make_recipe, renamed

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
_NOT_IDENTITY = {"dataset", "protocol", "models", "num_splits", "seeds", *REMOVED_OPTIONS, *RuntimeOptions.options()}
_DEFAULTS = make_recipe({}).flat() | FIRST_RELEASE
# A record says elsewhere what it was trained with and on; where files lie says nothing about a result.
NOT_KEPT = {"models", "num_splits", "seeds", "device", "data", "out"}

SETTINGS = "settings.jsonl"
_BASE = "base"
_CONTEXT = ("metric", "split_sizes", "dataset_info", "versions", "machine", "device")
_NUMBERS = ("split", "seed", *_SCORES, "peak_memory_bytes")
_TEXTS = ("dataset", "protocol", "variant", "commit", "when", "error")
# The id of the settings is last: a row that is cut off has none that is known.
_COLUMNS = (
    *("dataset", "protocol", "variant", "split", "seed", "quick", *_SCORES, "peak_memory_bytes"),
    *("commit", "when", "error", "more", "context", "settings"),
)
_HEADER = ",".join(_COLUMNS).replace("variant", "system")
# Digits that carry meaning: a loss is a float32.
_DIGITS = {"test_loss": 8, "val_loss": 8, "seconds": 5}

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
    """Identity of a cell of a table: the same cell is never trained twice, a changed recipe is another cell."""
    parts = [record["table"], record["variant"], training_identity(record)]
    # A score is the same wherever it is found, a time is not.
    if record["table"] == RUNTIME:
        parts += [record["device"], record["recipe"].get("capture", False)]
    return json.dumps(parts)


def training_identity(record: Record) -> str:
    """Identity of a training, in whichever table and under whichever label it stands.

    A field that a record's recipe does not have counts as in 0.1.0 or as its default: it came later, or its model has
    none. One that is gone counts where it made another network of HKN.
    """
    recipe = {**_DEFAULTS, **renamed(record["recipe"])}
    changes = {
        name: value
        for name, value in recipe.items()
        if name not in _NOT_IDENTITY and (name not in _DEFAULTS or value != _DEFAULTS[name])
    }
    if record["model"] == "hkn":
        changes |= removed_in(recipe)
    names = ("dataset", "protocol", "model", "split", "seed", "quick")
    return json.dumps([*(record[name] for name in names), changes], sort_keys=True)


def append(folder: Path, record: Record) -> None:
    """Add a record to its table: one write of one row, safely on the disk when this returns.

    Args:
        folder: of the results; made if it is not there.
        record: plain data, without NaN or Inf. Of its losses and seconds the digits that mean something are kept.
    """
    home = folder / record["table"]
    known = {"schema", "table", "model", "recipe", *_CONTEXT, *_NUMBERS, *_TEXTS, "quick"}
    more = {key: value for key, value in record.items() if key not in known}
    base = _read_entries(home / SETTINGS)[0].get(_BASE, {"recipe": _differences(_DEFAULTS, {})})
    # A base of earlier versions may have options that are gone.
    gone = {name: value for name, value in REMOVED_OPTIONS.items() if name in base.get("recipe", {})}
    entries = {
        "settings": {
            "model": record["model"],
            "recipe": _differences({**gone, **record["recipe"]}, base.get("recipe", {})),
        },
        "context": {key: record[key] for key in _CONTEXT if key in record},
    }
    named = {_id(entry): entry for entry in entries.values()}
    commit = record.get("commit") or ""
    short = commit[:8] + "+" * ("+" in commit)
    if short != commit:
        named[short] = {"commit": commit}
    row = {
        **{key: record.get(key, "") for key in _TEXTS},
        "commit": short,
        **{key: _number(key, record.get(key)) for key in _NUMBERS},
        "quick": int(record["quick"]),
        "more": _json(more) if more else "",
        **{name: _id(entry) for name, entry in entries.items()},
    }
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow([row[column] for column in _COLUMNS])
    # Before the row, so that one that is there can be read.
    make_folder(home, "results")
    for name, entry in {_BASE: base, **named}.items():
        if name not in _read_entries(home / SETTINGS)[0]:
            append_json(home / SETTINGS, {"id": name, **entry}, "results")
    append_line(home / f"{record['protocol']}.csv", " ".join(text.getvalue().splitlines()), "results", _HEADER)


def read(folder: Path, tables: Iterable[str]) -> tuple[list[Record], list[Damage]]:
    """Every record of some tables, failures too, and every line that is none.

    Args:
        folder: of the results; it need not exist.
        tables: names of tables; one without files has no records.

    Returns:
        Records of each file in the order in which they were written, and the damaged lines.
    """
    records: list[Record] = []
    damaged: list[Damage] = []
    for table in tables:
        entries, spoiled = _read_entries(folder / table / SETTINGS)
        damaged += spoiled
        for path in (folder / f"{table}.jsonl", *sorted((folder / table).glob("*.csv"))):
            for number, line in _lines(path):
                found = _parse_json(line) if path.suffix == ".jsonl" else _parse_row(line, table, entries)
                problem = _problem(found, table) if isinstance(found, dict) else found
                if problem:
                    damaged.append(Damage(path, number, problem))
                elif isinstance(found, dict):
                    records.append(found)
    return records, damaged


def stored_tables(folder: Path) -> dict[str, Path]:
    """The tables that a folder has files of, by name, tuning's among them."""
    files = [*folder.glob("*.jsonl"), *folder.glob("*/*.csv")]
    return {path.stem if path.suffix == ".jsonl" else path.parent.name: path for path in sorted(files)}


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


def _differences(recipe: Record, base: Record) -> Record:
    """The fields of a recipe that its row does not have and that another does not have or has otherwise."""
    left_out = {"dataset", "protocol", *NOT_KEPT}
    return {
        name: value
        for name, value in recipe.items()
        if name not in left_out and (name not in base or base[name] != value)
    }


def _number(name: str, value: Any) -> str:
    if value is None:
        return ""
    digits = _DIGITS.get(name)
    return _json(float(f"{value:.{digits}g}") if digits else value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _id(entry: Record) -> str:
    return hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()[:10]


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that say something, with their numbers from 1."""
    try:
        lines = read_bytes(path).split(b"\n")
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise InputError(f"results {path} cannot be read ({error.strerror})") from None
    yield from ((number, line) for number, line in enumerate(lines, start=1) if line.strip())


def _read_entries(path: Path) -> tuple[dict[str, Record], list[Damage]]:
    """Read what the rows of a table refer to, by id, and the lines that are nothing of the kind."""
    entries: dict[str, Record] = {}
    damaged = []
    for number, line in _lines(path):
        found = _parse_json(line)
        if isinstance(found, str) or type(found.get("id")) is not str:
            damaged.append(Damage(path, number, found if isinstance(found, str) else "'id' is missing or no text"))
        elif type(found.get("recipe", {})) is not dict:
            damaged.append(Damage(path, number, "'recipe' is not of type dict"))
        else:
            entries.setdefault(found.pop("id"), found)
    return entries, damaged


def _parse_json(line: bytes) -> Record | str:
    """The object of a line, or in words why it is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return "not valid JSON"
    return found if isinstance(found, dict) else "not a JSON object"


def _parse_row(line: bytes, table: str, entries: dict[str, Record]) -> Record | str | None:
    """The record of a row, None for the header, or in words why it is none."""
    try:
        text = line.decode()
        (values,) = csv.reader([text])
    except (ValueError, csv.Error):
        return "not valid CSV"
    if text.rstrip("\r") == _HEADER:
        return None
    if len(values) != len(_COLUMNS):
        return f"{len(values)} values, not {len(_COLUMNS)}"
    row = dict(zip(_COLUMNS, values))
    for name in ("settings", "context"):
        if row[name] not in entries:
            return f"its {name} {row[name]!r} are not in {SETTINGS}"
    try:
        numbers = {name: json.loads(row[name]) if row[name] else None for name in _NUMBERS}
        more = json.loads(row["more"] or "{}")
    except (ValueError, RecursionError):
        return "a value is no number"
    if not isinstance(more, dict) or row["quick"] not in ("0", "1"):
        return "a value is of another type"
    settings, given = entries[row["settings"]], () if row["error"] else _SCORES
    texts = {name: row[name] for name in _TEXTS if row[name]}
    return {
        **more,
        **entries[row["context"]],
        **{name: value for name, value in numbers.items() if value is not None or name in given},
        **texts,
        **entries.get(row["commit"], {}),
        "schema": SCHEMA,
        "table": table,
        "model": settings.get("model"),
        "quick": row["quick"] == "1",
        "recipe": {
            **entries.get(_BASE, {}).get("recipe", {}),
            **settings.get("recipe", {}),
            **{name: row[name] for name in ("dataset", "protocol")},
        },
    }


def _problem(record: Record, table: str) -> str:
    """Describe what is wrong with a record; empty where nothing is."""
    for key, kind in _ALWAYS.items():
        if type(record.get(key)) is not kind:
            return f"{key!r} is missing or not of type {kind.__name__}"
    if record["schema"] != SCHEMA:
        return f"schema {record['schema']}, this hkconv reads {SCHEMA}"
    if record["table"] != table:
        return f"a record of table {record['table']!r} in the file of {table!r}"
    if "error" in record:
        return ""
    missing = [key for key in (*_SCORES, "metric") if key not in record]
    if missing:
        return f"{missing[0]!r} is missing"
    score = "val" if table.startswith(TUNING) else "test"
    if not _is_figure(record[score]):
        return f"{score!r} is no number: {record[score]!r}"
    odd = [key for key in _SCORES if record[key] is not None and not _is_figure(record[key])]
    if type(record["metric"]) is not str:
        odd.append("metric")
    return f"{odd[0]!r} is of another type" if odd else ""


def _is_figure(value: Any) -> bool:
    # A whole number beyond the range of float64 is none either.
    return type(value) in (int, float) and abs(value) <= sys.float_info.max
