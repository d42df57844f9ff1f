"""``hkconv predict``: writes what a trained model says of a user's own data or of a dataset."""

from pathlib import Path
from typing import Annotated

import typer

from hkconv.cli.output import count
from hkconv.cli.recipe_options import Device, run_argument


def predict(
    run: Annotated[str, run_argument("Folder of a run, as `hkconv train` prints it.")],
    data: Annotated[
        str | None,
        typer.Argument(
            help="File or folder of the kind that was trained on, it may be new data; by default what was trained on.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        str, typer.Option(help="FILE.csv or FILE.parquet to write to, - for standard output.")
    ] = "predictions.csv",
    model: Annotated[
        str | None, typer.Option(help="Ask this model; by default HKN, its best by validation.", show_default=False)
    ] = None,
    device: Device = "auto",
) -> None:
    """Write the classes of nodes or graphs, or links.

    A row for each node or graph, with the probability of every class; of a
    link task the likeliest links that are not there.

    Example: hkconv predict runs/papers-20250101-120000 papers --out predictions.csv
    """
    from hkconv.tasks.predict import as_csv, check_target, predict_run, write_predictions

    target = None if out == "-" else check_target(Path(out))
    predictions = predict_run(run, data, model=model, device=device)
    typer.echo(str(predictions.choice), err=target is None)
    if target is None:
        typer.echo(as_csv(predictions), nl=False)
        return
    write_predictions(target, predictions)
    typer.echo(f"{count(len(predictions.ids), predictions.task)} written to {target}")
