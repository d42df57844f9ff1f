"""The figures of the paper that show scores against the number of kernel points, with our own beside them.

The report draws them itself, because it must need no plotting library; :mod:`hkconv.viz` draws the same panels.
"""

import re

from hkconv.experiments.grids import CLEAN, PUBLISHED, Grid, natural_order, scaled
from hkconv.experiments.pages import Plot
from hkconv.experiments.svg_plot import Panel, Point, Series, draw_panels

KERNEL_TABLES = ("kernels-node", "kernels-graph")
PAPER = "paper"
X_LABEL, Y_LABEL = "K", "test score, %"
NAMES = {PAPER: "paper", PUBLISHED: "ours, published (splits overlap)", CLEAN: "ours, clean"}


def kernel_plot(grid: Grid) -> Plot:
    """One small plot for each dataset of a table whose rows are ``K=2``, ``K=3`` and so on."""
    description = (
        "Test score in percent against the number of kernel points K, bands of one deviation; "
        "a hollow mark is a cell that is not complete."
    )
    svg = draw_panels(description, kernel_panels(grid), tuple(NAMES.values()), X_LABEL, Y_LABEL)
    return Plot(f"{grid.table}.svg", svg, description)


def kernel_panels(grid: Grid) -> tuple[Panel, ...]:
    """What such a plot shows: for each dataset the paper's scores and ours under each protocol, by K."""
    return tuple(Panel(dataset, _series(grid, dataset)) for dataset in grid.datasets)


def _series(grid: Grid, dataset: str) -> tuple[Series, ...]:
    points: dict[str, list[Point]] = {kind: [] for kind in NAMES}
    for variant in sorted(grid.variants, key=natural_order):
        number = re.fullmatch(r"K=(\d+)", variant)
        if number is None:
            continue
        figure = grid.paper_figure(dataset, variant)
        if figure is not None:
            points[PAPER].append(Point(int(number[1]), figure.mean, figure.deviation))
        for protocol in (PUBLISHED, CLEAN):
            cell = grid.cell(dataset, protocol, variant)
            if cell is not None and cell.tests:
                spread = scaled(cell.test, 100)
                points[protocol].append(Point(int(number[1]), spread.mean, spread.deviation, cell.complete))
    return tuple(Series(NAMES[kind], tuple(found)) for kind, found in points.items() if found)
