import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.geometry.centroid import centroid_and_mass

from . import exact, literal
from .helpers import (
    ATOL,
    around,
    as_float32,
    assert_finite_gradients,
    assert_on_manifold,
    at_radius,
    curvature_scale,
    directions,
    quick,
    random_points,
    spaces,
)

weights = st.lists(st.floats(0.01, 10.0), min_size=4, max_size=4).map(lambda w: torch.tensor(w, dtype=torch.float64))


def assert_close(actual, expected, tolerance=1e-8):
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


def squared_lorentzian(x, weight, center, k):
    """What the centroid minimizes."""
    difference = x - center
    return (weight * lorentz.inner(difference, difference, k)).sum(-1)


def test_centroid_is_the_papers_formula(curvature):
    x, weight = random_points(2, 3, 5, 4, curvature=curvature), torch.rand(2, 3, 5, dtype=torch.float64)
    assert_close(lorentz.centroid(x, weight, curvature=curvature), literal.centroid(x, weight, curvature), ATOL)
    ones = torch.ones_like(weight)
    assert_close(lorentz.centroid(x, curvature=curvature), literal.centroid(x, ones, curvature), ATOL)


def test_mass_is_the_length_of_the_weighted_sum(curvature):
    x, weight = random_points(3, 5, 4, curvature=curvature), torch.rand(3, 5, dtype=torch.float64)
    s = (weight.unsqueeze(-1) * x).sum(-2)
    expected = (curvature * lorentz.inner(s, s)).sqrt()
    assert_close(centroid_and_mass(x, weight, curvature=curvature)[1], expected)


def test_any_dimension_but_the_last_can_be_reduced(curvature):
    x, weight = random_points(2, 5, 3, 4, curvature=curvature), torch.rand(2, 5, 3, dtype=torch.float64)
    for dim in (0, 1, 2, -2, -3, -4):
        expected = lorentz.centroid(x.movedim(dim, -2), weight.movedim(dim if dim >= 0 else dim + 1, -1))
        assert_close(lorentz.centroid(x, weight, dim=dim), expected)


def test_weights_broadcast_over_the_points(curvature):
    x, weight = random_points(2, 5, 3, curvature=curvature), torch.rand(5, dtype=torch.float64)
    expected = lorentz.centroid(x, weight.expand(2, 5), curvature=curvature)
    assert_close(lorentz.centroid(x, weight, curvature=curvature), expected)


@quick
@given(spaces(5), weights)
def test_centroid_minimizes_the_squared_lorentzian_distance(space, weight):
    k, *points, towards = space
    x = torch.stack(points)
    center = lorentz.centroid(x, weight, curvature=k)
    assert_on_manifold(center, k)
    at_center = squared_lorentzian(x, weight, center, k)
    for step in (1e-2, 1.0):
        moved = lorentz.exp(center, step * lorentz.log(center, towards, k), k)
        assert squared_lorentzian(x, weight, moved, k) >= at_center * (1 - 1e-9) - 1e-9


@quick
@given(spaces(5), weights)
def test_centroid_moves_with_isometries(space, weight):
    k, *points, by = space
    x = torch.stack(points)
    center, mass = centroid_and_mass(x, weight, curvature=k)
    moved, moved_mass = centroid_and_mass(lorentz.ominus(x, by, k), weight, curvature=k)
    assert_close(moved, lorentz.ominus(center, by, k), 1e-5)
    assert_close(moved_mass, mass, 1e-5)


@quick
@given(spaces(4), weights, st.floats(1e-20, 1e20), st.permutations(range(4)))
def test_centroid_ignores_order_and_scale_of_the_weights(space, weight, scale, order):
    k, *points = space
    x = torch.stack(points)
    center, mass = centroid_and_mass(x, weight, curvature=k)
    again, scaled_mass = centroid_and_mass(x[order], scale * weight[order], curvature=k)
    assert_close(again, center)
    assert_close(scaled_mass, scale * mass)


@quick
@given(spaces(2), weights)
def test_mass_is_the_total_weight_of_coincident_points_and_more_otherwise(space, weight):
    k, x, y = space
    together, mass = centroid_and_mass(x.expand(4, -1), weight, curvature=k)
    assert_close(together, x)
    assert_close(mass, weight.sum())
    apart = torch.stack([x, y, x, y])
    assert centroid_and_mass(apart, weight, curvature=k)[1] >= weight.sum() * (1 - 1e-12)
    if lorentz.dist(x, y, k) > 0.1:
        assert centroid_and_mass(apart, weight, curvature=k)[1] > weight.sum() * (1 + 1e-6)


