"""Steps of HKConv on a neighborhood: the paper's illustration, drawn from a real layer of L²."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.nn import HKConv, HLinear
from hkconv.nn.hk_conv import KernelConv
from hkconv.report.style import BLACK, GREY, new_figure, series, styled
from hkconv.viz.disk import draw_disk, draw_geodesic, in_disk

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 11.0, 2.5
CENTER = (0.35, 0.25)
FIRST_ANGLE = 0.3
THINNEST, THICKEST = 0.4, 3.2
# How far from a point, in the disk, its name stands, and how many sides are tried.
NAME_REACH, SIDES = 0.16, 16
# In points: markers, and what is left between one and its name.
MARKER_SIZE, STAR_SIZE, NAME_GAP = 5.5, 11.0, 3.25

Drawn = TypeVar("Drawn")


@dataclass(frozen=True)
class Steps:
    r"""One neighbourhood on its way through HKConv; N neighbours, K kernel points, all points of L².

    Args:
        center: :math:`x`, ``(3,)``.
        neighbors: :math:`x_i`, ``(N, 3)``.
        relative: :math:`x_i \ominus x`, ``(N, 3)``.
        kernel: the kernel points :math:`\tilde x_k`, ``(K, 3)``.
        correlation: :math:`d(x_i \ominus x, \tilde x_k)`, ``(N, K)``.
        transformed: :math:`x_{ik} = \mathrm{HLinear}_k(x_i \ominus x)`, ``(N, K, 3)``.
        messages: :math:`x_i' = \mathrm{HCent}(\{x_{ik}\}_k, \{d(x_i \ominus x, \tilde x_k)\}_k)`, ``(N, 3)``.
        output: :math:`x' = \mathrm{HCent}(\{x_i'\}_i)`, ``(3,)``.
    """

    center: Tensor
    neighbors: Tensor
    relative: Tensor
    kernel: Tensor
    correlation: Tensor
    transformed: Tensor
    messages: Tensor
    output: Tensor


@styled
def convolution_figure(kernel_size: int = 4, neighbors: int = 3, *, seed: int = 0) -> "Figure":
    r"""Draw the five steps of HKConv on a small neighbourhood, in the Poincaré disk.

    (a) :math:`x`, a diamond, and its neighbours, dots. (b) All moved to the origin. (c) The kernel points, triangles,
    and the geodesics to them, whose lengths are the correlations. (d) The outputs of the K linear maps, squares, and
    their centroids; the thicker a geodesic, the larger the weight. (e) The centroid of those is the output, a star.

    Args:
        kernel_size: number K of kernel points.
        neighbors: number of neighbours of :math:`x`.
        seed: of the layer's linear maps.

    Returns:
        The figure.
    """
    panels = {
        "(a) neighbourhood": _draw_neighborhood,
        "(b) translation to the origin": _draw_relative,
        "(c) correlation with the kernel": _draw_correlation,
        "(d) linear maps and centroids": _draw_messages,
        "(e) aggregation": _draw_output,
    }
    return draw_panels(panels, take_steps(*_example(kernel_size, neighbors, seed)))


def take_steps(layer: KernelConv, center: Tensor, neighbors: Tensor) -> Steps:
    """Every step of a plain layer, without attention, root and mass, on one neighbourhood.

    Args:
        layer: from L² to L².
        center, neighbors: the neighbourhood, ``(3,)`` and ``(N, 3)``.

    Returns:
        The steps; the last is what ``layer`` itself gives.
    """
    with torch.no_grad():
        relative = lorentz.ominus(neighbors, center)
        correlation = lorentz.dist(relative.unsqueeze(1), layer.points)
        transformed = layer.linear(relative)
        messages = lorentz.centroid(transformed, correlation)
        output = lorentz.centroid(messages)
    return Steps(center, neighbors, relative, layer.points, correlation, transformed, messages, output)


def _example(kernel_size: int, count: int, seed: int) -> tuple[HKConv, Tensor, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = HKConv(2, 2, kernel_size, backend="reference").double()
        spread_maps_(layer.linear)
    return layer, *example_neighborhood(count)


def spread_maps_(linear: HLinear) -> None:
    """Make maps of L² the identity with noise: those of a fresh layer would put all messages into one place."""
    with torch.no_grad():
        linear.weight.normal_(std=0.5)
        linear.weight[..., 1:] += torch.eye(2, dtype=linear.weight.dtype)
        linear.gate_weight.normal_()


def example_neighborhood(count: int) -> tuple[Tensor, Tensor]:
    """A node with ``count`` neighbours all around it, nearer and farther ones, ``(3,)`` and ``(count, 3)``."""
    if count < 1:
        raise InputError(f"neighbours must be at least 1, got {count}")
    center = lorentz.from_poincare(torch.tensor(CENTER, dtype=torch.float64))
    number = torch.arange(count, dtype=torch.float64)
    angle, distance = FIRST_ANGLE + 2 * math.pi * number / count, 1 + 0.3 * (number % 3)
    tangent = distance * torch.stack([torch.zeros_like(angle), angle.cos(), angle.sin()])
    around_origin = lorentz.exp0(tangent.T)
    return center, lorentz.translate(lorentz.origin(2, dtype=torch.float64), center, around_origin)


def draw_panels(panels: Mapping[str, Callable[["Axes", Drawn], None]], drawn: Drawn) -> "Figure":
    """A row of Poincaré disks: each function of ``panels`` draws its part of ``drawn`` below its title."""
    figure = new_figure(WIDTH, HEIGHT)
    for axes, (title, draw) in zip(figure.subplots(1, len(panels)), panels.items()):
        draw_disk(axes)
        axes.set_title(title, fontweight="normal")
        draw(axes, drawn)
    return figure


def draw_neighborhood(axes: "Axes", center: Tensor, others: Tensor, name: str, other_names: str) -> None:
    """A node, a diamond, the points around it, dots of their own colours, and their names as in :func:`name_points`."""
    for number, other in enumerate(others):
        draw_geodesic(axes, center, other, color=GREY, linewidth=0.8)
        mark(axes, other, "o", series(number).color)
    mark(axes, center, "D", BLACK)
    name_points(axes, others, other_names)
    name_points(axes, [center], name)


def _draw_neighborhood(axes: "Axes", steps: Steps) -> None:
    draw_neighborhood(axes, steps.center, steps.neighbors, "$x$", "$x_{{{}}}$")


def _draw_relative(axes: "Axes", steps: Steps) -> None:
    origin = lorentz.origin(2, dtype=steps.center.dtype)
    draw_neighborhood(axes, origin, steps.relative, "$o$", r"$x_{{{}}}\ominus x$")


def _draw_correlation(axes: "Axes", steps: Steps) -> None:
    for number, relative in enumerate(steps.relative):
        look = series(number)
        for point in steps.kernel:
            draw_geodesic(axes, relative, point, color=look.color, linestyle=look.linestyle, linewidth=0.9)
        mark(axes, relative, "o", look.color)
    for point in steps.kernel:
        mark(axes, point, "v", BLACK)
    name_points(axes, steps.kernel, r"$\tilde x_{{{}}}$")


def _draw_messages(axes: "Axes", steps: Steps) -> None:
    largest = steps.correlation.max()
    for number, message in enumerate(steps.messages):
        color = series(number).color
        for point, weight in zip(steps.transformed[number], steps.correlation[number]):
            draw_weighted(axes, point, message, color, (weight / largest).item())
            mark(axes, point, "s", color)
        mark(axes, message, "o", color, hollow=True)
    name_points(axes, steps.messages, "$x_{{{}}}'$")


def _draw_output(axes: "Axes", steps: Steps) -> None:
    for number, message in enumerate(steps.messages):
        draw_geodesic(axes, message, steps.output, color=GREY, linewidth=0.8)
        mark(axes, message, "o", series(number).color, hollow=True)
    mark(axes, steps.output, "*", BLACK, size=STAR_SIZE)
    name_points(axes, steps.messages, "$x_{{{}}}'$")
    name_points(axes, [steps.output], "$x'$")


def draw_weighted(axes: "Axes", point: Tensor, centroid: Tensor, color: str, share: float) -> None:
    """A geodesic from a point to a centroid, the thicker the larger its weight, a share of the largest, from 0 to 1."""
    width = THINNEST + (THICKEST - THINNEST) * share
    draw_geodesic(axes, point, centroid, color=color, linewidth=width, alpha=0.75, solid_capstyle="butt")


def mark(
    axes: "Axes", point: Tensor, marker: str, color: str, *, hollow: bool = False, size: float = MARKER_SIZE
) -> None:
    """Draw a point of L²; its artist has the label ``_`` and the marker."""
    face, edge, width = ("white", color, 1.4) if hollow else (color, "white", 0.5)
    look: dict[str, Any] = {"color": face, "markeredgecolor": edge, "markeredgewidth": width, "markersize": size}
    axes.plot(*in_disk(point), marker, **look, label=f"_{marker}", zorder=4)


def name_points(axes: "Axes", points: Iterable[Tensor], name: str, *, size: float = MARKER_SIZE) -> None:
    """Write names beside points, each on the side where most room is left between what is drawn so far.

    Args:
        axes: with everything but the names.
        points: of L².
        name: a template for the number of a point, from 1.
        size: of the markers.
    """
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=2, foreground="white")]
    distance = size / 2 + NAME_GAP
    angles = 2 * np.pi * np.arange(SIDES) / SIDES
    sides = np.column_stack([np.cos(angles), np.sin(angles)])
    drawn = np.concatenate([line.get_xydata() for line in axes.lines])
    for number, point in enumerate(points, start=1):
        places = in_disk(point) + NAME_REACH * sides
        room = np.linalg.norm(places[:, None] - drawn, axis=-1).min(1)
        x, y = sides[room.argmax()]
        alignment: dict[str, Any] = {
            "horizontalalignment": "left" if x > 0.4 else "right" if x < -0.4 else "center",
            "verticalalignment": "bottom" if y > 0.4 else "top" if y < -0.4 else "center",
        }
        offset: dict[str, Any] = {"xytext": (distance * x, distance * y), "textcoords": "offset points"}
        place = cast(tuple[float, float], in_disk(point))
        axes.annotate(name.format(number), place, **offset, path_effects=halo, zorder=5, **alignment)
        drawn = np.concatenate([drawn, places[room.argmax()][None]])
