"""One table of the report: systems down, datasets across, the paper's figure and ours under both protocols in each."""

import re
from collections.abc import Iterable, Mapping, Sequence

from hkconv.experiments.cells import CellFigures, Place
from hkconv.experiments.pages import Bold, Table
from hkconv.experiments.store import RUNTIME
from hkconv.tasks.summary import Spread

PaperFigure = Sequence[float | None] | None
PaperTable = Mapping[str, Mapping[str, PaperFigure]]

CLEAN, PUBLISHED = "clean", "published"
NOTHING = "–"
HKN_LABEL = re.compile(r"HKN|K=\d")


class Grid:
    """The cells of one table, full ones or quick ones, with its rows and columns.

    Args:
        table: name of the table.
        quick: whether it is the table of the quick trainings; the two never meet.
        cells: all cells of the report.
        paper: the paper's mean and deviation by dataset and system; its order is that of columns and rows.
    """

    def __init__(self, table: str, quick: bool, cells: Mapping[Place, CellFigures], paper: PaperTable) -> None:
        self.table, self.quick, self.paper = table, quick, paper
        self.cells = {place: cell for place, cell in cells.items() if (place.table, place.quick) == (table, quick)}
        self.datasets = list(dict.fromkeys([*paper, *sorted(place.dataset for place in self.cells)]))
        labels = [label for systems in paper.values() for label in systems]
        found = sorted((place.variant for place in self.cells), key=natural_order)
        # The paper's order, HKN and its variants last, as there.
        self.variants = sorted(dict.fromkeys([*labels, *found]), key=lambda label: bool(HKN_LABEL.match(label)))

    def cell(self, dataset: str, protocol: str, variant: str) -> CellFigures | None:
        """A cell, None where nothing was run."""
        return self.cells.get(Place(self.table, dataset, protocol, self.quick, variant))

    def column(self, dataset: str, protocol: str) -> dict[str, CellFigures]:
        """The cells of a dataset that have scores, by variant."""
        found = {variant: self.cell(dataset, protocol, variant) for variant in self.variants}
        return {variant: cell for variant, cell in found.items() if cell is not None and cell.tests}

    def complete(self, dataset: str) -> dict[str, CellFigures]:
        """The complete clean cells of a dataset: over other splits a mean is no match for theirs."""
        return {variant: cell for variant, cell in self.column(dataset, CLEAN).items() if cell.complete}

    def best(self, dataset: str) -> str | None:
        """The variant with the best clean test mean among complete cells; None where they cannot be compared."""
        cells = self.complete(dataset)
        if self.table != RUNTIME:
            return max(cells, key=lambda variant: cells[variant].test.mean, default=None)
        machines = {variant.partition(", ")[2] for variant in cells}
        return min(cells, key=lambda variant: cells[variant].test.mean) if len(machines) == 1 else None

    def paper_figure(self, dataset: str, variant: str) -> Spread | None:
        """The paper's figure in percent or seconds, None where it has none or prints NaN."""
        figure = self.paper.get(dataset, {}).get(variant)
        if figure is None or figure[0] is None or figure[0] != figure[0]:
            return None
        return Spread(figure[0], *figure[1:])


def figures_table(grid: Grid) -> Table:
    """All figures of a grid; rows that would be empty are left out. Bold is the best complete clean cell."""
    rows: list[tuple[str | Bold, ...]] = []
    best = {dataset: None if grid.quick else grid.best(dataset) for dataset in grid.datasets}
    # A protocol is a way to divide a dataset, and a time does not depend on it.
    clean_name = "ours" if grid.table == RUNTIME else CLEAN
    label = ", quick" if grid.quick else ""
    for variant in grid.variants:
        clean = [cell_text(grid.table, grid.cell(dataset, CLEAN, variant)) for dataset in grid.datasets]
        kinds: dict[str, Sequence[str | Bold]] = {
            "paper": [_paper_text(grid, dataset, variant) for dataset in grid.datasets],
            PUBLISHED: [cell_text(grid.table, grid.cell(dataset, PUBLISHED, variant)) for dataset in grid.datasets],
            CLEAN: [Bold(text) if best[name] == variant else text for name, text in zip(grid.datasets, clean)],
        }
        filled = [kind for kind, texts in kinds.items() if any(text != NOTHING for text in texts)]
        for kind in filled:
            shown = {"paper": "paper", PUBLISHED: PUBLISHED + label, CLEAN: clean_name + label}[kind]
            rows.append((variant if kind == filled[0] else "", shown, *kinds[kind]))
    head = ("system", "", *(_column_title(grid, dataset) for dataset in grid.datasets))
    return Table(head, (*rows, *_overlaps(grid)))


