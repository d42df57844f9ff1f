"""Kernel points in L²: on the Lorentz sheet and in the Poincaré disk, before and after a translation."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.points import kernel_points
from hkconv.report.style import BLUE, GREY, LIGHT_GREY, VERMILION, new_figure, styled
from hkconv.viz.disk import GEODESIC, draw_disk, draw_geodesic, geodesic, in_disk

RINGS, SPOKES = 8, 24
# Without it a third of the picture is kept free for the axes, of which there are none.
ZOOM = 1.7


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from mpl_toolkits.mplot3d import Axes3D

PAPER_SIZES = (5, 10)
TARGET = (0.35, 0.25)
COLUMN_WIDTH, SHEET_HEIGHT = 2.1, 1.75
MARGIN = 0.3


@styled
def kernel_points_figure(
    sizes: Sequence[int] = PAPER_SIZES, *, start: int | None = None, target: tuple[float, float] = TARGET
) -> "Figure":
    r"""Draw the optimal kernel points :math:`\tilde x_k` of L² with the geodesics from one of them to the others.

    Each number of points has two columns: the points, and the same points after the translation
    :math:`T_{o \to y}(\tilde x_k)`. The upper row is the Lorentz sheet, time upwards, the lower one the Poincaré disk.

    Args:
        sizes: the numbers K of points.
        start: the number, from 0, of the point where the geodesics start, drawn as a square; the last by default.
        target: the place :math:`y` in the Poincaré disk that the origin is carried to.

    Returns:
        The figure.
    """
    if not sizes:
        raise InputError("sizes must have at least one number of kernel points")
    found = [kernel_points(K, 2) for K in sizes]
    if start is not None and not 0 <= start < min(sizes):
        raise InputError(f"start must be the number of a kernel point, from 0 to {min(sizes) - 1}, got {start}")
    place = lorentz.from_poincare(torch.tensor(target, dtype=torch.float64))
    columns: list[tuple[str, Tensor]] = []
    for points in found:
        moved = lorentz.translate(lorentz.origin(2, dtype=points.dtype), place, points)
        columns += [(f"K = {len(points)}", points), (f"K = {len(points)}, translated", moved)]
    # The automatic layout would keep places free for the axes of the sheets, which are not drawn.
    figure = new_figure(COLUMN_WIDTH * len(columns), COLUMN_WIDTH + SHEET_HEIGHT, layout=None)
    margins = {"left": 0.01, "right": 0.99, "bottom": 0.01, "top": 0.94, "wspace": 0.08, "hspace": -0.12}
    grid = figure.add_gridspec(2, len(columns), height_ratios=(SHEET_HEIGHT, COLUMN_WIDTH), **margins)
    for number, (title, points) in enumerate(columns):
        sheet = figure.add_subplot(grid[0, number], projection="3d", computed_zorder=False)
        sheet.set_title(title)
        first = len(points) - 1 if start is None else start
        _draw_on_sheet(sheet, points, first)
        _draw_in_disk(figure.add_subplot(grid[1, number]), points, first)
    return figure


def _draw_on_sheet(axes: "Axes3D", points: Tensor, start: int) -> None:
    radius = lorentz.dist(points, lorentz.origin(2, dtype=points.dtype)).max().item()
    draw_sheet(axes, radius + MARGIN)
    _draw_points(axes, on_sheet(points), start)
    for end in _others(points, start):
        draw_sheet_geodesic(axes, points[start], end, color=VERMILION, linewidth=1.1)


def _draw_in_disk(axes: "Axes", points: Tensor, start: int) -> None:
    draw_disk(axes)
    for end in _others(points, start):
        draw_geodesic(axes, points[start], end, color=VERMILION, linewidth=1.1)
    _draw_points(axes, in_disk(points), start)


def _draw_points(axes: "Axes", places: np.ndarray, start: int) -> None:
    look: dict[str, Any] = {
        "linestyle": "none",
        "markeredgecolor": "white",
        "markeredgewidth": 0.5,
        "zorder": 5,
        "clip_on": False,
    }
    axes.plot(*places.T, marker="o", color=BLUE, markersize=5, label="_kernel points", **look)
    axes.plot(*places[start : start + 1].T, marker="s", color=VERMILION, markersize=6, label="_start", **look)


def _others(points: Tensor, start: int) -> list[Tensor]:
    return [point for number, point in enumerate(points) if number != start]


def draw_sheet(axes: "Axes3D", radius: float) -> None:
    """Draw the sheet up to a distance from the origin, as a net of circles and of geodesics through the origin.

    Args:
        axes: empty ones in three dimensions.
        radius: the distance.
    """
    distance, angle = np.meshgrid(np.linspace(0, radius, RINGS + 1), np.linspace(0, 2 * math.pi, SPOKES + 1))
    x, y, time = np.sinh(distance) * np.cos(angle), np.sinh(distance) * np.sin(angle), np.cosh(distance)
    look = {"color": LIGHT_GREY, "edgecolor": GREY, "linewidth": 0.15, "alpha": 0.3, "shade": False}
    axes.plot_surface(x, y, time, rstride=1, cstride=1, clip_on=False, **look)
    # The same scale in all directions, so that far out the sheet rises at 45 degrees.
    axes.set_box_aspect((2 * math.sinh(radius), 2 * math.sinh(radius), math.cosh(radius) - 1), zoom=ZOOM)
    axes.view_init(elev=33, azim=-58)
    axes.set_axis_off()


def draw_sheet_geodesic(axes: "Axes3D", start: Tensor, end: Tensor, **look: Any) -> None:
    """Draw the geodesic between two points of L²; ``look`` is what matplotlib's ``plot`` takes."""
    axes.plot(*on_sheet(geodesic(start, end)).T, label=GEODESIC, clip_on=False, **look)


def on_sheet(points: Tensor) -> np.ndarray:
    """Points of L² as places in the drawing, whose height is time, ``(..., 3) -> (..., 3)``."""
    return points.detach().numpy()[..., [1, 2, 0]]
