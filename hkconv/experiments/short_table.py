"""The node table in few rows, for a page that has room for one: HKN, what leads the baselines, and two for scale."""

from collections.abc import Iterable, Sequence

from hkconv.experiments.cells import CellFigures
from hkconv.experiments.grids import HKN_LABEL, NOTHING, Grid, scaled, spread_text
from hkconv.experiments.pages import Bold, Table

DATASETS = ("cornell", "texas", "wisconsin", "chameleon", "squirrel", "actor")
OURS = ("HKN+", "HKN")
FOR_SCALE = ("MLP", "GCN")


def short_table(grid: Grid, datasets: Sequence[str] = DATASETS) -> Table:
    """Clean test scores of complete cells; a cell that is not complete is left out.

    Beside HKN there are the baselines that lead the others in mean test score on one of the datasets at least, and two
    plain ones. The last row counts how many baselines a lead is over. Bold is the highest of all systems, and only
    where every baseline is complete: one that is missing might be higher.

    Args:
        grid: the node table.
        datasets: its columns.

    Returns:
        Systems down, datasets across.
    """
    baselines = [variant for variant in grid.variants if not HKN_LABEL.match(variant)]
    complete = {dataset: grid.complete(dataset) for dataset in datasets}
    leaders = {_leader(cells, baselines) for cells in complete.values()}
    counts = {dataset: sum(variant in cells for variant in baselines) for dataset, cells in complete.items()}
    best = {dataset: grid.best(dataset) if counts[dataset] == len(baselines) else None for dataset in datasets}

    def cell(dataset: str, variant: str) -> str | Bold:
        figures = complete[dataset].get(variant)
        if figures is None:
            return NOTHING
        text = spread_text(grid.table, scaled(figures.test, 100))
        return Bold(text) if best[dataset] == variant else text

    shown = [*OURS, *(variant for variant in baselines if variant in leaders or variant in FOR_SCALE)]
    rows = [(variant, *(cell(dataset, variant) for dataset in datasets)) for variant in shown]
    totals = ("complete baselines", *(f"{counts[dataset]} of {len(baselines)}" for dataset in datasets))
    return Table(("", *datasets), (*rows, totals))


def _leader(cells: dict[str, CellFigures], baselines: Iterable[str]) -> str | None:
    present = [variant for variant in baselines if variant in cells]
    return max(present, key=lambda variant: cells[variant].test.mean, default=None)
