"""``hkconv report``: the tables of the paper with our figures beside them, from the records of finished trainings."""

from pathlib import Path
from typing import Annotated

import typer

from hkconv.cli.output import count
from hkconv.errors import InputError


def report(
    results: Annotated[str, typer.Option(metavar="FOLDER", help="Records of `hkconv reproduce`.")] = "results/records",
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Where the report goes.")] = "results",
    explore: Annotated[
        str,
        typer.Option(metavar="DATASET,...", help="Train the best HKN of these again for pages.", show_default=False),
    ] = "",
    data: Annotated[
        str | None,
        typer.Option(help="Folder of the datasets for --explore, else HKCONV_DATA or the cache.", show_default=False),
    ] = None,
) -> None:
    """Write report.md, report.html and plots of what is stored.

    Each table of the paper: its figure, ours under both protocols, and HKN
    against the best baseline. A damaged record is named and left out. Pages of
    `hkconv explore` that lie in OUT/explorer are linked; --explore makes them.

    Example: hkconv report --explore texas,cornell
    """
    from hkconv.engine.files import make_folder
    from hkconv.experiments.store import TUNING, read, stored_tables
    from hkconv.report.collect import read_plan
    from hkconv.report.document import EXPLORER, TITLES, build_report, check_table, draw_plots, write_report

    folder = Path(results)
    # What was tried on the way to the settings is kept beside the results and is none.
    files = {table: file for table, file in stored_tables(folder).items() if not table.startswith(TUNING)}
    if not files:
        raise InputError(f"results must be a folder with records of `hkconv reproduce`, and {folder} has none")
    for table, file in files.items():
        check_table(table, f"of file {file}")
    records, damaged = read(folder, TITLES)
    if not records:
        raise InputError(f"results {folder} has no record that can be read ({count(len(damaged), 'damaged line')})")
    trials, damaged_trials = read(folder, [TUNING + table for table in TITLES])
    damaged += damaged_trials
    pages = Path(out, EXPLORER)
    if explore:
        from hkconv.viz.explorer.best_runs import best_record, write_best_page

        wanted = {name.strip(): best_record(records, name.strip()) for name in explore.split(",")}
        make_folder(pages, "out")
        for name, record in wanted.items():
            write_best_page(record, pages / f"{name}.html", data)
            typer.echo(f"written: {pages / name}.html")
    found = sorted(page.name for page in pages.glob("*.html"))
    plan = read_plan()
    blocks = build_report(records, damaged, plan.paper, plan.trainings, trials, found)
    for problem in damaged:
        typer.echo(f"damaged line left out: {problem}", err=True)
    drawings = {}
    try:
        drawings = draw_plots(blocks)
    except InputError as error:
        typer.echo(f"without plots: {error}", err=True)
    for path in write_report(Path(out), blocks, drawings):
        typer.echo(f"written: {path}")
    typer.echo(f"{count(len(records), 'record')}, {count(len(damaged), 'damaged line')}")
