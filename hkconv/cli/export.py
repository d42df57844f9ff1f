"""``hkconv export``: writes a trained HKN as a program that runs without hkconv."""

from typing import Annotated

import typer

from hkconv.cli.output import percent


def export(
    run: Annotated[str, typer.Argument(help="Folder of a run, as `hkconv train` prints it.", show_default=False)],
    out: Annotated[str, typer.Option(help="File to write to, such as model.pt2 or model.onnx.", show_default=False)],
    format: Annotated[str, typer.Option(help="torch for torch.export.load, or onnx.", metavar="torch|onnx")] = "torch",
) -> None:
    """Write the run's HKN with the best validation score as a program that runs without hkconv.

    Example: hkconv export runs/tree-20250101-120000 --out model.pt2
    """
    from hkconv.tasks.predict import export_run

    result = export_run(run, out, format)
    typer.echo(f"{result.cell}, validation {result.metric} {percent(result.val_metric)} %")
    typer.echo(f"written to {out}")
