import pytest
import torch
from hypothesis import given

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.geometry.hyperboloid import point_along, rescale, safe_norm

from . import literal
from .helpers import assert_finite_gradients, curvature_scale, quick, random_points, spaces


def test_inner_is_the_product_with_the_metric_tensor(curvature):
    x, y = torch.randn(4, 1, 6, dtype=torch.float64), torch.randn(3, 6, dtype=torch.float64)
    torch.testing.assert_close(lorentz.inner(x, y, curvature), literal.inner(x, y).squeeze(-1))


@quick
@given(spaces(1))
def test_lift_satisfies_the_equation_of_the_hyperboloid(space):
    k, x = space
    assert k * lorentz.inner(x, x, k).item() == pytest.approx(1.0, abs=1e-11)
    assert x[0] > 0


def test_lift_keeps_the_spatial_coordinates(dtype, curvature):
    s = torch.randn(5, 3, dtype=dtype)
    assert lorentz.lift(s, curvature)[:, 1:].equal(s)


def test_origin_is_the_vertex(dtype, curvature):
    expected = torch.tensor([curvature_scale(curvature), 0, 0, 0], dtype=dtype)
    torch.testing.assert_close(lorentz.origin(3, curvature, dtype=dtype), expected)


def test_origin_follows_a_learned_curvature():
    k = torch.tensor(-0.5, requires_grad=True)
    lorentz.origin(2, k).sum().backward()
    assert k.grad.item() == pytest.approx(0.5 * 0.5**-1.5)


def test_a_point_along_a_direction_lies_over_the_length_and_along_none_is_the_origin(dtype, curvature):
    direction = torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=dtype, requires_grad=True)
    length = torch.tensor([2.0, 7.0], dtype=dtype, requires_grad=True)
    found = point_along(direction, length, curvature)
    torch.testing.assert_close(found, lorentz.lift(torch.tensor([[1.2, 1.6], [0.0, 0.0]], dtype=dtype), curvature))
    of_direction, of_length = torch.autograd.grad(found[:, 1:].sum(), (direction, length))
    assert of_direction.isfinite().all()
    torch.testing.assert_close(of_length, torch.tensor([1.4, 0.0], dtype=dtype))


def test_no_point_is_nearer_to_the_origin_in_time_than_the_origin(curvature):
    assert (random_points(100, 3, curvature=curvature)[:, 0] > lorentz.origin(3, curvature)[0]).all()


def test_rescaled_points_lie_on_the_other_hyperboloid_and_keep_the_ratios_of_distances(curvature):
    x, y = random_points(2, 3, curvature=curvature)
    moved_x, moved_y = rescale(x, curvature, -0.7), rescale(y, curvature, -0.7)
    torch.testing.assert_close(moved_x, lorentz.lift(moved_x[1:], -0.7))
    factor = curvature_scale(-0.7) / curvature_scale(curvature)
    torch.testing.assert_close(lorentz.dist(moved_x, moved_y, -0.7), factor * lorentz.dist(x, y, curvature))
    assert rescale(x, curvature, curvature) is x


def poincare_dist(p, q, k):
    """R arcosh(1 + 2|p-q|² R² / ((R²-|p|²)(R²-|q|²)))"""
    R2 = -1 / k
    p2, q2, gap = (v.square().sum(-1) for v in (p, q, p - q))
    return R2**0.5 * torch.acosh(1 + 2 * gap * R2 / ((R2 - p2) * (R2 - q2)))


