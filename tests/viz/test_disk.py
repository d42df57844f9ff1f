import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from viz_artists import place

from hkconv.geometry import lorentz
from hkconv.viz.disk import GEODESIC, draw_disk, draw_geodesic, geodesic, in_disk


def points(*places):
    return lorentz.from_poincare(torch.tensor(places, dtype=torch.float64))


def test_a_geodesic_is_the_shortest_way_in_even_steps():
    start, end = points((0.5, -0.3), (-0.2, 0.8))
    way = geodesic(start, end, 9)
    torch.testing.assert_close(way[[0, -1]], torch.stack([start, end]))
    steps = lorentz.dist(way[:-1], way[1:])
    torch.testing.assert_close(steps.sum(), lorentz.dist(start, end))
    torch.testing.assert_close(steps, steps.mean().expand(8))


def circle_through(first, second, third):
    """Centre and radius, from |p|² - 2 c·p + (|c|² - r²) = 0."""
    rows = np.array([[*(-2 * p), 1.0] for p in (first, second, third)])
    x, y, rest = np.linalg.solve(rows, [-p @ p for p in (first, second, third)])
    return np.array([x, y]), np.sqrt(x * x + y * y - rest)


def test_a_drawn_geodesic_is_an_arc_orthogonal_to_the_edge():
    axes = Figure().subplots()
    start, end = points((0.5, -0.3), (-0.2, 0.8))
    draw_geodesic(axes, start, end)
    arc = place(axes, GEODESIC)
    center, radius = circle_through(arc[0], arc[30], arc[-1])
    assert np.linalg.norm(arc - center, axis=1) == pytest.approx(radius)
    # Two circles cross at a right angle where the squares of their radii add up to that of their distance.
    assert center @ center == pytest.approx(1 + radius**2)
    assert arc[[0, -1]] == pytest.approx(np.array([[0.5, -0.3], [-0.2, 0.8]]))


def test_a_geodesic_through_the_origin_is_straight():
    axes = Figure().subplots()
    draw_geodesic(axes, *points((0.6, 0.3), (-0.4, -0.2)))
    arc = place(axes, GEODESIC)
    assert arc[:, 1] == pytest.approx(arc[:, 0] / 2)


def test_the_disk_has_the_edge_of_the_unit_circle():
    axes = Figure().subplots()
    draw_disk(axes)
    (edge,) = axes.patches
    assert (edge.center, edge.radius) == ((0, 0), 1)
    assert axes.get_aspect() == 1
    assert in_disk(points((0.1, 0.2))) == pytest.approx(np.array([[0.1, 0.2]]))
