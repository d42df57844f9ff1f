from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hkconv.geometry import lorentz

from . import exact, literal
from .helpers import (
    ATOL,
    as_float32,
    assert_finite_gradients,
    assert_on_manifold,
    at_origin,
    at_radius,
    directions,
    quick,
    random_points,
    spaces,
)

RADII = (1e-4, 1e-3, 1e-2, 1e-1, 1, 2, 4, 6, 8, 10)
SEPARATIONS = (0.01, 0.1, 0.3, 1, 3)


def textbook_dist(x, y):
    return torch.acosh((-literal.inner(x, y)).clamp(min=1)).squeeze(-1)


def pairs(kind, dim, curvature):
    """Float32 points at all pairs of radii, in one direction, opposite, orthogonal or random ones."""
    radii = torch.tensor(list(product(RADII, RADII)), dtype=torch.float64).unsqueeze(-1)
    one, other = directions(2, len(radii), dim)
    orthogonal = torch.nn.functional.normalize(other - (other * one).sum(-1, keepdim=True) * one, dim=-1)
    other = {"same": one, "opposite": -one, "orthogonal": orthogonal, "random": other}[kind]
    x, y = (at_radius(radii[:, i], e, curvature) for i, e in enumerate((one, other)))
    return as_float32(x, curvature), as_float32(y, curvature)


def worst_dist_error(distances, x, y, curvature):
    """Largest relative error of d, infinite where it should be zero and is not."""
    worst = 0.0
    for d, a, b in zip(distances.tolist(), x, y):
        true = exact.dist(exact.point(a, curvature), exact.point(b, curvature), curvature)
        if d != true:
            worst = max(worst, float(abs(d - true) / true) if true else float("inf"))
    return worst


def worst_ominus_error(radius, curvature):
    """Largest error of u ⊖ x against |z_s| for x at a radius and u around it, radially, across and at random."""
    worst = 0.0
    for separation, dim in product(SEPARATIONS, (2, 8)):
        e = directions(dim)
        across = torch.nn.functional.normalize(directions(dim) - e, dim=-1)
        for towards in (e, -e, across, *directions(3, dim)):
            x = at_radius(radius, e, curvature)
            u = lorentz.oplus(at_radius(separation, towards, curvature), x, curvature)
            x, u = as_float32(x, curvature), as_float32(u, curvature)
            z = exact.ominus(exact.point(u, curvature), exact.point(x, curvature), curvature)
            error = exact.gap(lorentz.ominus(u, x, curvature)[1:], z[1:]) / exact.length(z[1:])
            worst = max(worst, float(error))
    return worst


def test_dist_is_the_papers_formula(curvature):
    x, y = random_points(5, 1, 4, curvature=curvature), random_points(3, 4, curvature=curvature)
    torch.testing.assert_close(lorentz.dist(x, y, curvature), literal.dist(x, y, curvature), atol=ATOL, rtol=ATOL)


def test_ominus_is_log_transport_exp(curvature):
    u, x = random_points(5, 1, 4, curvature=curvature), random_points(3, 4, curvature=curvature)
    expected = literal.translate(x, lorentz.origin(4, curvature, dtype=torch.float64), u, curvature)
    torch.testing.assert_close(lorentz.ominus(u, x, curvature), expected, atol=ATOL, rtol=ATOL)


