"""``hkconv tune``: chooses the settings of a table's systems on validation data, by as many trials for each."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hkconv.cli.exit_codes import INTERRUPTED
from hkconv.cli.output import percent
from hkconv.cli.recipe_options import DataFolder, Device, ranged
from hkconv.cli.reproduce import BATCH, INCOMPLETE, RESULTS, names_of, print_summary
from hkconv.options import COUNT, JOBS, REPEATS

if TYPE_CHECKING:
    from hkconv.experiments.tuner import Finding


def tune(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="node, graph or links.", show_default=False)],
    trials: Annotated[
        int | None, ranged(COUNT, help="Trials a system, else as the table's recipe says.", show_default=False)
    ] = None,
    splits: Annotated[
        int | None, ranged(REPEATS, help="Splits a trial, else as the table's recipe says.", show_default=False)
    ] = None,
    jobs: Annotated[int, ranged(JOBS, help="Trainings at the same time, one thread each.")] = 1,
    device: Device = "auto",
    datasets: Annotated[str, typer.Option(help="Only these, with commas.", show_default=False)] = "",
    systems: Annotated[str, typer.Option(help="Only these, with commas.", show_default=False)] = "",
    protocol: Annotated[
        str, typer.Option(metavar="clean|published", help="Whose validation data.", show_default="clean")
    ] = "",
    results: Annotated[str, typer.Option(help="Folder of the records, which are added to.")] = RESULTS,
    data: DataFolder = None,
    capture: Annotated[bool, typer.Option("--capture", help="CUDA graphs on a GPU, where a task allows them.")] = False,
    batch: Annotated[int | None, BATCH] = None,
    recipes: Annotated[
        str | None, typer.Option(help="Folder of recipes instead of hkconv's own.", show_default=False)
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Write the best settings into the folder of recipes.")] = False,
) -> None:
    """Tune the systems of a table on validation data.

    Test data stays hidden. Every system gets the same number of trials. What
    was stopped goes on by the same command. With --write the tables are then
    trained so.

    Example: hkconv tune node --datasets texas --systems HKN,GCN --jobs 2
    """
    from hkconv.cli.progress import TableProgress
    from hkconv.experiments.recipe_files import RECIPES
    from hkconv.experiments.reproduce import Order
    from hkconv.experiments.spaces import read_tuning
    from hkconv.experiments.tables import Choice, Execution
    from hkconv.experiments.tuner import find_best, write_tuned
    from hkconv.experiments.tuner import tune as run_trials

    order = Order(
        (table,),
        Choice(names_of(datasets), names_of(systems), names_of(protocol)),
        Execution(device, data, capture, batch),
        jobs,
        Path(results),
        RECIPES if recipes is None else Path(recipes),
    )
    tuning = read_tuning(table, order.recipes, trials=trials, num_splits=splits)
    with TableProgress() as progress:
        summary = run_trials(tuning, order, progress)
    print_summary(summary)
    findings = find_best(tuning, order)
    _print_findings(findings)
    if write:
        for path in write_tuned(table, findings, order.recipes):
            typer.echo(f"written: {path}")
    if summary.interrupted:
        typer.echo(f"interrupted: what ended is kept; go on with the same command, `hkconv tune {table} ...`")
        raise typer.Exit(INTERRUPTED)
    if not findings:
        raise typer.Exit(INCOMPLETE)


def _print_findings(findings: "list[Finding]") -> None:
    for found in findings:
        drawn = ", ".join(f"{name} {value}" for name, value in found.best.drawn.items()) or "as given"
        first = "failed" if found.first is None else f"{percent(found.first)} %"
        place = f"{found.dataset} {found.protocol} {found.label}"
        scores = f"validation {percent(found.score)} % (as given {first}; {found.finished} of {found.trials} trials)"
        typer.echo(f"{place}: {scores}: {drawn}")
