import math

import pytest
import torch
from hypothesis import given

from hkconv.geometry import lorentz
from hkconv.geometry.maps import from_origin, gradient_at_origin, max_radius, to_origin, turn

from . import literal
from .helpers import (
    ATOL,
    as_float32,
    assert_finite_gradients,
    assert_on_manifold,
    at_origin,
    at_radius,
    curvature_scale,
    directions,
    quick,
    random_points,
    random_tangents,
    spaces,
    tangent,
)


def assert_close(actual, expected, tolerance=ATOL):
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


def radius_of(x, curvature):
    o = lorentz.origin(x.size(-1) - 1, curvature, dtype=x.dtype)
    return lorentz.dist(o, x, curvature).item() / curvature_scale(curvature)


def test_exp_is_the_papers_formula(curvature):
    x = random_points(4, 1, 3, curvature=curvature)
    v = random_tangents(x.expand(4, 5, 4))
    assert_close(lorentz.exp(x, v, curvature), literal.exp(x, v, curvature))


def test_log_is_the_papers_formula(curvature):
    x, u = random_points(4, 1, 3, curvature=curvature), random_points(5, 3, curvature=curvature)
    assert_close(lorentz.log(x, u, curvature), literal.log(x, u, curvature))


def test_maps_at_the_origin_are_the_general_ones_there(curvature):
    o = lorentz.origin(3, curvature, dtype=torch.float64)
    v, u = at_origin(torch.randn(5, 3, dtype=torch.float64)), random_points(5, 3, curvature=curvature)
    assert_close(lorentz.exp0(v, curvature), literal.exp(o, v, curvature))
    assert_close(lorentz.log0(u, curvature), literal.log(o, u, curvature))


def test_transport_is_the_papers_formula_with_its_missing_term(curvature):
    x, y = random_points(4, 1, 3, curvature=curvature), random_points(5, 3, curvature=curvature)
    v = random_tangents(x.expand(4, 5, 4))
    assert_close(lorentz.transport(x, y, v, curvature), literal.transport(x, y, v, curvature))


def test_translate_is_log_transport_exp(curvature):
    x, y = random_points(4, 1, 3, curvature=curvature), random_points(5, 3, curvature=curvature)
    u = random_points(5, 3, curvature=curvature)
    assert_close(lorentz.translate(x, y, u, curvature), literal.translate(x, y, u, curvature))


def test_translate_to_and_from_the_origin_is_ominus_and_oplus(curvature):
    x, u = random_points(5, 3, curvature=curvature), random_points(5, 3, curvature=curvature)
    o = lorentz.origin(3, curvature, dtype=torch.float64)
    assert_close(lorentz.translate(x, o, u, curvature), lorentz.ominus(u, x, curvature))
    assert_close(lorentz.translate(o, x, u, curvature), lorentz.oplus(u, x, curvature))


@quick
@given(spaces(2))
def test_exp_and_log_are_inverse(space):
    k, x, u = space
    v = tangent(x, 0.3 * u[1:])
    assert_close(lorentz.exp(x, lorentz.log(x, u, k), k), u, 1e-7)
    assert_close(lorentz.log(x, lorentz.exp(x, v, k), k), v, 1e-7)
    assert_close(lorentz.log0(lorentz.exp0(at_origin(u[1:]), k), k)[1:], u[1:])
    assert_close(lorentz.exp0(lorentz.log0(u, k), k), u)


@quick
@given(spaces(2))
def test_log_is_tangent_and_as_long_as_the_distance(space):
    k, x, u = space
    v = lorentz.log(x, u, k)
    assert_close(v, tangent(x, v[1:]), 1e-8)
    squared = lorentz.dist(x, u, k) ** 2
    torch.testing.assert_close(lorentz.inner(v, v, k), squared, atol=1e-6, rtol=1e-6)


