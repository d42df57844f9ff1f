import itertools
import math
import re
from xml.etree import ElementTree

import pytest

from hkconv.experiments.svg_plot import STYLES, Panel, Point, Series, draw_panels, ticks

SVG = "{http://www.w3.org/2000/svg}"
NAMES = ("paper", "published", "clean")


def elements(drawing, tag, **attributes):
    found = ElementTree.fromstring(drawing).iter(SVG + tag)
    return [entry for entry in found if all(entry.get(name.replace("_", "-")) == v for name, v in attributes.items())]


def places(element):
    return [tuple(map(float, pair.split(","))) for pair in element.get("points").split()]


@pytest.mark.parametrize(
    "low, high", [(0.0, 1.0), (61.3, 88.9), (-0.02, 0.031), (70.0, 70.0), (0.0, 0.0), (99.1, 100.0)]
)
def test_ticks_are_round_few_and_cover_the_values(low, high):
    found = ticks(low, high)
    assert found[0] <= low and high <= found[-1]
    assert 2 <= len(found) <= 8
    steps = {round(b - a, 8) for a, b in itertools.pairwise(found)}
    (step,) = steps
    assert round(step / 10 ** math.floor(math.log10(step) + 1e-9), 6) in (1, 2, 5)


def test_a_line_and_its_band_lie_where_the_axes_say():
    points = (Point(2, 60.0, 5.0), Point(3, 70.0, 10.0), Point(5, 80.0, 0.0))
    drawing = draw_panels("scores", [Panel("texas", (Series("clean", points),))], NAMES, "K", "%")
    marks = {float(e.text): float(e.get("y")) for e in elements(drawing, "text", text_anchor="end")}
    zero, unit = marks[60.0], (marks[80.0] - marks[60.0]) / 20
    below = [e for e in elements(drawing, "text", text_anchor="middle") if re.fullmatch(r"\d", e.text)]
    columns = {int(e.text): float(e.get("x")) for e in below}
    (line,) = elements(drawing, "polyline")
    expected = [(columns[point.x], zero + unit * (point.mean - 60)) for point in points]
    assert places(line) == [pytest.approx(pair, abs=0.15) for pair in expected]
    (band,) = [e for e in elements(drawing, "polygon") if e.get("fill-opacity")]
    upper = [(columns[point.x], zero + unit * (point.mean + point.deviation - 60)) for point in points]
    lower = [(columns[point.x], zero + unit * (point.mean - point.deviation - 60)) for point in points]
    assert places(band) == [pytest.approx(pair, abs=0.15) for pair in upper + lower[::-1]]


def test_series_differ_in_colour_marker_and_dashes():
    assert len({style.colour for style in STYLES}) == len(STYLES)
    assert len({style.marker for style in STYLES}) == len(STYLES)
    assert len({style.dashes for style in STYLES}) == len(STYLES)
    series = tuple(Series(name, (Point(2, 1.0), Point(3, 2.0))) for name in NAMES)
    lines = elements(draw_panels("scores", [Panel("a", series)], NAMES, "K", "%"), "polyline")
    assert [line.get("stroke") for line in lines] == [style.colour for style in STYLES]


def test_an_incomplete_point_is_hollow_and_a_lone_one_has_no_band():
    series = Series("clean", (Point(2, 1.0, 0.5), Point(3, 2.0, whole=False)))
    drawing = draw_panels("scores", [Panel("a", (series,))], NAMES, "K", "%")
    circles = [entry.get("fill") for entry in elements(drawing, "circle")]
    # The first is the legend's.
    assert circles == ["#0072B2", "#0072B2", "#ffffff"]
    assert not [e for e in elements(drawing, "polygon") if e.get("fill-opacity")]


def test_nothing_leaves_the_drawing_and_texts_are_escaped():
    series = Series("clean", (Point(2, 10.0, 3.0), Point(9, -4.0, 2.0)))
    panels = [Panel(f"<{number}>", (series,)) for number in range(4)] + [Panel("empty", ())]
    drawing = draw_panels("a & b", panels, NAMES, "K", "%")
    width, height = map(float, ElementTree.fromstring(drawing).get("viewBox").split()[2:])
    for line in [*elements(drawing, "polyline"), *elements(drawing, "polygon")]:
        assert all(0 <= x <= width and 0 <= y <= height for x, y in places(line))
    lone = draw_panels("scores", [Panel("a", (series,))], NAMES, "K", "%")
    legend = [entry for entry in elements(lone, "text") if entry.text in NAMES]
    assert len(legend) == 3
    width = float(ElementTree.fromstring(lone).get("viewBox").split()[2])
    assert all(float(entry.get("x")) + 7 * len(entry.text) < width for entry in legend)
    texts = [entry.text for entry in elements(drawing, "text")]
    assert "<3>" in texts and "no results" in texts
    assert elements(drawing, "title")[0].text == "a & b"
