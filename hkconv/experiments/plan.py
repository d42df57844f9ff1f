"""What the report holds the records against: the paper's figures, and the trainings that make its tables complete."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hkconv.errors import InputError
from hkconv.experiments.cells import collect_cells
from hkconv.experiments.epochs import PAPER_ROWS
from hkconv.experiments.grids import Grid, PaperTable
from hkconv.experiments.recipe_files import TRAINED_TABLES, read_table
from hkconv.experiments.store import RUNTIME, Damage, Record, read
from hkconv.experiments.tables import Choice, list_cells


@dataclass(frozen=True)
class Plan:
    """What the recipe files say.

    Args:
        paper: the paper's mean and deviation by table, dataset and system: in percent, for the runtime table in
            seconds.
        trainings: every training that is asked for, in full and quick, as a record without results. The runtime
            table has none: its cells depend on the machine.
    """

    paper: dict[str, PaperTable]
    trainings: list[Record]


def read_plan(tables: Iterable[str] = TRAINED_TABLES) -> Plan:
    """The plan of this library's own recipe files, for some tables and the times."""
    recipes = {table: read_table(table) for table in tables}
    paper = {table: {recipe.dataset: recipe.paper for recipe in found} for table, found in recipes.items()}
    together = [recipe for found in recipes.values() for recipe in found]
    cells = [cell for quick in (False, True) for cell in list_cells(together, Choice(quick=quick))]
    return Plan({**paper, RUNTIME: _paper_times()}, [cell.head() for cell in cells])


def read_grid(folder: Path, table: str) -> tuple[Grid, list[Damage]]:
    """One table of full trainings from the results store, held against the plan.

    Args:
        folder: of the results.
        table: its name.

    Returns:
        The grid, and the damaged lines, which are not in it.
    """
    records, damaged = read(folder, [table])
    if not any(not record["quick"] for record in records):
        lines = f" ({len(damaged)} damaged)" if damaged else ""
        raise InputError(
            f"results {folder} has no record of table {table}{lines}; `hkconv reproduce {table}` makes them"
        )
    plan = read_plan([table])
    return Grid(table, False, collect_cells(records, plan.trainings).cells, plan.paper[table]), damaged


def _paper_times() -> PaperTable:
    return {
        row.dataset: {
            "HGCN": (row.hgcn, None),
            "H2H-GCN": (row.h2h_gcn, None),
            "HyboNet": (row.hybonet, None),
            "HKN": (row.hknet, None),
        }
        for row in PAPER_ROWS
    }