def test_centroid_of_two_points_is_their_midpoint(curvature):
    x, y = random_points(2, 6, 3, curvature=curvature)
    midpoint = lorentz.exp(x, lorentz.log(x, y, curvature) / 2, curvature)
    assert_close(lorentz.centroid(torch.stack([x, y]), dim=0, curvature=curvature), midpoint)


def test_a_weight_of_zero_leaves_the_point_out(curvature):
    x = random_points(4, 3, curvature=curvature)
    weight = torch.tensor([1.0, 0, 2.0, 0], dtype=torch.float64)
    assert_close(
        lorentz.centroid(x, weight, curvature=curvature),
        lorentz.centroid(x[::2], torch.tensor([1.0, 2.0], dtype=torch.float64), curvature=curvature),
    )


def test_where_all_weights_vanish_the_points_count_alike(dtype, curvature):
    x = random_points(2, 4, 3, curvature=curvature, dtype=dtype)
    weight = torch.stack([torch.zeros(4), torch.arange(4.0)]).to(dtype)
    center, mass = centroid_and_mass(x, weight, curvature=curvature)
    torch.testing.assert_close(center[0], lorentz.centroid(x[0], curvature=curvature))
    torch.testing.assert_close(center[1], lorentz.centroid(x[1], weight[1], curvature=curvature))
    assert mass[0] == 0
    assert_finite_gradients(lambda x, w: lorentz.centroid(x, w, curvature=curvature), x, weight)


def test_centroid_of_nothing_is_the_origin(dtype, curvature):
    center, mass = centroid_and_mass(torch.empty(2, 0, 4, dtype=dtype), curvature=curvature)
    torch.testing.assert_close(center, lorentz.origin(3, curvature, dtype=dtype).expand(2, 4))
    assert mass.tolist() == [0, 0]


@pytest.mark.parametrize("spread", [0.1, 0.3, 1.0])
@pytest.mark.parametrize("radius", [0, 2, 4, 6, 8])
def test_float32_centroid_agrees_with_sixty_digits(radius, spread, curvature):
    """Off by about what rounding the coordinates of the exact centroid makes, eps·exp(radius)."""
    rounding = torch.finfo(torch.float32).eps * math.exp(radius)
    for dim in (2, 8):
        x = as_float32(around(at_radius(radius, directions(dim), curvature), spread, 12, curvature), curvature)
        weight = torch.rand(12)
        center, mass = centroid_and_mass(x, weight, curvature=curvature)
        points = [exact.point(p, curvature) for p in x]
        true, true_mass = exact.centroid(points, exact.numbers(weight), curvature)
        error = exact.dist(exact.point(center, curvature), true, curvature) / curvature_scale(curvature)
        assert error < 2 * rounding < 0.01 * spread
        assert abs(mass.item() - true_mass) < 1e-3 * true_mass


@pytest.mark.parametrize("radius", [0, 1e-3, 1, 20, 30, 38])
@pytest.mark.parametrize("kind", ["coincident", "antipodal", "orthogonal"])
def test_gradients_are_finite(radius, kind, dtype, curvature):
    e = torch.tensor([0.6, 0.8, 0], dtype=torch.float64)
    f = torch.tensor([0.8, -0.6, 0], dtype=torch.float64)
    other = {"coincident": e, "antipodal": -e, "orthogonal": f}[kind]
    s = torch.stack([at_radius(radius, v, curvature)[1:].to(dtype) for v in (e, other)])
    weight = torch.tensor([1.0, 2.0], dtype=dtype)
    for part in (0, 1):
        assert_finite_gradients(
            lambda s, w, part=part: centroid_and_mass(lorentz.lift(s, curvature), w, curvature=curvature)[part],
            s,
            weight,
        )


def test_the_coordinates_cannot_be_reduced():
    with pytest.raises(InputError, match="dim must not be the last dimension of x"):
        lorentz.centroid(lorentz.lift(torch.randn(4, 3)), dim=-1)


def test_a_weight_that_is_no_number_makes_no_point(dtype):
    x = lorentz.lift(torch.randn(4, 3, dtype=dtype))
    assert lorentz.centroid(x, torch.tensor([1, torch.nan, 1, 2], dtype=dtype)).isnan().all()
