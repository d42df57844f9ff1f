"""A square matrix by class, drawn as coloured cells with their numbers."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import numpy as np

from hkconv.viz.style import new_figure, text_colour

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Beyond this many classes numbers would not fit into their cells, and the colours have to do.
MOST_NUMBERED = 16
CELL = 0.42


def matrix_figure(
    colours: np.ndarray,
    texts: Callable[[int, int], str],
    *,
    heat_map: str,
    title: str,
    scale: str,
    across: str,
    limits: tuple[float | None, float | None] = (None, None),
) -> "Figure":
    """Draw a matrix whose rows are true classes.

    Args:
        colours: values that cells are coloured by, ``(C, C)``; NaN leaves a cell white.
        texts: what stands in the cell of a row and a column.
        heat_map: name of matplotlib's colour map.
        title: of the figure.
        scale: what the colours mean.
        across: what the columns are.
        limits: values at the two ends of the colours; by default the lowest and the highest there are.

    Returns:
        The figure.
    """
    import matplotlib

    count = len(colours)
    side = CELL * min(max(count, 5), MOST_NUMBERED)
    figure = new_figure(side + 1.5, side + 0.9)
    axes = figure.subplots()
    image = axes.imshow(colours, cmap=heat_map, vmin=limits[0], vmax=limits[1])
    axes.set_title(title, fontsize=8)
    axes.set_xlabel(across)
    axes.set_ylabel("true class")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    if count <= MOST_NUMBERED:
        axes.set_xticks(range(count))
        axes.set_yticks(range(count))
        for row, column in np.ndindex(colours.shape):
            value = colours[row, column]
            shade = (
                "black"
                if math.isnan(value)
                else text_colour(cast(float, image.norm(value)), matplotlib.colormaps[heat_map])
            )
            axes.text(column, row, texts(row, column), color=shade, ha="center", va="center", fontsize=7)
    bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.03)
    bar.set_label(scale)
    bar.outline.set_visible(False)
    return figure
