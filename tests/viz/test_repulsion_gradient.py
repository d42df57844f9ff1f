import numpy as np
import pytest
import torch
from viz_artists import place

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.viz import repulsion_gradient_figure
from hkconv.viz.repulsion_gradient import circle, gradient_norms

FLIP = torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64)


def literal_norms(points):
    """By autograd through 1 / arcosh(-<x, y>), then projected to the tangent spaces."""
    x = points.clone().requires_grad_()
    repulsion = sum(1 / torch.acosh(-(x[k] * FLIP) @ x[m]) for k in range(len(x)) for m in range(len(x)) if k != m)
    (gradient,) = torch.autograd.grad(repulsion, x)
    raised = gradient * FLIP
    tangent = raised + (raised * FLIP * points).sum(-1, keepdim=True) * points
    return gradient.norm().item(), (tangent * FLIP * tangent).sum().sqrt().item()


@pytest.mark.parametrize("K, distance", [(2, 0.3), (3, 1.0), (8, 0.25), (8, 2.0), (8, 5.0)])
def test_norms_are_those_of_autograd(K, distance):
    points = circle(K, distance)
    assert gradient_norms(points) == pytest.approx(literal_norms(points), rel=1e-6)


def test_two_opposite_points_by_hand():
    # d = 2 r, and each of the two unit vectors has length 2 / d².
    _, riemannian = gradient_norms(circle(2, 6.0))
    assert riemannian == pytest.approx(2**0.5 * 2 / 12**2)


def test_points_stand_evenly_at_the_distance():
    points = circle(8, 2.0)
    torch.testing.assert_close(
        lorentz.dist(lorentz.origin(2, dtype=torch.float64), points), torch.full((8,), 2.0).double()
    )
    sides = lorentz.dist(points, points.roll(1, 0))
    torch.testing.assert_close(sides, sides.mean().expand(8))


def test_curves_are_the_norms_and_fall_as_the_text_says():
    left, right = repulsion_gradient_figure().axes
    assert right.get_xlabel() == "distance from the origin"
    assert right.get_ylabel() == "gradient norm"
    assert right.get_yscale() == "log"
    curves = [place(right, name) for name in ("by the coordinates", "Riemannian")]
    for row in (0, 60, -1):
        distance = curves[0][row, 0]
        expected = literal_norms(circle(8, distance))
        assert [curve[row, 1] for curve in curves] == pytest.approx(expected, rel=1e-4)
    by_coordinates, riemannian = (np.log(curve[curve[:, 0] > 6]) for curve in curves)
    distance = np.exp(by_coordinates[:, 0])
    slope = np.polyfit(distance, by_coordinates[:, 1], 1)[0]
    power = np.polyfit(riemannian[:, 0], riemannian[:, 1], 1)[0]
    assert -1.5 < slope < -1
    assert -2.5 < power < -2
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["0.5", "1", "2", "3"]
    assert np.linalg.norm(place(left, "1"), axis=1) == pytest.approx(np.tanh(0.5))


def test_bad_input():
    with pytest.raises(InputError, match=r"K must be at least 2 .*, got 1"):
        repulsion_gradient_figure(1)