def cell_text(table: str, cell: CellFigures | None) -> str:
    """Mean, deviation and number of splits of a cell; a time is a median already and has no splits."""
    if cell is None:
        return NOTHING
    if not cell.tests:
        return f"failed ({cell.failures} of {cell.planned})"
    if table == RUNTIME:
        return spread_text(table, scaled(cell.test, 1000))
    return f"{spread_text(table, scaled(cell.test, 100))} ({count_text(cell)})"


def count_text(cell: CellFigures) -> str:
    """How many splits a complete cell has, and how many trainings of how many one that is not complete."""
    if not cell.complete:
        return f"{cell.trainings} of {cell.planned}" + (f", {cell.failures} failed" if cell.failures else "")
    return str(cell.splits) if cell.trainings == cell.splits else f"{cell.splits} x {cell.seeds}"


def spread_text(table: str, spread: Spread) -> str:
    """Mean and deviation with the digits of their table."""

    def number(value: float) -> str:
        if table != RUNTIME:
            return f"{value:.2f}"
        return f"{value:.3g}" if value < 100 else f"{value:.0f}"

    return number(spread.mean) if spread.deviation is None else f"{number(spread.mean)} ± {number(spread.deviation)}"


def signed(value: float, digits: int) -> str:
    """A difference with its sign, which is + where it rounds to nothing."""
    # The sum turns -0.0 into 0.0.
    return f"{round(value, digits) + 0.0:+.{digits}f}"


def scaled(spread: Spread, factor: float) -> Spread:
    """A spread in another unit."""
    return Spread(factor * spread.mean, None if spread.deviation is None else factor * spread.deviation)


def natural_order(label: str) -> tuple[tuple[str, int], ...]:
    """Sorts ``K=9`` before ``K=10``."""
    return tuple((text, int(number or 0)) for text, number in re.findall(r"([^\d]*)(\d*)", label))


def _paper_text(grid: Grid, dataset: str, variant: str) -> str:
    if grid.paper.get(dataset, {}).get(variant) is None:
        return NOTHING
    figure = grid.paper_figure(dataset, variant)
    if figure is None:
        return "NaN"
    return spread_text(grid.table, scaled(figure, 1000 if grid.table == RUNTIME else 1))


def _column_title(grid: Grid, dataset: str) -> str:
    metrics = {cell.metric for place, cell in grid.cells.items() if place.dataset == dataset}
    others = sorted(metrics - {"accuracy", ""})
    return f"{dataset} ({', '.join(others)})" if others and grid.table != RUNTIME else dataset


def _overlaps(grid: Grid) -> list[tuple[str, ...]]:
    """How much the parts of the published splits have in common, a row for each pair of parts."""
    found = {dataset: _mean_overlap(grid.column(dataset, PUBLISHED).values()) for dataset in grid.datasets}
    names = list(dict.fromkeys(name for overlap in found.values() for name in overlap))
    shares = {name: [found[dataset].get(name) for dataset in grid.datasets] for name in names}
    return [
        (
            "overlap of the published splits" if name == names[0] else "",
            name,
            *(NOTHING if share is None else f"{100 * share:.0f} %" for share in shares[name]),
        )
        for name in names
    ]


def _mean_overlap(cells: Iterable[CellFigures]) -> dict[str, float]:
    found = [cell.overlap for cell in cells if cell.overlap]
    return {name: sum(overlap[name] for overlap in found) / len(found) for name in (found[0] if found else ())}
