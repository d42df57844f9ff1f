"""What HKConv does to a neighbourhood, step by step: the paper's illustration, drawn from a real layer of L²."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.nn import HKConv
from hkconv.viz.disk import draw_disk, draw_geodesic, in_disk
from hkconv.viz.style import BLACK, GREY, new_figure, series, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 11.0, 2.5
CENTRE = (0.35, 0.25)
FIRST_ANGLE = 0.3
THINNEST, THICKEST = 0.4, 3.2
# How far from a point, in the disk, its name stands, and how many sides are tried.
NAME_REACH, SIDES = 0.16, 16


@dataclass(frozen=True)
class Steps:
    r"""One neighbourhood on its way through HKConv; N neighbours, K kernel points, all points of L².

    Args:
        centre: :math:`x`, ``(3,)``.
        neighbours: :math:`x_i`, ``(N, 3)``.
        relative: :math:`x_i \ominus x`, ``(N, 3)``.
        kernel: the kernel points :math:`\tilde x_k`, ``(K, 3)``.
        correlation: :math:`d(x_i \ominus x, \tilde x_k)`, ``(N, K)``.
        transformed: :math:`x_{ik} = \mathrm{HLinear}_k(x_i \ominus x)`, ``(N, K, 3)``.
        messages: :math:`x_i' = \mathrm{HCent}(\{x_{ik}\}_k, \{d(x_i \ominus x, \tilde x_k)\}_k)`, ``(N, 3)``.
        output: :math:`x' = \mathrm{HCent}(\{x_i'\}_i)`, ``(3,)``.
    """

    centre: Tensor
    neighbours: Tensor
    relative: Tensor
    kernel: Tensor
    correlation: Tensor
    transformed: Tensor
    messages: Tensor
    output: Tensor


@styled
def convolution_figure(kernel_size: int = 4, neighbours: int = 3, *, seed: int = 0) -> "Figure":
    r"""Draw the five steps of HKConv on a small neighbourhood, in the Poincaré disk.

    (a) :math:`x`, a diamond, and its neighbours, dots. (b) All moved to the origin. (c) The kernel points, triangles,
    and the geodesics to them, whose lengths are the correlations. (d) The outputs of the K linear maps, squares, and
    their centroids; the thicker a geodesic, the larger the weight. (e) The centroid of those is the output, a star.

    Args:
        kernel_size: number K of kernel points.
        neighbours: number of neighbours of :math:`x`.
        seed: of the layer's linear maps.

    Returns:
        The figure.
    """
    if neighbours < 1:
        raise InputError(f"neighbours must be at least 1, got {neighbours}")
    steps = take_steps(*_example(kernel_size, neighbours, seed))
    figure = new_figure(WIDTH, HEIGHT)
    panels = {
        "(a) neighbourhood": _draw_neighbourhood,
        "(b) translation to the origin": _draw_relative,
        "(c) correlation with the kernel": _draw_correlation,
        "(d) linear maps and centroids": _draw_messages,
        "(e) aggregation": _draw_output,
    }
    for axes, (title, draw) in zip(figure.subplots(1, len(panels)), panels.items()):
        draw_disk(axes)
        axes.set_title(title, fontweight="normal")
        draw(axes, steps)
    return figure


def take_steps(layer: HKConv, centre: Tensor, neighbours: Tensor) -> Steps:
    """Every step of a plain layer, without attention, root and mass, on one neighbourhood.

    Args:
        layer: from L² to L².
        centre, neighbours: the neighbourhood, ``(3,)`` and ``(N, 3)``.

    Returns:
        The steps; the last is what ``layer`` itself gives.
    """
    with torch.no_grad():
        relative = lorentz.ominus(neighbours, centre)
        correlation = lorentz.dist(relative.unsqueeze(1), layer.points)
        transformed = layer.linear(relative)
        messages = lorentz.centroid(transformed, correlation)
        output = lorentz.centroid(messages)
    return Steps(centre, neighbours, relative, layer.points, correlation, transformed, messages, output)


def _example(kernel_size: int, count: int, seed: int) -> tuple[HKConv, Tensor, Tensor]:
    """A layer, and a node with neighbours all around it, nearer and farther ones.

    The maps are the identity with noise: those of a fresh layer would put all messages into one place.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = HKConv(2, 2, kernel_size, backend="reference").double()
        linear = layer.linear
        with torch.no_grad():
            linear.weight.normal_(std=0.5)
            linear.weight[..., 1:] += torch.eye(2, dtype=torch.float64)
            linear.gate_weight.normal_()
    centre = lorentz.from_poincare(torch.tensor(CENTRE, dtype=torch.float64))
    number = torch.arange(count, dtype=torch.float64)
    angle, distance = FIRST_ANGLE + 2 * math.pi * number / count, 1 + 0.3 * (number % 3)
    tangent = distance * torch.stack([torch.zeros_like(angle), angle.cos(), angle.sin()])
    around_origin = lorentz.exp0(tangent.T)
    return layer, centre, lorentz.translate(lorentz.origin(2, dtype=torch.float64), centre, around_origin)


