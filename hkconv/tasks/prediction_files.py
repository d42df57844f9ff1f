"""Predictions as a table: ``id``, ``class`` and a column ``p_CLASS`` for the probability of each class."""

import csv
import io
from pathlib import Path
from types import ModuleType

from hkconv.engine.files import write_bytes
from hkconv.errors import InputError
from hkconv.tasks.predict import Predictions

SUFFIXES = (".csv", ".parquet")


def check_target(path: Path) -> Path:
    """Refuse a file that no predictions can be written to, before they are made."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"out must end in {' or '.join(SUFFIXES)}, got {path}")
    if not path.parent.is_dir():
        raise InputError(f"out {path} cannot be written: folder {path.parent} does not exist")
    if path.suffix == ".parquet":
        _pyarrow()
    return path


def write_predictions(path: Path | str, predictions: Predictions) -> Path:
    """Write a table, whole or not at all.

    Args:
        path: ends in ``.csv`` or ``.parquet``; an older file is replaced.
        predictions: what to write.

    Returns:
        The path.
    """
    path = check_target(Path(path))
    content = _as_parquet(predictions) if path.suffix == ".parquet" else _as_csv(predictions)
    write_bytes(path, content, "out")
    return path


def _columns(predictions: Predictions) -> dict[str, list]:
    probabilities = predictions.probabilities.t().tolist()
    named = {f"p_{name}": column for name, column in zip(predictions.classes, probabilities)}
    return {"id": predictions.ids, "class": predictions.predicted, **named}


def _as_csv(predictions: Predictions) -> bytes:
    columns = _columns(predictions)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    # As many digits as a float32 has.
    written = [
        [f"{value:.9g}" for value in column] if name.startswith("p_") else column for name, column in columns.items()
    ]
    writer.writerows(zip(*written))
    return text.getvalue().encode()


def _as_parquet(predictions: Predictions) -> bytes:
    pyarrow, parquet = _pyarrow()
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table(_columns(predictions)), buffer)
    return buffer.getvalue()


def _pyarrow() -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise InputError(
            f"Parquet needs PyArrow ({error}): install it with pip install 'hkconv[parquet]', or name a .csv file"
        ) from None
    return pyarrow, parquet
