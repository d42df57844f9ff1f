"""``hkconv reproduce``: fills the paper's tables with results."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hkconv.cli.exit_codes import INTERRUPTED
from hkconv.cli.output import make_table, print_table
from hkconv.cli.recipe_options import DataFolder, Device, ranged
from hkconv.options import COUNT, JOBS

if TYPE_CHECKING:
    from hkconv.experiments.reproduce import Summary

INCOMPLETE = 1
RESULTS = "results/records"

BATCH = ranged(
    COUNT,
    help="Networks on one graph trained, and kept, at once; the noise of dropout depends on it.",
    show_default="60 on a GPU, else 1",
)


def reproduce(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE",
            help="graph, molecules, node, links, kernels-graph, kernels-node, ablations, runtime or all.",
            show_default=False,
        ),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Fewer splits and epochs; labelled so.")] = False,
    jobs: Annotated[int, ranged(JOBS, help="Trainings at the same time, one thread each.")] = 1,
    device: Device = "auto",
    datasets: Annotated[str, typer.Option(help="Only these, with commas.", show_default=False)] = "",
    systems: Annotated[str, typer.Option(help="Only these, with commas.", show_default=False)] = "",
    protocol: Annotated[
        str, typer.Option(metavar="clean|published", help="Only this; by default both.", show_default=False)
    ] = "",
    results: Annotated[str, typer.Option(help="Folder of the records, which are added to.")] = RESULTS,
    data: DataFolder = None,
    capture: Annotated[bool, typer.Option("--capture", help="CUDA graphs on a GPU, where a task allows them.")] = False,
    batch: Annotated[int | None, BATCH] = None,
    recipes: Annotated[
        str | None, typer.Option(help="Folder of recipes instead of hkconv's own.", show_default=False)
    ] = None,
) -> None:
    """Train what a table of the paper still lacks.

    What is stored is not trained again. Exit code 1 if some of it failed.
    Ctrl-C keeps what has ended; the same command goes on from there. What
    failed is tried again. Figures do not depend on --jobs.

    Example: hkconv reproduce node --datasets texas --systems HKN,GCN
    """
    from hkconv.experiments.recipe_files import RECIPES, table_names

    tables = table_names(table)

    from hkconv.cli.progress import TableProgress
    from hkconv.experiments.reproduce import Order
    from hkconv.experiments.reproduce import reproduce as fill
    from hkconv.experiments.tables import Choice, Execution

    order = Order(
        tables,
        Choice(names_of(datasets), names_of(systems), names_of(protocol), quick),
        Execution(device, data, capture, batch),
        jobs,
        Path(results),
        RECIPES if recipes is None else Path(recipes),
    )
    with TableProgress() as progress:
        summary = fill(order, progress)
    print_summary(summary)
    typer.echo(f"records: {order.results}")
    if summary.interrupted:
        typer.echo(f"interrupted: what ended is kept; go on with the same command, `hkconv reproduce {table} ...`")
        raise typer.Exit(INTERRUPTED)
    if not summary.is_complete:
        raise typer.Exit(INCOMPLETE)


def names_of(text: str) -> tuple[str, ...]:
    """The names of an option that takes several, with commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def print_summary(summary: "Summary") -> None:
    """Print a summary of a filled store, and what failed."""
    shown = make_table("table", "cells", "stored before", "added", "failed")
    for name, wanted in summary.wanted.items():
        found = (wanted, summary.stored[name], summary.added[name], summary.failed[name])
        shown.add_row(name, *map(str, found))
    print_table(shown)
    for record in summary.failures:
        place = f"{record['table']} {record['dataset']} {record['protocol']} {record['variant']}"
        typer.echo(f"failed: {place} split {record['split']} seed {record['seed']}: {record['error']}")
    for dataset, reason in summary.left_out.items():
        typer.echo(f"left out: {dataset}, {reason}")
