import numpy as np
import pytest
import torch

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.geometry.manifold import Lorentz
from hkconv.points import descent, kernel_energy, kernel_points
from hkconv.points.descent import STEP, descend, descent_step, riemannian_gradient


@pytest.mark.parametrize("curvature", [-1.0, -0.3, -2.5])
def test_step_is_the_exponential_map_of_the_autograd_gradient(curvature):
    R = (-curvature) ** -0.5
    points = kernel_points(5, 3, curvature, method="random").requires_grad_()
    (ambient,) = torch.autograd.grad(kernel_energy(points, curvature), points)
    points = points.detach()
    expected = Lorentz(curvature).egrad2rgrad(points, ambient)
    gradient, slope = riemannian_gradient(points[:, 1:].numpy() / R, R)
    np.testing.assert_allclose(gradient, expected[:, 1:].numpy(), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(slope**2, lorentz.inner(expected, expected).numpy(), rtol=1e-8)
    moved = descent_step(points[:, 1:].numpy() / R, R) * R
    np.testing.assert_allclose(moved, lorentz.exp(points, -STEP * expected, curvature)[:, 1:].numpy(), rtol=1e-11)


def test_a_point_at_the_origin_stays_finite():
    gradient, slope = riemannian_gradient(np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]), 1.0)
    assert np.isfinite(gradient).all() and slope[0] == 0


def test_points_almost_together_are_not_thrown_out_of_reach():
    space = np.array([[1e-7, 0.0], [0.0, 0.0]])
    assert np.abs(descent_step(space, 1.0)).max() < 0.11


def test_comes_close_to_the_optimum():
    points = kernel_points(2, 2, method="gradient")
    assert kernel_energy(points).item() == pytest.approx(2 * 2**0.5, abs=1e-3)
    assert points.shape == (2, 3) and points.dtype == torch.float64
    torch.testing.assert_close(points, lorentz.lift(points[:, 1:]))


def test_warns_where_the_steps_run_out(monkeypatch):
    monkeypatch.setattr(descent, "MAX_STEPS", 2000)
    with pytest.warns(UserWarning, match="did not converge in 2000 steps"):
        points = descend(4, 2, -0.3, seed=1)
    torch.testing.assert_close(points, lorentz.lift(points[:, 1:], -0.3))


def test_too_flat_a_space_is_refused():
    with pytest.raises(InputError, match="curvature must be at most -1e-08"):
        kernel_points(3, 2, -1e-12, method="gradient")
