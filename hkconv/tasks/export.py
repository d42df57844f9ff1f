"""A trained HKN of a run as a program, see :mod:`hkconv.models.export`."""

from pathlib import Path
from typing import cast

from hkconv.engine.checkpoint import load_checkpoint
from hkconv.engine.files import make_folder, write_bytes
from hkconv.errors import InputError
from hkconv.models.export import export_onnx, export_torch
from hkconv.models.hkn import HKN
from hkconv.tasks.own_data import find_schema
from hkconv.tasks.predict import best_training
from hkconv.tasks.summary import CellResult

EXPORTERS = {"torch": export_torch, "onnx": export_onnx}


def export_run(folder: Path | str, out: Path | str, format: str = "torch") -> CellResult:
    """Write the HKN with the best validation score of a run as a program.

    It takes features as the network saw them and edges in all their directions; weights of edges if the run's own data
    had some.

    Args:
        folder: a folder that :func:`~hkconv.tasks.run.train_run` made.
        out: the file; an older one is replaced.
        format: ``"torch"`` for ``torch.export.load``, or ``"onnx"``.

    Returns:
        The training that was exported.
    """
    folder, out = Path(folder), Path(out)
    if format not in EXPORTERS:
        raise InputError(f"format must be {' or '.join(EXPORTERS)}, got {format!r}")
    result = best_training(folder, "hkn")
    model, _ = load_checkpoint(folder / result.cell.folder, expected="hkn")
    schema = find_schema(folder)
    make_folder(out.parent, "out")
    content = EXPORTERS[format](cast(HKN, model), weighted=schema is not None and schema.is_weighted)
    try:
        write_bytes(out, content)
    except OSError as error:
        raise InputError(f"out {out} cannot be written ({error.strerror})") from None
    return result
