"""Scores against the number of kernel points: the paper's two figures, with our own results beside its own."""

import math
from typing import TYPE_CHECKING

from hkconv.experiments.grids import Grid
from hkconv.experiments.kernel_plot import NAMES, X_LABEL, Y_LABEL, kernel_panels
from hkconv.experiments.svg_plot import Panel, Point
from hkconv.experiments.svg_plot import Series as Scores
from hkconv.viz.style import BLACK, GREY, SeriesStyle, add_legend, new_figure, series, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 4
PANEL_WIDTH, PANEL_HEIGHT, LEGEND_HEIGHT = 2.3, 1.9, 0.35

# The paper's scores are dotted; of ours the clean ones, which count, have a full line.
LOOKS = dict(zip(NAMES.values(), (SeriesStyle(BLACK, series(3).linestyle, "^"), series(1), series(0)), strict=True))


@styled
def kernel_scores_figure(grid: Grid) -> "Figure":
    """Draw test scores against the number of kernel points K, a panel for each dataset.

    Lines are means and bands one deviation around them, the paper's and ours under each protocol. A hollow mark is a
    cell that is not complete.

    Args:
        grid: of :func:`hkconv.experiments.plan.read_grid`.

    Returns:
        The figure.
    """
    panels = kernel_panels(grid)
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


def _draw_scores(axes: "Axes", curve: Scores) -> None:
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


def _means(points: "list[Point] | tuple[Point, ...]") -> tuple[list[float], list[float]]:
    return [point.x for point in points], [point.mean for point in points]
