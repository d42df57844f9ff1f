"""``hkconv export``: writes a trained HKN as a program that runs without hkconv, or as a folder to share."""

from pathlib import Path
from typing import Annotated

import typer

from hkconv.cli.recipe_options import one_of, run_argument

FOLDER = "folder"


def export(
    run: Annotated[str, run_argument("Folder of a run, as `hkconv train` prints it.")],
    out: Annotated[
        str, typer.Option(help="File to write to, such as model.pt2 or model.onnx; or a folder.", show_default=False)
    ],
    format: Annotated[
        str | None,
        one_of(
            ("torch", "onnx", FOLDER),
            help="For torch.export.load, ONNX, or HKN.from_pretrained; by default as out ends.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write a run's HKN as a program or ONNX, or to share it.

    The one with the best validation score. A file .onnx is an ONNX model,
    any other file a program for torch.export.load, which needs no hkconv.
    A folder, out without an ending, has weights, their description and a
    model card, for HKN.from_pretrained.

    Example: hkconv export runs/tree-20250101-120000 --out model.pt2
    """
    from hkconv.tasks.model_card import export_folder
    from hkconv.tasks.predict import export_run

    if format is None and (Path(out).is_dir() or not Path(out).suffix):
        format = FOLDER
    typer.echo(str(export_folder(run, out) if format == FOLDER else export_run(run, out, format)))
    typer.echo(f"written to {out}")