@quick
@given(spaces(4))
def test_transport_preserves_inner_products_and_is_undone_by_the_way_back(space):
    k, x, y, a, b = space
    v, w = tangent(x, a[1:]), tangent(x, b[1:])
    moved_v, moved_w = lorentz.transport(x, y, v, k), lorentz.transport(x, y, w, k)
    assert_close(lorentz.inner(moved_v, moved_w, k), lorentz.inner(v, w, k), 1e-6)
    assert_close(lorentz.inner(y, moved_v, k), torch.zeros((), dtype=v.dtype), 1e-6)
    assert_close(lorentz.transport(y, x, moved_v, k), v, 1e-6)


@quick
@given(spaces(2))
def test_transport_carries_the_direction_of_the_geodesic(space):
    k, x, y = space
    assert_close(lorentz.transport(x, y, lorentz.log(x, y, k), k), -lorentz.log(y, x, k), 1e-6)


@quick
@given(spaces(4))
def test_translate_is_an_isometry_that_takes_x_to_y(space):
    k, x, y, u, w = space
    moved_u, moved_w = lorentz.translate(x, y, u, k), lorentz.translate(x, y, w, k)
    assert_on_manifold(moved_u, k)
    assert_close(lorentz.dist(moved_u, moved_w, k), lorentz.dist(u, w, k), 1e-5)
    assert_close(lorentz.translate(x, y, x, k), y, 1e-6)
    assert_close(lorentz.translate(y, x, moved_u, k), u, 1e-5)


@pytest.mark.parametrize("radius", [1, 4, 8])
def test_float32_way_there_and_back_keeps_the_point(radius, curvature):
    """The error is measured as a distance, against what rounding the coordinates of the point alone makes."""
    x = at_radius(radius, directions(50, 4), curvature)
    u = as_float32(lorentz.oplus(at_radius(1.0, directions(50, 4), curvature), x, curvature), curvature)
    x = as_float32(x, curvature)
    back = lorentz.exp(x, lorentz.log(x, u, curvature), curvature)
    rounding = torch.finfo(torch.float32).eps * math.exp(radius)
    assert lorentz.dist(back, u, curvature).max() < 5 * rounding * curvature_scale(curvature)


@pytest.mark.parametrize("radius", [1, 4, 8])
def test_float32_translate_is_as_good_as_ominus(radius, curvature):
    x = at_radius(radius, directions(50, 4), curvature)
    u = as_float32(lorentz.oplus(at_radius(1.0, directions(50, 4), curvature), x, curvature), curvature)
    x = as_float32(x, curvature)
    o = lorentz.origin(4, curvature)
    exact = lorentz.ominus(*(lorentz.lift(p[:, 1:].double(), curvature) for p in (u, x)), curvature)
    error = (lorentz.translate(x, o, u, curvature) - exact)[:, 1:].norm(dim=-1) / exact[:, 1:].norm(dim=-1)
    assert error.max() < 1e-3


def test_zero_vectors_stay_where_they_are_with_gradient_one(dtype, curvature):
    zero = torch.zeros(3, dtype=dtype)
    o = lorentz.origin(3, curvature, dtype=dtype)
    (there,) = assert_finite_gradients(lambda s: lorentz.exp0(at_origin(s), curvature)[1:], zero)
    (back,) = assert_finite_gradients(lambda s: lorentz.log0(lorentz.lift(s, curvature), curvature), zero)
    torch.testing.assert_close(there, torch.ones_like(zero))
    torch.testing.assert_close(back, torch.ones_like(zero))
    torch.testing.assert_close(lorentz.exp0(at_origin(zero), curvature), o)
    x = random_points(3, curvature=curvature, dtype=dtype)
    assert_finite_gradients(lambda s: lorentz.exp(x, tangent(x, s), curvature), zero)
    torch.testing.assert_close(lorentz.exp(x, torch.zeros_like(x), curvature), x)
    assert (lorentz.log(x, x, curvature) == 0).all()


@pytest.mark.parametrize("length", [1e3, 1e6, 1e25])
def test_exp0_saturates_and_keeps_the_direction(length, dtype, curvature):
    direction = torch.tensor([0.6, -0.8], dtype=dtype)
    v = length * direction
    x = lorentz.exp0(at_origin(v), curvature)
    assert_finite_gradients(lambda s: lorentz.exp0(at_origin(s), curvature), v)
    assert_on_manifold(x, curvature)
    torch.testing.assert_close(torch.nn.functional.normalize(x[1:], dim=-1), direction)
    assert radius_of(x, curvature) == pytest.approx(max_radius(dtype), rel=1e-5)


