"""``hkconv report``: the tables of the paper with our figures beside them, from the records of finished trainings."""

from pathlib import Path
from typing import Annotated

import typer

from hkconv.cli.output import count
from hkconv.errors import InputError


def report(
    results: Annotated[str, typer.Option(metavar="FOLDER", help="Records of `hkconv reproduce`.")] = "results/records",
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Where the report goes.")] = "results",
) -> None:
    """Write report.md, report.html and the plots from the records of finished trainings.

    Each table of the paper: its figure, ours under both protocols, and HKN
    against the best baseline. A damaged record is named and left out.

    Example: hkconv report --results results/records --out results
    """
    from hkconv.experiments.plan import read_plan
    from hkconv.experiments.report import TITLES, build_report, check_table, write_report
    from hkconv.experiments.store import TUNING, read

    folder = Path(results)
    # What was tried on the way to the settings is kept beside the results and is none.
    files = sorted(file for file in folder.glob("*.jsonl") if not file.name.startswith(TUNING))
    if not files:
        raise InputError(f"results must be a folder with records of `hkconv reproduce`, and {folder} has none")
    for file in files:
        check_table(file.stem, f"of file {file}")
    records, damaged = read(folder, TITLES)
    if not records:
        raise InputError(f"results {folder} has no record that can be read ({count(len(damaged), 'damaged line')})")
    trials, damaged_trials = read(folder, [TUNING + table for table in TITLES])
    damaged += damaged_trials
    plan = read_plan()
    blocks = build_report(records, damaged, plan.paper, plan.trainings, trials)
    for problem in damaged:
        typer.echo(f"damaged line left out: {problem}", err=True)
    for path in write_report(Path(out), blocks):
        typer.echo(f"written: {path}")
    typer.echo(f"{count(len(records), 'record')}, {count(len(damaged), 'damaged line')}")