def test_ominus_is_the_lorentz_boost(curvature):
    u, x = random_points(6, 3, curvature=curvature), random_points(6, 3, curvature=curvature)
    R = lorentz.origin(3, curvature)[0]
    t, s = x[:, :1] / R, x[:, 1:] / R
    eye = torch.eye(3, dtype=torch.float64)
    boost = torch.cat(
        [
            torch.cat([t, -s], dim=-1).unsqueeze(-2),
            torch.cat([-s.unsqueeze(-1), eye + s.unsqueeze(-1) * s.unsqueeze(-2) / (1 + t).unsqueeze(-1)], dim=-1),
        ],
        dim=-2,
    )
    expected = (boost @ u.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(lorentz.ominus(u, x, curvature), expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("dim", [2, 16])
@pytest.mark.parametrize("kind", ["same", "opposite", "orthogonal", "random"])
def test_float32_dist_agrees_with_sixty_digits(kind, dim, curvature):
    x, y = pairs(kind, dim, curvature)
    assert worst_dist_error(lorentz.dist(x, y, curvature), x, y, curvature) < 1e-5


@pytest.mark.parametrize("radius", [0, 1e-3, 1, 4, 6, 8])
def test_float32_ominus_agrees_with_sixty_digits(radius, curvature):
    assert worst_ominus_error(radius, curvature) < 1e-3


def test_float32_textbook_distance_is_useless_where_ours_is_exact():
    x, y = pairs("same", 16, -1.0)
    apart = (x != y).any(-1)
    assert worst_dist_error(textbook_dist(x, y)[apart], x[apart], y[apart], -1.0) > 1e-2
    far = as_float32(at_radius(10, directions(200, 16)), -1.0)
    assert textbook_dist(far, far).max() > 1


@quick
@given(st.floats(0, 20), st.integers(1, 40), st.integers(0, 10**6))
def test_float32_distance_to_itself_is_exactly_zero(radius, dim, seed):
    torch.manual_seed(seed)
    x = as_float32(at_radius(radius, directions(20, dim)), -1.0)
    assert (lorentz.dist(x, x) == 0).all()
    assert lorentz.ominus(x, x).equal(lorentz.origin(dim).expand_as(x))


@quick
@given(st.floats(0, 20), st.floats(0, 20), st.integers(1, 40), st.integers(0, 10**6))
def test_float32_distance_is_never_negative(r, q, dim, seed):
    torch.manual_seed(seed)
    x, y = (as_float32(at_radius(radius, directions(20, dim)), -1.0) for radius in (r, q))
    nudged = lorentz.lift(torch.nextafter(x[:, 1:], y[:, 1:]))
    assert (lorentz.dist(x, y) >= 0).all()
    assert (lorentz.dist(x, nudged) >= 0).all()


@quick
@given(spaces(3))
def test_dist_is_a_metric(space):
    k, x, y, z = space
    torch.testing.assert_close(lorentz.dist(x, y, k), lorentz.dist(y, x, k))
    assert lorentz.dist(x, x, k) == 0
    assert lorentz.dist(x, y, k) > 0 or x.equal(y)
    assert lorentz.dist(x, z, k) <= lorentz.dist(x, y, k) + lorentz.dist(y, z, k) + ATOL


@quick
@given(spaces(3))
def test_ominus_preserves_distances(space):
    k, x, u, w = space
    moved_u, moved_w = lorentz.ominus(u, x, k), lorentz.ominus(w, x, k)
    assert_on_manifold(moved_u, k)
    torch.testing.assert_close(lorentz.dist(moved_u, moved_w, k), lorentz.dist(u, w, k), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(
        lorentz.dist(lorentz.origin(x.size(-1) - 1, k, dtype=x.dtype), moved_u, k),
        lorentz.dist(x, u, k),
        atol=1e-6,
        rtol=1e-6,
    )


@quick
@given(spaces(2))
def test_oplus_inverts_ominus(space):
    k, u, x = space
    torch.testing.assert_close(lorentz.oplus(lorentz.ominus(u, x, k), x, k), u, atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(lorentz.ominus(lorentz.oplus(u, x, k), x, k), u, atol=1e-8, rtol=1e-8)


def test_dist_scales_with_the_radius_of_curvature(curvature):
    x, y = random_points(5, 3), random_points(5, 3)
    R = lorentz.origin(3, curvature, dtype=torch.float64)[0]
    torch.testing.assert_close(lorentz.dist(R * x, R * y, curvature), R * lorentz.dist(x, y))


@pytest.mark.parametrize("radius", [0, 1e-3, 1, 10, 20, 30, 38])
@pytest.mark.parametrize("kind", ["coincident", "antipodal", "orthogonal", "origin"])
def test_gradients_are_finite(radius, kind, dtype, curvature):
    e = torch.tensor([0.6, 0.8, 0], dtype=torch.float64)
    f = torch.tensor([0.8, -0.6, 0], dtype=torch.float64)
    other = {"coincident": e, "antipodal": -e, "orthogonal": f, "origin": 0 * e}[kind]
    s, q = (at_radius(radius, v, curvature)[1:].to(dtype) for v in (e, other))

    def of_points(function):
        return lambda a, b: function(lorentz.lift(a, curvature), lorentz.lift(b, curvature), curvature)

    assert_finite_gradients(of_points(lorentz.dist), s, q)
    assert_finite_gradients(of_points(lambda x, y, k: lorentz.dist(x, y, k) ** 2), s, q)
    assert_finite_gradients(of_points(lorentz.ominus), s, q)


def test_gradient_of_the_distance_of_coincident_points_is_zero(dtype, curvature):
    x = random_points(3, curvature=curvature, dtype=dtype)
    gradients = assert_finite_gradients(lambda a, b: lorentz.dist(a, b, curvature), x, x)
    assert all((g == 0).all() for g in gradients)


def test_gradient_of_the_distance_to_a_nearby_point_has_length_one(dtype):
    """Moving the origin by a small step changes its distance to a point ahead by as much."""
    for step in (1e-7, 1e-4, 1e-2):
        y = lorentz.exp0(at_origin(torch.tensor([step, 0.0], dtype=dtype)))
        (g,) = assert_finite_gradients(lambda s, y=y: lorentz.dist(lorentz.lift(s), y), torch.zeros(2, dtype=dtype))
        torch.testing.assert_close(g, torch.tensor([-1.0, 0.0], dtype=dtype), atol=1e-4, rtol=1e-4)
