"""The Lorentz sheet as a place to draw in: the hyperboloid of L² in three dimensions."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from hkconv.viz.disk import GEODESIC, geodesic
from hkconv.viz.style import GREY, LIGHT_GREY

if TYPE_CHECKING:
    from mpl_toolkits.mplot3d import Axes3D

RINGS, SPOKES = 8, 24
# Without it a third of the picture is kept free for the axes, of which there are none.
ZOOM = 1.7


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
