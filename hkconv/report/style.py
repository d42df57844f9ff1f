"""Style of every figure, and its file: one palette, one set of line styles and markers, one set of sizes.

Colours are Okabe and Ito's, which people with any common colour blindness can tell apart. Whatever differs by colour
differs by line style or marker too, so that a figure survives a black-and-white printer. Matplotlib is optional and
imported when a figure is first drawn.
"""

import functools
import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, ParamSpec

from hkconv.engine.files import write_bytes
from hkconv.errors import InputError

# The fields of each format that would hold the hour.
_DATES = {".svg": "Date", ".pdf": "CreationDate", ".png": None}


if TYPE_CHECKING:
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

BLACK, ORANGE, SKY_BLUE, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
GREY, LIGHT_GREY = "#767676", "#D9D9D9"

# Light to dark in one hue: the order of values is that of greys.
HEAT_MAP = "Blues"

STYLE = {
    # Comes with matplotlib, so that a figure is the same on every machine.
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.linewidth": 0.6,
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LIGHT_GREY,
    "grid.linewidth": 0.5,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": BLACK,
    "ytick.labelcolor": BLACK,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "legend.handlelength": 3,
    "figure.dpi": 100,
    "savefig.dpi": 200,
    # Names inside an SVG are random without it.
    "svg.hashsalt": "hkconv",
}

# About that of sRGB, and the luminance L with (1 + 0.05) / (L + 0.05) = (L + 0.05) / 0.05, both as in WCAG 2.
GAMMA, EQUAL_CONTRAST = 2.2, 0.179

Arguments = ParamSpec("Arguments")


class SeriesStyle(NamedTuple):
    """Look of one of several series."""

    color: str
    linestyle: str | tuple[int, tuple[float, ...]]
    marker: str


_COLORS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY_BLUE, BLACK)
_LINES: tuple[str | tuple[int, tuple[float, ...]], ...] = ("solid", (0, (5, 2)), (0, (5, 1.5, 1, 1.5)), (0, (1, 1.2)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def series(number: int) -> SeriesStyle:
    """The look of series ``number``, from 0; 28 differ, and the first 4 in colour, line and marker at once."""
    return SeriesStyle(_COLORS[number % len(_COLORS)], _LINES[number % len(_LINES)], _MARKERS[number % len(_MARKERS)])


def styled(draw: Callable[Arguments, "Figure"]) -> Callable[Arguments, "Figure"]:
    """Let a function draw its figure in this style, whatever settings of matplotlib the caller has."""

    @functools.wraps(draw)
    def drawn(*args: Arguments.args, **kwargs: Arguments.kwargs) -> "Figure":
        with in_style():
            return draw(*args, **kwargs)

    return drawn


@contextmanager
def in_style() -> Iterator[None]:
    """Matplotlib's defaults with :data:`STYLE`, and the caller's settings again afterwards."""
    try:
        import matplotlib.style
    except ImportError as error:
        raise InputError(f"figures need Matplotlib ({error}): install it with pip install 'hkconv[viz]'") from None
    with matplotlib.style.context(["default", STYLE]):
        yield


def new_figure(width: float, height: float, layout: Literal["constrained"] | None = "constrained") -> "Figure":
    """An empty figure of a size in inches, which no window knows of and nobody need close.

    Args:
        width, height: its size.
        layout: what keeps labels apart; None where the axes' places are given.

    Returns:
        The figure.
    """
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout=layout)


def add_legend(figure: "Figure", looks: Mapping[str, SeriesStyle], title: str | None = None) -> None:
    """Put one legend for all axes above them.

    Args:
        figure: with its axes.
        looks: the look of each name.
        title: of the legend.
    """
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **look._asdict(), label=name) for name, look in looks.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=min(len(handles), 6), title=title)


def text_color(value: float, colors: "Colormap") -> str:
    """Black or white, whichever can be read on a colour; ``value`` from 0 to 1 is its place in ``colors``."""
    red, green, blue = (channel**GAMMA for channel in colors(value)[:3])
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "white" if luminance < EQUAL_CONTRAST else BLACK


def check_target(path: Path) -> Path:
    """Refuse a file that no figure can be written to, before the figure is drawn."""
    if path.suffix not in _DATES:
        raise InputError(f"out must end in {', '.join(_DATES)}, got {path}")
    if not path.parent.is_dir():
        raise InputError(f"out {path} cannot be written: folder {path.parent} does not exist")
    return path


def save_figure(figure: "Figure", path: Path | str) -> Path:
    """Write a figure, whole or not at all.

    Args:
        figure: of any function of :mod:`hkconv.viz`.
        path: ends in ``.svg``, ``.pdf`` or ``.png``; an older file is replaced.

    Returns:
        The path.
    """
    path = check_target(Path(path))
    write_bytes(path, figure_bytes(figure, path.suffix), "out")
    return path


def figure_bytes(figure: "Figure", suffix: str) -> bytes:
    """A figure as the bytes of a file of some suffix, the same for the same figure."""
    date = _DATES[suffix]
    buffer = io.BytesIO()
    with in_style():
        figure.savefig(buffer, format=suffix[1:], metadata={date: None} if date else None)
    return buffer.getvalue()