def _draw_neighbourhood(axes: "Axes", steps: Steps) -> None:
    for number, neighbour in enumerate(steps.neighbours):
        draw_geodesic(axes, steps.centre, neighbour, color=GREY, linewidth=0.8)
        _mark(axes, neighbour, "o", series(number).color)
    _mark(axes, steps.centre, "D", BLACK)
    _name(axes, steps.neighbours, "$x_{{{}}}$")
    _name(axes, [steps.centre], "$x$")


def _draw_relative(axes: "Axes", steps: Steps) -> None:
    origin = lorentz.origin(2, dtype=steps.centre.dtype)
    for number, relative in enumerate(steps.relative):
        draw_geodesic(axes, origin, relative, color=GREY, linewidth=0.8)
        _mark(axes, relative, "o", series(number).color)
    _mark(axes, origin, "D", BLACK)
    _name(axes, steps.relative, r"$x_{{{}}}\ominus x$")
    _name(axes, [origin], "$o$")


def _draw_correlation(axes: "Axes", steps: Steps) -> None:
    for number, relative in enumerate(steps.relative):
        look = series(number)
        for point in steps.kernel:
            draw_geodesic(axes, relative, point, color=look.color, linestyle=look.linestyle, linewidth=0.9)
        _mark(axes, relative, "o", look.color)
    for point in steps.kernel:
        _mark(axes, point, "v", BLACK)
    _name(axes, steps.kernel, r"$\tilde x_{{{}}}$")


def _draw_messages(axes: "Axes", steps: Steps) -> None:
    largest = steps.correlation.max()
    for number, message in enumerate(steps.messages):
        colour = series(number).color
        for point, weight in zip(steps.transformed[number], steps.correlation[number]):
            width = THINNEST + (THICKEST - THINNEST) * (weight / largest).item()
            draw_geodesic(axes, point, message, color=colour, linewidth=width, alpha=0.75, solid_capstyle="butt")
            _mark(axes, point, "s", colour)
        _mark(axes, message, "o", colour, hollow=True)
    _name(axes, steps.messages, "$x_{{{}}}'$")


def _draw_output(axes: "Axes", steps: Steps) -> None:
    for number, message in enumerate(steps.messages):
        draw_geodesic(axes, message, steps.output, color=GREY, linewidth=0.8)
        _mark(axes, message, "o", series(number).color, hollow=True)
    _mark(axes, steps.output, "*", BLACK, size=11)
    _name(axes, steps.messages, "$x_{{{}}}'$")
    _name(axes, [steps.output], "$x'$")


def _mark(axes: "Axes", point: Tensor, marker: str, colour: str, *, hollow: bool = False, size: float = 5.5) -> None:
    face, edge, width = ("white", colour, 1.4) if hollow else (colour, "white", 0.5)
    look: dict[str, Any] = {"color": face, "markeredgecolor": edge, "markeredgewidth": width, "markersize": size}
    axes.plot(*in_disk(point), marker, **look, label=f"_{marker}", zorder=4)


def _name(axes: "Axes", points: Iterable[Tensor], name: str) -> None:
    """Write names beside points, each on the side where most room is left between what is drawn so far.

    Args:
        axes: with everything but the names.
        points: of L².
        name: a template for the number of a point, from 1.
    """
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=2, foreground="white")]
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
        offset: dict[str, Any] = {"xytext": (6 * x, 6 * y), "textcoords": "offset points"}
        place = cast(tuple[float, float], in_disk(point))
        axes.annotate(name.format(number), place, **offset, path_effects=halo, zorder=5, **alignment)
        drawn = np.concatenate([drawn, places[room.argmax()][None]])
