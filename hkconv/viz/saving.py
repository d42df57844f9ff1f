"""A figure as a file: the suffix says the format, and the same figure gives the same bytes."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

from hkconv.engine.files import write_bytes
from hkconv.errors import InputError
from hkconv.viz.style import in_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The fields of each format that would hold the hour.
_DATES = {".svg": "Date", ".pdf": "CreationDate", ".png": None}


def check_target(path: Path) -> Path:
    """Refuse a file that no figure can be written to, before the figure is drawn."""
    if path.suffix not in _DATES:
        raise InputError(f"out must end in {', '.join(_DATES)}, got {path}")
    if not path.parent.is_dir():
        raise InputError(f"out {path} cannot be written: folder {path.parent} does not exist")
    return path


def save_figure(figure: "Figure", path: Path | str) -> Path:
    """Write a figure, whole or not at all.

    Args:
        figure: of any function of :mod:`hkconv.viz`.
        path: ends in ``.svg``, ``.pdf`` or ``.png``; an older file is replaced.

    Returns:
        The path.
    """
    path = check_target(Path(path))
    date = _DATES[path.suffix]
    buffer = io.BytesIO()
    with in_style():
        figure.savefig(buffer, format=path.suffix[1:], metadata={date: None} if date else None)
    write_bytes(path, buffer.getvalue(), "out")
    return path