@pytest.mark.parametrize("radius", [0, 5, 10, 20, 38])
def test_exp_from_anywhere_saturates_too(radius, dtype, curvature):
    x = at_radius(radius, torch.tensor([1.0, 0, 0], dtype=torch.float64), curvature).to(dtype)
    v = torch.tensor([600.0, 0.0, 800.0], dtype=dtype)
    end = lorentz.exp(x, tangent(x, v), curvature)
    assert_finite_gradients(lambda x, v: lorentz.exp(x, tangent(x, v), curvature), x, v)
    assert_on_manifold(end, curvature)
    assert radius_of(end, curvature) == pytest.approx(max_radius(dtype), rel=1e-5)


def test_squares_of_coordinates_at_the_largest_radius_are_finite(dtype, curvature):
    x = lorentz.exp0(at_origin(torch.full((2, 3), 1e4, dtype=dtype)), curvature)
    far = torch.stack([x[0], lorentz.lift(-x[0, 1:], curvature)])
    assert (far * far).sum(-1).isfinite().all()
    assert_finite_gradients(lambda a: lorentz.dist(a[0], a[1], curvature), far)


@pytest.mark.parametrize("radius", [0, 1e-3, 1, 20, 30, 38])
@pytest.mark.parametrize("kind", ["coincident", "antipodal", "orthogonal", "origin"])
def test_gradients_are_finite(radius, kind, dtype, curvature):
    e = torch.tensor([0.6, 0.8, 0], dtype=torch.float64)
    f = torch.tensor([0.8, -0.6, 0], dtype=torch.float64)
    other = {"coincident": e, "antipodal": -e, "orthogonal": f, "origin": 0 * e}[kind]
    s, q = (at_radius(radius, v, curvature)[1:].to(dtype) for v in (e, other))

    def log(a, b):
        return lorentz.log(lorentz.lift(a, curvature), lorentz.lift(b, curvature), curvature)

    def transport(a, b):
        x = lorentz.lift(a, curvature)
        return lorentz.transport(x, lorentz.lift(b, curvature), tangent(x, torch.ones_like(a)), curvature)

    def translate(a, b):
        x = lorentz.lift(a, curvature)
        return lorentz.translate(x, lorentz.lift(b, curvature), x, curvature)

    for function in (log, transport, translate):
        assert_finite_gradients(function, s, q)


def assert_near(actual, expected, tolerance=1e-10):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def test_to_origin_and_from_origin_are_the_transports_of_the_paper(curvature):
    x = random_points(6, 3, curvature=curvature)
    o = lorentz.origin(3, curvature, dtype=torch.float64)
    v, w = random_tangents(x), torch.randn(6, 3, dtype=torch.float64)
    assert_near(at_origin(to_origin(x, v, curvature)), literal.transport(x, o, v, curvature))
    assert_near(from_origin(x, w, curvature), literal.transport(o, x, at_origin(w), curvature))


def test_turn_is_transport_between_two_points(curvature):
    x, y = random_points(4, 1, 3, curvature=curvature), random_points(5, 3, curvature=curvature)
    w = torch.randn(4, 5, 3, dtype=torch.float64)
    expected = to_origin(y, literal.transport(x, y, from_origin(x, w, curvature), curvature), curvature)
    assert_near(turn(x, y, w, curvature), expected)


def test_turn_at_the_origin_and_along_a_ray_changes_nothing(curvature):
    o = lorentz.origin(3, curvature, dtype=torch.float64)
    y, w = random_points(5, 3, curvature=curvature), torch.randn(5, 3, dtype=torch.float64)
    farther = lorentz.lift(3 * y[..., 1:], curvature)
    for start, end in ((o, y), (y, o), (y, farther), (y, y)):
        assert_near(turn(start, end, w, curvature), w)


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
        assert_near((gradient_at_origin(x, g, curvature) * w).sum(-1), along)


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
