"""The Poincaré disk as a place to draw in: its edge, points and geodesics of L²."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hkconv.geometry import lorentz
from hkconv.report.style import GREY, LIGHT_GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GEODESIC = "_geodesic"


def geodesic(start: Tensor, end: Tensor, count: int = 65) -> Tensor:
    r"""Points on the geodesic :math:`\gamma(t) = \exp_x(t \log_x y)`, evenly spaced from ``start`` to ``end``.

    Shapes: ``(n+1,), (n+1,) -> (count, n+1)``.
    """
    share = torch.linspace(0, 1, count, dtype=start.dtype).unsqueeze(-1)
    return lorentz.exp(start, share * lorentz.log(start, end))


def draw_disk(axes: "Axes") -> None:
    """Make empty axes a Poincaré disk: its edge and its centre, no frame, no numbers."""
    from matplotlib.patches import Circle

    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.set_xlim(-1.04, 1.04)
    axes.set_ylim(-1.04, 1.04)
    axes.add_patch(Circle((0, 0), 1, facecolor="white", edgecolor=GREY, linewidth=0.9, zorder=0))
    axes.plot(0, 0, "+", color=LIGHT_GREY, markersize=7, label="_origin", zorder=1)


def draw_geodesic(axes: "Axes", start: Tensor, end: Tensor, **look: Any) -> None:
    """Draw the geodesic between two points of L²; ``look`` is what matplotlib's ``plot`` takes."""
    axes.plot(*in_disk(geodesic(start, end)).T, label=GEODESIC, zorder=2, **look)


def in_disk(points: Tensor) -> np.ndarray:
    """Points of L² as places in the disk, ``(..., 3) -> (..., 2)``."""
    return lorentz.to_poincare(points).detach().numpy()
