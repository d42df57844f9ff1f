"""Scores against the number of kernel points: the paper's two figures, with our own results beside its own."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hkconv.data.options import CLEAN, PUBLISHED
from hkconv.report.collect import Grid, natural_order, scaled
from hkconv.report.style import BLACK, GREY, SeriesStyle, add_legend, figure_bytes, new_figure, series, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KERNEL_TABLES = ("kernels-node", "kernels-graph")
PAPER = "paper"
X_LABEL, Y_LABEL = "K", "test score, %"
NAMES = {PAPER: "paper", PUBLISHED: "ours, published (splits overlap)", CLEAN: "ours, clean"}

COLUMNS = 4
PANEL_WIDTH, PANEL_HEIGHT, LEGEND_HEIGHT = 2.3, 1.9, 0.35

# The paper's scores are dotted; of ours the clean ones, which count, have a full line.
LOOKS = dict(zip(NAMES.values(), (SeriesStyle(BLACK, series(3).linestyle, "^"), series(1), series(0)), strict=True))


@dataclass(frozen=True)
class Point:
    """A mean at ``x``; ``deviation`` may be absent. A point that is not whole gets a hollow marker."""

    x: float
    mean: float
    deviation: float | None = None
    whole: bool = True


@dataclass(frozen=True)
class Curve:
    """Points of one name, in the order of x."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Panel:
    """One small plot."""

    title: str
    series: tuple[Curve, ...]


def kernel_scores_figure(grid: Grid) -> "Figure":
    """Draw test scores against the number of kernel points K, a panel for each dataset.

    Lines are means and bands one deviation around them, the paper's and ours under each protocol. A hollow mark is a
    cell that is not complete.

    Args:
        grid: of :func:`hkconv.report.collect.read_grid`.

    Returns:
        The figure.
    """
    return _draw(kernel_panels(grid))


def draw_svg(panels: Sequence[Panel]) -> str:
    """The same panels as the text of an SVG file."""
    return figure_bytes(_draw(panels), ".svg").decode()


def kernel_panels(grid: Grid) -> tuple[Panel, ...]:
    """Panels of a kernel plot: for each dataset the paper's scores and ours under each protocol, by K."""
    return tuple(Panel(dataset, _curves(grid, dataset)) for dataset in grid.datasets)


@styled
def _draw(panels: Sequence[Panel]) -> "Figure":
    columns = min(COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    # The legend has one line for all names, which a single panel is too narrow for.
    figure = new_figure(max(PANEL_WIDTH * columns, 6.5), PANEL_HEIGHT * rows + LEGEND_HEIGHT)
    for number, panel in enumerate(panels):
        axes = figure.add_subplot(rows, columns, number + 1)
        _draw_panel(axes, panel)
        axes.set_ylabel(Y_LABEL if number % columns == 0 else "")
        axes.set_xlabel(X_LABEL if number + columns >= len(panels) else "")
    shown = {curve.name for panel in panels for curve in panel.series}
    add_legend(figure, {name: look for name, look in LOOKS.items() if name in shown})
    return figure


def _draw_panel(axes: "Axes", panel: Panel) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_title(panel.title)
    if not panel.series:
        axes.text(0.5, 0.5, "no results", color=GREY, ha="center", va="center", transform=axes.transAxes)
        axes.set_axis_off()
    for curve in panel.series:
        _draw_scores(axes, curve)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_scores(axes: "Axes", curve: Curve) -> None:
    look = LOOKS[curve.name]
    axes.plot(*_means(curve.points), color=look.color, linestyle=look.linestyle, label=curve.name)
    for whole in (True, False):
        marked = [point for point in curve.points if point.whole is whole]
        face = look.color if whole else "white"
        axes.plot(*_means(marked), look.marker, color=look.color, markerfacecolor=face, label="_marks", zorder=3)
    with_band = [(point, point.deviation) for point in curve.points if point.deviation is not None]
    low = [point.mean - deviation for point, deviation in with_band]
    high = [point.mean + deviation for point, deviation in with_band]
    axes.fill_between([point.x for point, _ in with_band], low, high, color=look.color, alpha=0.15, linewidth=0)


def _means(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [point.x for point in points], [point.mean for point in points]


def _curves(grid: Grid, dataset: str) -> tuple[Curve, ...]:
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
    return tuple(Curve(NAMES[kind], tuple(found)) for kind, found in points.items() if found)
