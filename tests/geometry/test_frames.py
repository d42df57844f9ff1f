import math

import pytest
import torch

from hkconv.geometry import lorentz
from hkconv.geometry.frames import from_origin, gradient_at_origin, to_origin, turn

from . import literal
from .helpers import (
    as_float32,
    assert_finite_gradients,
    at_origin,
    at_radius,
    directions,
    random_points,
    random_tangents,
)


def assert_close(actual, expected, tolerance=1e-10):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def test_to_origin_and_from_origin_are_the_transports_of_the_paper(curvature):
    x = random_points(6, 3, curvature=curvature)
    o = lorentz.origin(3, curvature, dtype=torch.float64)
    v, w = random_tangents(x), torch.randn(6, 3, dtype=torch.float64)
    assert_close(at_origin(to_origin(x, v, curvature)), literal.transport(x, o, v, curvature))
    assert_close(from_origin(x, w, curvature), literal.transport(o, x, at_origin(w), curvature))


def test_turn_is_transport_between_two_points(curvature):
    x, y = random_points(4, 1, 3, curvature=curvature), random_points(5, 3, curvature=curvature)
    w = torch.randn(4, 5, 3, dtype=torch.float64)
    expected = to_origin(y, literal.transport(x, y, from_origin(x, w, curvature), curvature), curvature)
    assert_close(turn(x, y, w, curvature), expected)


def test_turn_at_the_origin_and_along_a_ray_changes_nothing(curvature):
    o = lorentz.origin(3, curvature, dtype=torch.float64)
    y, w = random_points(5, 3, curvature=curvature), torch.randn(5, 3, dtype=torch.float64)
    farther = lorentz.lift(3 * y[..., 1:], curvature)
    for start, end in ((o, y), (y, o), (y, farther), (y, y)):
        assert_close(turn(start, end, w, curvature), w)


def test_turn_has_gradients_everywhere(curvature):
    """At the origin too, where the direction across a point has no meaning."""
    o = lorentz.origin(3, curvature, dtype=torch.float64)
    y, w = random_points(3, curvature=curvature), torch.randn(3, dtype=torch.float64)

    def of_space(x_s, y_s, w):
        return turn(lorentz.lift(x_s, curvature), lorentz.lift(y_s, curvature), w, curvature)

    for x in (o, random_points(3, curvature=curvature)):
        leaves = [value.clone().requires_grad_() for value in (x[1:], y[1:], w)]
        assert torch.autograd.gradcheck(of_space, leaves)
    assert_finite_gradients(lambda x: turn(x, x, w, curvature).sum(), y)


def test_the_gradient_at_the_origin_is_the_riemannian_gradient_carried_there(curvature):
    x, g = random_points(6, 3, curvature=curvature), torch.randn(6, 4, dtype=torch.float64)
    for w in torch.randn(4, 6, 3, dtype=torch.float64):
        along = (from_origin(x, w, curvature) * g).sum(-1)
        assert_close((gradient_at_origin(x, g, curvature) * w).sum(-1), along)


@pytest.mark.parametrize("radius", [6.0, 9.0, 12.0])
def test_float32_turn_keeps_lengths_and_angles_far_out(radius, curvature):
    """The paper's sum is wrong by more than the vector from radius 11 on."""
    x = at_radius(radius, directions(50, 4), curvature)
    y = lorentz.oplus(at_radius(0.1, directions(50, 4), curvature), x, curvature)
    w = directions(50, 4)
    x, y = as_float32(x, curvature), as_float32(y, curvature)
    exact = turn(*(lorentz.lift(point[..., 1:].double(), curvature) for point in (x, y)), w, curvature)
    found = turn(x, y, w.float(), curvature).double()
    rounding = torch.finfo(torch.float32).eps * math.exp(radius)
    torch.testing.assert_close(found, exact, rtol=0, atol=2 * rounding)
    torch.testing.assert_close(found.norm(dim=-1), torch.ones(50, dtype=torch.float64), rtol=1e-4, atol=0)


@pytest.mark.parametrize("radius", [25.0, 39.0])
def test_turn_keeps_lengths_where_directions_are_noise(radius, curvature):
    x, y = (as_float32(at_radius(radius, directions(50, 4), curvature), curvature) for _ in range(2))
    near = lorentz.lift(x[..., 1:] * (1 + 1e-3 * torch.randn(50, 4)), curvature)
    for end in (y, near):
        turned = turn(x, end, directions(50, 4).float(), curvature)
        torch.testing.assert_close(turned.norm(dim=-1), torch.ones(50), rtol=1e-4, atol=0)
