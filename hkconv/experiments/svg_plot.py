"""Line plots as SVG text, for pages that need no other file and no plotting library.

Colours are from Okabe and Ito's palette, which people with any common colour blindness can tell apart; markers and
dashes differ too, so that the plot survives a black-and-white printer.
"""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

COLUMNS = 3
PANEL_WIDTH, PANEL_HEIGHT = 260.0, 190.0
LEFT, RIGHT, TOP, BOTTOM = 42.0, 12.0, 26.0, 34.0
LEGEND_HEIGHT = 34.0
TICKS = 5


@dataclass(frozen=True)
class Style:
    """How a series is drawn; ``marker`` is ``"circle"``, ``"square"`` or ``"triangle"``."""

    colour: str
    marker: str
    dashes: str = "none"


@dataclass(frozen=True)
class Point:
    """A mean at ``x``; ``deviation`` may be absent. A point that is not whole gets a hollow marker."""

    x: float
    mean: float
    deviation: float | None = None
    whole: bool = True


@dataclass(frozen=True)
class Series:
    """Points of one name, in the order of x."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Panel:
    """One small plot."""

    title: str
    series: tuple[Series, ...]


# Black, vermilion and blue.
STYLES = (
    Style("#000000", "triangle", "2 3"),
    Style("#D55E00", "square", "7 3"),
    Style("#0072B2", "circle"),
)


@dataclass(frozen=True)
class _Frame:
    """From the values of a panel to places in the drawing."""

    left: float
    top: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]

    @property
    def right(self) -> float:
        return self.left + PANEL_WIDTH - LEFT - RIGHT

    @property
    def bottom(self) -> float:
        return self.top + PANEL_HEIGHT - TOP - BOTTOM

    def x(self, value: float) -> str:
        low, high = self.x_range
        return _places(self.left + (self.right - self.left) * (value - low) / (high - low))

    def y(self, value: float) -> str:
        low, high = self.y_range
        return _places(self.bottom - (self.bottom - self.top) * (value - low) / (high - low))


def draw_panels(description: str, panels: Sequence[Panel], names: Sequence[str], x_label: str, y_label: str) -> str:
    """Small plots side by side with one legend: means as lines, deviations as bands around them.

    Args:
        description: what the drawing shows, for those who cannot see it.
        panels: the plots; a panel without points keeps its place.
        names: names of the series in the order of :data:`STYLES`, at most as many.
        x_label, y_label: what the axes are.

    Returns:
        An ``<svg>`` element.
    """
    styles = dict(zip(names, STYLES, strict=False))
    columns = min(COLUMNS, len(panels))
    width = max(PANEL_WIDTH * columns, LEFT + sum(map(_legend_width, styles)))
    height = LEGEND_HEIGHT + PANEL_HEIGHT * math.ceil(len(panels) / columns)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_places(width)} {_places(height)}" '
        f'width="{_places(width)}" height="{_places(height)}" role="img" font-family="sans-serif" font-size="11">',
        f"<title>{html.escape(description)}</title>",
        f'<rect width="{_places(width)}" height="{_places(height)}" fill="#ffffff"/>',
        *_legend(styles),
    ]
    for index, panel in enumerate(panels):
        row, column = divmod(index, columns)
        parts += _panel(panel, styles, PANEL_WIDTH * column, LEGEND_HEIGHT + PANEL_HEIGHT * row, x_label, y_label)
    return "\n".join([*parts, "</svg>"])


def ticks(low: float, high: float) -> list[float]:
    """Round numbers, about five, that cover ``low`` to ``high``: steps of 1, 2 or 5 times a power of ten."""
    span = high - low if high > low else max(abs(high), 1.0) / 10
    power = 10.0 ** math.floor(math.log10(span / TICKS))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power * TICKS >= span * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 9) for number in range(first, max(last, first + 1) + 1)]


def _panel(panel: Panel, styles: dict[str, Style], left: float, top: float, x_label: str, y_label: str) -> list[str]:
    middle = _places(left + (PANEL_WIDTH + LEFT - RIGHT) / 2)
    title = f'<text x="{middle}" y="{_places(top + 16)}" text-anchor="middle" font-weight="bold">'
    parts = [f"{title}{html.escape(panel.title)}</text>"]
    points = [point for series in panel.series for point in series.points]
    if not points:
        empty = _places(top + PANEL_HEIGHT / 2)
        return [*parts, f'<text x="{middle}" y="{empty}" text-anchor="middle" fill="#555555">no results</text>']
    x_values = sorted({point.x for point in points})
    marks = ticks(min(map(_lowest, points)), max(map(_highest, points)))
    frame = _Frame(left + LEFT, top + TOP, (x_values[0] - 0.5, x_values[-1] + 0.5), (marks[0], marks[-1]))
    parts += _axes(frame, x_values, marks, x_label, y_label)
    parts += [_band(series, styles[series.name], frame) for series in panel.series if _has_band(series)]
    for series in panel.series:
        parts += _line(series, styles[series.name], frame)
    return parts


def _axes(frame: _Frame, x_values: list[float], marks: list[float], x_label: str, y_label: str) -> list[str]:
    left, right = _places(frame.left), _places(frame.right)
    parts = []
    for mark in marks:
        y = frame.y(mark)
        parts.append(f'<line x1="{left}" y1="{y}" x2="{right}" y2="{y}" stroke="#dddddd"/>')
        parts.append(f'<text x="{_places(frame.left - 5)}" y="{y}" dy="4" text-anchor="end">{mark:g}</text>')
    below = _places(frame.bottom + 14)
    parts += [f'<text x="{frame.x(x)}" y="{below}" text-anchor="middle">{x:g}</text>' for x in x_values]
    middle = _places((frame.left + frame.right) / 2)
    parts.append(
        f'<text x="{middle}" y="{_places(frame.bottom + 28)}" text-anchor="middle">{html.escape(x_label)}</text>'
    )
    x, y = _places(frame.left - 31), _places((frame.top + frame.bottom) / 2)
    turned = f'text-anchor="middle" transform="rotate(-90 {x} {y})"'
    parts.append(f'<text x="{x}" y="{y}" {turned}>{html.escape(y_label)}</text>')
    return parts


def _has_band(series: Series) -> bool:
    return sum(point.deviation is not None for point in series.points) > 1


def _band(series: Series, style: Style, frame: _Frame) -> str:
    points = [point for point in series.points if point.deviation is not None]
    upper = [f"{frame.x(point.x)},{frame.y(_highest(point))}" for point in points]
    lower = [f"{frame.x(point.x)},{frame.y(_lowest(point))}" for point in reversed(points)]
    return f'<polygon points="{" ".join(upper + lower)}" fill="{style.colour}" fill-opacity="0.15"/>'


def _line(series: Series, style: Style, frame: _Frame) -> list[str]:
    places = " ".join(f"{frame.x(point.x)},{frame.y(point.mean)}" for point in series.points)
    stroke = f'stroke="{style.colour}" stroke-width="1.8" stroke-dasharray="{style.dashes}"'
    line = f'<polyline points="{places}" fill="none" {stroke}/>'
    marks = [_marker(float(frame.x(p.x)), float(frame.y(p.mean)), style, p.whole) for p in series.points]
    return [line, *marks]


def _marker(x: float, y: float, style: Style, whole: bool) -> str:
    paint = f'fill="{style.colour if whole else "#ffffff"}" stroke="{style.colour}" stroke-width="1.4"'
    if style.marker == "circle":
        return f'<circle cx="{_places(x)}" cy="{_places(y)}" r="3.2" {paint}/>'
    if style.marker == "square":
        return f'<rect x="{_places(x - 3)}" y="{_places(y - 3)}" width="6" height="6" {paint}/>'
    corners = ((x, y - 3.8), (x - 3.6, y + 3), (x + 3.6, y + 3))
    places = " ".join(f"{_places(a)},{_places(b)}" for a, b in corners)
    return f'<polygon points="{places}" {paint}/>'


def _legend(styles: dict[str, Style]) -> list[str]:
    parts, x, y = [], LEFT, LEGEND_HEIGHT / 2
    for name, style in styles.items():
        stroke = f'stroke="{style.colour}" stroke-width="1.8" stroke-dasharray="{style.dashes}"'
        parts.append(f'<line x1="{_places(x)}" y1="{_places(y)}" x2="{_places(x + 34)}" y2="{_places(y)}" {stroke}/>')
        parts.append(_marker(x + 17, y, style, True))
        parts.append(f'<text x="{_places(x + 40)}" y="{_places(y + 4)}">{html.escape(name)}</text>')
        x += _legend_width(name)
    return parts


def _legend_width(name: str) -> float:
    return 60 + 7 * len(name)


def _lowest(point: Point) -> float:
    return point.mean - (point.deviation or 0.0)


def _highest(point: Point) -> float:
    return point.mean + (point.deviation or 0.0)


def _places(value: float) -> str:
    return f"{value:.1f}"
