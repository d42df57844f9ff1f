"""``hkconv predict``: writes what a trained model says of a user's own data."""

from pathlib import Path
from typing import Annotated

import typer

from hkconv.cli.output import count, percent


def predict(
    run: Annotated[str, typer.Argument(help="Folder of a run on own data, as `hkconv train` prints it.")],
    data: Annotated[str, typer.Argument(help="File or folder of the kind that was trained on; it may be new data.")],
    out: Annotated[str, typer.Option(help="FILE.csv or FILE.parquet to write to.")] = "predictions.csv",
    model: Annotated[
        str | None, typer.Option(help="Ask this model; by default the best by validation.", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
) -> None:
    """Write the class and the probabilities of every node or graph of your data.

    Example: hkconv predict runs/papers-20250101-120000 papers --out predictions.csv
    """
    from hkconv.tasks.predict import check_target, predict_run, write_predictions

    target = check_target(Path(out))
    predictions = predict_run(run, data, model=model, device=device)
    write_predictions(target, predictions)
    result = predictions.result
    typer.echo(f"{result.cell}, validation {result.metric} {percent(result.val_metric)} %")
    typer.echo(f"{count(len(predictions.ids), predictions.task)} written to {target}")
