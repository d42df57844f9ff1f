"""What the report holds the records against: the paper's figures, and the trainings that make its tables complete."""

from hkconv.benchmarking.paper import PAPER_ROWS
from hkconv.experiments.cells import RUNTIME, Record
from hkconv.experiments.grids import PaperTable
from hkconv.experiments.recipe_files import TRAINED_TABLES, read_table
from hkconv.experiments.tables import Choice, list_cells


def paper_figures() -> dict[str, PaperTable]:
    """The paper's mean and deviation by table, dataset and system: in percent, for the runtime table in seconds."""
    figures: dict[str, PaperTable] = {
        table: {recipe.dataset: recipe.paper for recipe in read_table(table)} for table in TRAINED_TABLES
    }
    figures[RUNTIME] = {
        row.dataset: {
            "HGCN": (row.hgcn, None),
            "H2H-GCN": (row.h2h_gcn, None),
            "HyboNet": (row.hybonet, None),
            "HKN": (row.hknet, None),
        }
        for row in PAPER_ROWS
    }
    return figures


def planned_trainings() -> list[Record]:
    """Every training that the recipe files ask for, in full and quick, as a record without results."""
    recipes = [recipe for table in TRAINED_TABLES for recipe in read_table(table)]
    return [cell.head() for quick in (False, True) for cell in list_cells(recipes, Choice(quick=quick))]
