"""The three views that HKBlock has of a neighbourhood, and how the node mixes them: drawn from a real block of L²."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hkconv.nn import HKBlock
from hkconv.ops.reference import kernel_centroid
from hkconv.report.style import BLACK, GREY, ORANGE, PURPLE, SKY_BLUE, series, styled
from hkconv.viz.convolution import (
    STAR_SIZE,
    Steps,
    draw_neighborhood,
    draw_panels,
    draw_weighted,
    example_neighborhood,
    mark,
    name_points,
    spread_maps_,
    take_steps,
)
from hkconv.viz.disk import draw_geodesic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# In the order of HKBlock's views: the name of each, its marker and its colour, which no first neighbours have.
LOOKS = (("$d_i$", "P", PURPLE), ("$a_i$", "X", ORANGE), ("$s_i$", "p", SKY_BLUE))
# Markers in points: of a view in its own panel, and in the mix of one whose weight is 1, by its area.
VIEW_SIZE, WHOLE_SIZE = 9.0, 16.0
# Of a block whose points all lie well apart.
SEED = 13968


@dataclass(frozen=True)
class Views:
    r"""One node on its way through HKBlock; N neighbours, all points of L².

    Args:
        differences: the steps of the block's HKConv, with the node and its neighbours; the last is :math:`d_i`.
        mapped: :math:`\mathrm{HLinear}_a(x_j)`, ``(N, 3)``.
        views: :math:`d_i, a_i, s_i`, ``(3, 3)``.
        gates: their weights :math:`g_i`, ``(3,)``.
        mix: :math:`m_i`, ``(3,)``.
        output: :math:`x_i'`, ``(3,)``.
    """

    differences: Steps
    mapped: Tensor
    views: Tensor
    gates: Tensor
    mix: Tensor
    output: Tensor


@styled
def views_figure(kernel_size: int = 4, neighbors: int = 3, *, seed: int = SEED) -> "Figure":
    r"""Draw the three views of HKBlock on a small neighbourhood and their mix, in the Poincaré disk.

    (a) :math:`x_i`, a diamond, and its neighbours, dots. (b) The neighbours moved with :math:`x_i` to the origin, the
    kernel points, triangles, and the messages of HKConv, circles; their centroid is :math:`d_i`, a plus. (c) The
    mapped neighbours, squares, and their centroid :math:`a_i`, a cross. (d) The mapped node :math:`s_i`, a pentagon.
    (e) The three views with their weights; the thicker a geodesic and the larger a marker, the larger the weight. The
    centroid :math:`m_i` is a circle, :math:`x_i'` after the norm and the activation a star.

    Args:
        kernel_size: number K of kernel points.
        neighbors: number of neighbours of :math:`x_i`.
        seed: of the block's maps and gates.

    Returns:
        The figure.
    """
    panels = {
        "(a) neighbourhood": _draw_neighborhood,
        "(b) differences": _draw_differences,
        "(c) neighbours": _draw_neighbors,
        "(d) node": _draw_node,
        "(e) mix by the node": _draw_mix,
    }
    return draw_panels(panels, take_views(*_example(kernel_size, neighbors, seed)))


def take_views(block: HKBlock, center: Tensor, neighbors: Tensor) -> Views:
    """Views that a block in evaluation takes of one neighborhood.

    Args:
        block: from L² to L², its convolution without mass.
        center, neighbors: the neighbourhood, ``(3,)`` and ``(N, 3)``.

    Returns:
        The views; the output is what ``block`` itself gives.
    """
    node = center.unsqueeze(0)
    edges = torch.stack([torch.arange(len(neighbors)), torch.zeros(len(neighbors), dtype=torch.long)])
    with torch.no_grad():
        mapped = block.linear(neighbors)[:, 0]
        views = block.views(neighbors, node, edges)
        gates = block.gates(views)
        mix = kernel_centroid(views, gates, block.curvature)
        output = block((neighbors, node), edges)
    return Views(take_steps(block.conv, center, neighbors), mapped, views[0], gates[0], mix[0], output[0])


def _example(kernel_size: int, count: int, seed: int) -> tuple[HKBlock, Tensor, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        block = HKBlock(2, 2, kernel_size, backend="reference").double().eval()
        spread_maps_(block.conv.linear)
        spread_maps_(block.linear)
        # A fresh block weighs all views alike.
        torch.nn.init.normal_(block.gate_weight)
        torch.nn.init.normal_(block.gate_mix, std=0.5)
    return block, *example_neighborhood(count)


def _draw_neighborhood(axes: "Axes", drawn: Views) -> None:
    draw_neighborhood(axes, drawn.differences.center, drawn.differences.neighbors, "$x_i$", "$x_{{{}}}$")


def _draw_differences(axes: "Axes", drawn: Views) -> None:
    steps, view = drawn.differences, drawn.views[0]
    for point in steps.kernel:
        mark(axes, point, "v", BLACK)
    for number, (relative, message) in enumerate(zip(steps.relative, steps.messages)):
        color = series(number).color
        draw_geodesic(axes, relative, message, color=color, linestyle=":", linewidth=1)
        draw_geodesic(axes, message, view, color=GREY, linewidth=0.8)
        mark(axes, relative, "o", color)
        mark(axes, message, "o", color, hollow=True)
    _mark_view(axes, drawn, 0)
    name_points(axes, [view], "$d_i$", size=VIEW_SIZE)
    name_points(axes, steps.kernel, r"$\tilde x_{{{}}}$")
    name_points(axes, steps.relative, r"$x_{{{}}}\ominus x_i$")


def _draw_neighbors(axes: "Axes", drawn: Views) -> None:
    for number, (neighbor, mapped) in enumerate(zip(drawn.differences.neighbors, drawn.mapped)):
        color = series(number).color
        draw_geodesic(axes, neighbor, mapped, color=color, linestyle=":", linewidth=1)
        draw_geodesic(axes, mapped, drawn.views[1], color=GREY, linewidth=0.8)
        mark(axes, neighbor, "o", color)
        mark(axes, mapped, "s", color)
    _mark_view(axes, drawn, 1)
    name_points(axes, drawn.differences.neighbors, "$x_{{{}}}$")
    name_points(axes, [drawn.views[1]], "$a_i$", size=VIEW_SIZE)


def _draw_node(axes: "Axes", drawn: Views) -> None:
    center = drawn.differences.center
    draw_geodesic(axes, center, drawn.views[2], color=BLACK, linestyle=":", linewidth=1)
    mark(axes, center, "D", BLACK)
    _mark_view(axes, drawn, 2)
    name_points(axes, [center], "$x_i$")
    name_points(axes, [drawn.views[2]], "$s_i$", size=VIEW_SIZE)


def _draw_mix(axes: "Axes", drawn: Views) -> None:
    largest, sizes = drawn.gates.max(), WHOLE_SIZE * drawn.gates.sqrt()
    draw_geodesic(axes, drawn.mix, drawn.output, color=BLACK, linestyle=":", linewidth=1)
    for number, (view, gate) in enumerate(zip(drawn.views, drawn.gates)):
        draw_weighted(axes, view, drawn.mix, LOOKS[number][2], (gate / largest).item())
        _mark_view(axes, drawn, number, sizes[number].item())
    mark(axes, drawn.mix, "o", BLACK, hollow=True)
    mark(axes, drawn.output, "*", BLACK, size=STAR_SIZE)
    name_points(axes, [drawn.mix], "$m_i$")
    name_points(axes, [drawn.output], "$x_i'$", size=STAR_SIZE)
    for number, (view, gate) in enumerate(zip(drawn.views, drawn.gates)):
        name_points(axes, [view], f"{LOOKS[number][0]} {gate.item():.2f}", size=sizes[number].item())


def _mark_view(axes: "Axes", drawn: Views, number: int, size: float = VIEW_SIZE) -> None:
    _, marker, color = LOOKS[number]
    mark(axes, drawn.views[number], marker, color, size=size)
