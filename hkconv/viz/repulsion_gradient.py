r"""Gradient of the kernel energy's first term, which vanishes as kernel points move away: the appendix's figure."""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.report.style import GREY, new_figure, series, styled
from hkconv.viz.disk import draw_disk, draw_geodesic, in_disk

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER_K = 8
NEAREST, FARTHEST, COUNT = 0.25, 8.0, 125
SHOWN = (0.5, 1.0, 2.0, 3.0)


@styled
def repulsion_gradient_figure(K: int = PAPER_K) -> "Figure":
    r"""Draw the gradient norm of :math:`\sum_{k \ne l} 1/d(\tilde x_k, \tilde x_l)` against distance from the origin.

    K points of L² stand evenly on a circle around the origin, which grows. The paper finds an exponential decrease.
    That holds for the gradient by the coordinates, which is what an optimizer that knows no geometry sees; the
    Riemannian gradient falls only with the square of the distance. Both are drawn.

    Args:
        K: number of points, at least 2.

    Returns:
        The figure.
    """
    if K < 2:
        raise InputError(f"K must be at least 2 for points to repel each other, got {K}")
    figure = new_figure(7.0, 2.9)
    left, right = figure.subplots(1, 2, width_ratios=(2.6, 4.4))
    _draw_points(left, K)
    _draw_norms(right, K)
    return figure


def circle(K: int, distance: float) -> Tensor:
    """``K`` points of L², evenly spaced at one distance from the origin, ``(K, 3)`` in float64."""
    angle = 2 * math.pi * torch.arange(K, dtype=torch.float64) / K
    tangent = distance * torch.stack([torch.zeros_like(angle), angle.cos(), angle.sin()])
    return lorentz.exp0(tangent.T)


def gradient_norms(points: Tensor) -> tuple[float, float]:
    r"""Norms, over all points together, of the two gradients of :math:`\sum_{k \ne l} 1/d(x_k, x_l)`.

    With :math:`d = \cosh^{-1}(-\langle x, y \rangle)` and :math:`J = \mathrm{diag}(-1, 1, 1)`, and each pair counted
    twice as in the energy, for :math:`x_k` these are

    .. math::
        \sum_{l \ne k} \frac{2}{d_{kl}^2 \sinh d_{kl}} J x_l \quad\text{(coordinates)}, \qquad
        \sum_{l \ne k} \frac{2}{d_{kl}^3} \log_{x_k} x_l \quad\text{(Riemannian)}.

    Args:
        points: different points of L², ``(K, 3)``.

    Returns:
        Euclidean norm of the first and Lorentzian norm of the second.
    """
    others = ~torch.eye(len(points), dtype=torch.bool)
    # Written row by row: point k in front, the others behind.
    ends = torch.stack([points[row] for row in others])
    starts = points.unsqueeze(1).expand_as(ends)
    distance = lorentz.dist(starts, ends).unsqueeze(-1)
    flipped = ends * torch.tensor([-1.0, 1.0, 1.0], dtype=points.dtype)
    by_coordinates = (2 / (distance.square() * distance.sinh()) * flipped).sum(1)
    # Tangent vectors far out are long in their coordinates; carried to the origin they keep length and direction.
    riemannian = (2 / distance**3 * lorentz.log0(lorentz.ominus(ends, starts))).sum(1)
    return by_coordinates.norm().item(), riemannian.norm().item()


def _draw_points(axes: "Axes", K: int) -> None:
    draw_disk(axes)
    axes.set_title(f"K = {K} points at four distances", fontweight="normal")
    origin = lorentz.origin(2, dtype=torch.float64)
    for end in circle(K, SHOWN[-1]):
        draw_geodesic(axes, origin, end, color=GREY, linewidth=0.6)
    for number, distance in enumerate(SHOWN):
        look = series(number)
        places = in_disk(circle(K, distance)).T
        axes.plot(*places, look.marker, color=look.color, markersize=4, label=f"{distance:g}", zorder=4)
    axes.legend(title="distance", loc="upper left", bbox_to_anchor=(0.98, 0.75), handlelength=1)


def _draw_norms(axes: "Axes", K: int) -> None:
    distances = torch.linspace(NEAREST, FARTHEST, COUNT, dtype=torch.float64).tolist()
    norms = zip(*(gradient_norms(circle(K, distance)) for distance in distances))
    for number, (name, values) in enumerate(zip(("by the coordinates", "Riemannian"), norms)):
        look = series(number)._asdict()
        axes.semilogy(distances, list(values), **look, markevery=COUNT // 8, label=name)
    axes.set_title("gradient of the repulsion", fontweight="normal")
    axes.set_xlabel("distance from the origin")
    axes.set_ylabel("gradient norm")
    axes.legend()
