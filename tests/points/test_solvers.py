import numpy as np
import pytest
import torch

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.geometry.manifold import Lorentz
from hkconv.points import kernel_energy, kernel_points, solvers
from hkconv.points.solvers import STEP, best_of_many_starts, descend, descent_step, minimize, riemannian_gradient


@pytest.mark.parametrize("K,dim,energy", [(8, 3, 32.549758), (10, 2, 47.186453), (4, 2, 10.534169)])
def test_every_seed_finds_the_same_energy(K, dim, energy):
    for seed in range(5):
        assert kernel_energy(best_of_many_starts(K, dim, -1.0, seed)).item() == pytest.approx(energy, abs=5e-7)


def test_points_on_a_line_are_stationary_gap_by_gap():
    """In one dimension geometry is flat; three points have energy 5/r + 2r, so r = sqrt(5/2)."""
    points = best_of_many_starts(3, 1, -1.0, seed=0)
    coordinates = lorentz.log0(points)[:, 1].sort().values
    expected = 2.5**0.5 * torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(coordinates, expected, rtol=0, atol=1e-8)


def test_nearly_flat_space_scales_like_euclidean_space():
    """Where repulsion A/s and distance B*s balance, as in flat space, both are half of the energy."""
    points = best_of_many_starts(6, 2, -1e-10, seed=0)
    radii = lorentz.dist(lorentz.origin(2, -1e-10, dtype=torch.float64), points, -1e-10)
    assert radii.sum().item() == pytest.approx(kernel_energy(points, -1e-10).item() / 2, rel=1e-7)


def test_unused_dimensions_stay_empty():
    points = best_of_many_starts(3, 6, -2.5, seed=0)
    assert points.shape == (3, 7) and (points[:, 3:] == 0).all()


@pytest.mark.parametrize("dim", [2, 16])
def test_many_points(dim):
    points = best_of_many_starts(64, dim, -1.0, seed=0)
    assert kernel_energy(points).item() < {2: 766.4116, 16: 740.83}[dim]


def rosenbrock(x):
    a, b = x[:, 0], x[:, 1]
    value = (1 - a) ** 2 + 100 * (b - a * a) ** 2
    return value, np.stack([-2 * (1 - a) - 400 * a * (b - a * a), 200 * (b - a * a)], axis=1)


def test_every_start_finds_the_minimum_of_a_curved_valley():
    start = np.array([[-1.2, 1.0], [0.0, 0.0], [3.0, -2.0], [1.0, 1.0]])
    x, value = minimize(rosenbrock, start, max_evaluations=300)
    np.testing.assert_allclose(x, 1, atol=1e-8)
    assert (value < 1e-16).all()


def test_starts_do_not_disturb_each_other():
    start = np.array([[-1.2, 1.0], [3.0, -2.0]])
    together, _ = minimize(rosenbrock, start, max_evaluations=25)
    for row, expected in zip(start, together):
        alone, _ = minimize(rosenbrock, row[None], max_evaluations=25)
        np.testing.assert_allclose(alone[0], expected, rtol=1e-9)


def test_steps_into_overflow_are_taken_back():
    def wall(x):
        return (np.exp(2000 * x) - x)[:, 0], 2000 * np.exp(2000 * x) - 1

    x, _ = minimize(wall, np.array([[-0.5], [0.0]]), max_evaluations=500)
    np.testing.assert_allclose(x, -np.log(2000) / 2000, rtol=1e-9)


def test_never_ends_above_its_start():
    start = np.random.default_rng(0).normal(size=(20, 2)) * 3
    _, value = minimize(rosenbrock, start, max_evaluations=7)
    assert (value <= rosenbrock(start)[0]).all()


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
    monkeypatch.setattr(solvers, "MAX_STEPS", 2000)
    with pytest.warns(UserWarning, match="did not converge in 2000 steps"):
        points = descend(4, 2, -0.3, seed=1)
    torch.testing.assert_close(points, lorentz.lift(points[:, 1:], -0.3))


def test_too_flat_a_space_is_refused():
    with pytest.raises(InputError, match="curvature must be at most -1e-08"):
        kernel_points(3, 2, -1e-12, method="gradient")
