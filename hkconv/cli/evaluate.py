"""``hkconv evaluate``: tests the checkpoints of a run again and compares with what was stored."""

from typing import Annotated

import typer

from hkconv.cli.output import make_table, percent, print_table
from hkconv.cli.recipe_options import Device, run_argument

DIFFERENT = 1


def evaluate(
    run: Annotated[str, run_argument("Folder of a run, as `hkconv train` prints it.")],
    data: Annotated[
        str | None,
        typer.Option(
            help="Folder of the datasets, or where own data are now; by default the run's.", show_default=False
        ),
    ] = None,
    device: Device = "auto",
) -> None:
    """Test the checkpoints of a run again and compare.

    Exit code 1 if a result differs from the stored one.

    Example: hkconv evaluate runs/tree-20250101-120000
    """
    from hkconv.tasks.evaluate import evaluate_run

    evaluations = evaluate_run(run, data, device)
    table = make_table("model", "split", "seed", f"stored test {evaluations[0].metric} %", "recomputed %")
    for entry in evaluations:
        cell = entry.cell
        row = (cell.model, str(cell.split), str(cell.seed), percent(entry.stored), percent(entry.recomputed))
        table.add_row(*row, style=None if entry.agrees else "red")
    print_table(table)
    differing = [entry for entry in evaluations if not entry.agrees]
    if not differing:
        typer.echo(f"All {len(evaluations)} checkpoints give their stored result.")
        return
    largest = max(entry.difference for entry in differing)
    typer.echo(f"{len(differing)} of {len(evaluations)} checkpoints differ, by up to {percent(largest)} points.")
    raise typer.Exit(DIFFERENT)
