import pytest
import torch
from hypothesis import given

from hkconv.geometry import lorentz
from hkconv.geometry.hyperboloid import rescale

from . import literal
from .helpers import curvature_scale, quick, random_points, spaces


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


def test_no_point_is_nearer_to_the_origin_in_time_than_the_origin(curvature):
    assert (random_points(100, 3, curvature=curvature)[:, 0] > lorentz.origin(3, curvature)[0]).all()


def test_rescaled_points_lie_on_the_other_hyperboloid_and_keep_the_ratios_of_distances(curvature):
    x, y = random_points(2, 3, curvature=curvature)
    moved_x, moved_y = rescale(x, curvature, -0.7), rescale(y, curvature, -0.7)
    torch.testing.assert_close(moved_x, lorentz.lift(moved_x[1:], -0.7))
    factor = curvature_scale(-0.7) / curvature_scale(curvature)
    torch.testing.assert_close(lorentz.dist(moved_x, moved_y, -0.7), factor * lorentz.dist(x, y, curvature))
    assert rescale(x, curvature, curvature) is x