@quick
@given(spaces(1))
def test_views_round_trip(space):
    k, x = space
    torch.testing.assert_close(lorentz.from_poincare(lorentz.to_poincare(x, k), k), x, atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(lorentz.from_klein(lorentz.to_klein(x, k), k), x, atol=1e-8, rtol=1e-8)


def test_poincare_distance_is_the_distance(curvature):
    x, y = random_points(5, 1, 3, curvature=curvature), random_points(4, 3, curvature=curvature)
    p, q = lorentz.to_poincare(x, curvature), lorentz.to_poincare(y, curvature)
    torch.testing.assert_close(poincare_dist(p, q, curvature), lorentz.dist(x, y, curvature), atol=1e-9, rtol=1e-9)


def test_radius_in_the_poincare_ball_is_tanh_of_half_the_distance(curvature):
    R = curvature_scale(curvature)
    x = random_points(5, 3, curvature=curvature)
    d = lorentz.dist(lorentz.origin(3, curvature, dtype=torch.float64), x, curvature)
    torch.testing.assert_close(lorentz.to_poincare(x, curvature).norm(dim=-1), R * torch.tanh(d / (2 * R)))
    torch.testing.assert_close(lorentz.to_klein(x, curvature).norm(dim=-1), R * torch.tanh(d / R))


def test_poincare_view_is_conformal(curvature):
    """Its Jacobian, restricted to the tangent space, is a multiple of an isometry."""
    s = random_points(3, curvature=curvature)[1:]
    lift, view = (lambda s: lorentz.lift(s, curvature)), (lambda s: lorentz.to_poincare(lorentz.lift(s, curvature)))
    tangents = torch.func.jacfwd(lift)(s)
    metric = tangents.T @ torch.diag(torch.tensor([-1.0, 1, 1, 1], dtype=torch.float64)) @ tangents
    view = torch.func.jacfwd(lambda s: lorentz.to_poincare(lift(s), curvature))(s)
    ratio = torch.linalg.solve(metric, view.T @ view)
    torch.testing.assert_close(ratio, ratio[0, 0] * torch.eye(3, dtype=torch.float64), atol=1e-9, rtol=1e-9)


def test_klein_geodesics_are_straight_lines(curvature):
    x, y = random_points(2, 3, curvature=curvature)
    times = torch.linspace(0, 1, 7, dtype=torch.float64).unsqueeze(-1)
    geodesic = lorentz.to_klein(lorentz.exp(x, times * lorentz.log(x, y, curvature), curvature), curvature)
    chord = geodesic[-1] - geodesic[0]
    along = (geodesic - geodesic[0]) @ chord / (chord @ chord)
    torch.testing.assert_close(geodesic, geodesic[0] + along.unsqueeze(-1) * chord)
    assert (along.diff() > 0).all()


def test_poincare_geodesics_are_curved():
    """So that the test above tests something."""
    x, y = random_points(2, 3)
    middle = lorentz.to_poincare(lorentz.exp(x, lorentz.log(x, y) / 2))
    p, q = lorentz.to_poincare(x), lorentz.to_poincare(y)
    assert torch.linalg.matrix_rank(torch.stack([middle - p, q - p]), atol=1e-3) == 2


@pytest.mark.parametrize("name", ["Poincaré", "Klein"])
@pytest.mark.parametrize("scale", [1.0, 1.5, float("nan")])
def test_points_outside_the_ball_are_rejected(name, scale, curvature):
    read = {"Poincaré": lorentz.from_poincare, "Klein": lorentz.from_klein}[name]
    R = curvature_scale(curvature)
    p = torch.tensor([[0.1 * R, 0.0], [0.0, scale * R]], dtype=torch.float64)
    with pytest.raises(InputError, match=f"{name} ball must have norm below {R:g}, got"):
        read(p, curvature)


@pytest.mark.parametrize("read", [lorentz.from_poincare, lorentz.from_klein])
def test_the_center_of_the_ball_is_the_origin_with_finite_gradient(read, dtype, curvature):
    zero = torch.zeros(3, dtype=dtype)
    torch.testing.assert_close(read(zero, curvature), lorentz.origin(3, curvature, dtype=dtype))
    assert_finite_gradients(lambda p: read(p, curvature), zero)
    assert read(torch.empty(0, 3, dtype=dtype), curvature).shape == (0, 4)


def test_the_norm_of_any_finite_vector_is_finite_and_right(dtype):
    """With coordinates of very different sizes, too: their squares would overflow, or vanish."""
    huge, tiny = torch.finfo(dtype).max / 4, torch.finfo(dtype).tiny
    vectors = torch.tensor([[3.0, 0.0, -4.0], [huge, 1.0, 0.0], [0.0, tiny, 0.0], [0.0, 0.0, 0.0]], dtype=dtype)
    torch.testing.assert_close(safe_norm(vectors).flatten(), torch.tensor([5.0, huge, tiny, 0.0], dtype=dtype))
    assert_finite_gradients(safe_norm, vectors)
