import math

import pytest
import torch

from hkconv.geometry import lorentz
from hkconv.points import kernel_energy, kernel_points
from hkconv.points.placements import best_simplex, canonical_pose, random_points, simplex_energy, simplex_radius
from hkconv.points.solvers import best_of_many_starts


@pytest.mark.parametrize("curvature", [-1.0, -0.3, -2.5])
@pytest.mark.parametrize("K", [2, 3, 4, 5, 7])
def test_as_low_as_the_search(K, curvature):
    closed = kernel_energy(best_simplex(K, K - 1, curvature), curvature).item()
    searched = kernel_energy(best_of_many_starts(K, K - 1, curvature, seed=0), curvature).item()
    assert closed == pytest.approx(searched, rel=1e-11)


@pytest.mark.parametrize("curvature", [-1.0, -0.3, -2.5, -300.0, -1e-8])
@pytest.mark.parametrize("K,dim", [(2, 1), (3, 2), (4, 6), (10, 64)])
def test_energy_of_the_points_is_the_formula(K, dim, curvature):
    points = best_simplex(K, dim, curvature)
    assert points.shape == (K, dim + 1)
    arrangements = [(K, False), (K - 1, True)][: 1 if K == 2 else 2]
    expected = min(simplex_energy(*arrangement, curvature) for arrangement in arrangements)
    assert kernel_energy(points, curvature).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("curvature", [-1.0, -0.3, -2.5])
def test_radius_is_the_root_to_machine_precision(curvature, centered):
    """Equation (3) over the radius, differentiated by autograd through the points."""
    radius = torch.tensor(simplex_radius(4, centered, curvature), dtype=torch.float64, requires_grad=True)
    corners = torch.nn.functional.normalize(torch.eye(4, dtype=torch.float64) - 0.25, dim=-1)
    tangent = torch.nn.functional.pad(corners * radius, (1, 0, int(centered), 0))
    energy = kernel_energy(lorentz.exp0(tangent, curvature), curvature)
    (slope,) = torch.autograd.grad(energy, radius)
    assert energy.item() == pytest.approx(simplex_energy(4, centered, curvature), rel=1e-13)
    assert abs(slope.item()) < 1e-13


def test_two_points_are_sqrt_2_apart_at_any_curvature():
    for curvature in (-1.0, -0.3, -2.5):
        assert 2 * simplex_radius(2, False, curvature) == pytest.approx(math.sqrt(2), rel=1e-15)


def test_the_centre_is_taken_where_space_is_flat_and_left_where_it_is_curved():
    flat, curved = best_simplex(4, 3, -0.3), best_simplex(4, 3, -1.0)
    torch.testing.assert_close(flat[0], lorentz.origin(3, -0.3, dtype=torch.float64))
    torch.testing.assert_close(curved[1:, 0], curved[:1, 0].expand(3))
    assert curved[0, 0] > 1.1


def test_three_points_on_a_line_beat_the_triangle():
    assert kernel_energy(best_simplex(3, 2, -1.0)).item() == pytest.approx(2 * math.sqrt(10), rel=1e-14)
    assert simplex_energy(3, False, -1.0) == pytest.approx(6.335722, abs=5e-7)


def test_one_point_is_the_origin():
    torch.testing.assert_close(best_simplex(1, 3, -0.25), torch.tensor([[2.0, 0, 0, 0]], dtype=torch.float64))


@pytest.mark.parametrize("curvature", [-1.0, -0.3, -2.5])
def test_unit_standard_deviation_in_the_tangent_space(curvature):
    points = kernel_points(20_000, 3, curvature, method="random", seed=5)
    tangent = lorentz.log0(points, curvature)[:, 1:]
    torch.testing.assert_close(points, lorentz.lift(points[:, 1:], curvature))
    assert tangent.mean(0).abs().max() < 0.03
    torch.testing.assert_close(tangent.T.cov(), torch.eye(3, dtype=torch.float64), rtol=0, atol=0.05)


def test_seeds_differ():
    assert not torch.equal(kernel_points(4, 2, method="random"), kernel_points(4, 2, method="random", seed=1))


def test_keeps_lengths_and_angles_and_forgets_rotations():
    vectors = torch.randn(5, 3, dtype=torch.float64)
    posed = canonical_pose(vectors)
    torch.testing.assert_close(posed @ posed.T, vectors @ vectors.T)
    assert (posed.triu(1) == 0).all() and (posed.diagonal() >= 0).all()
    rotation = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64)).Q
    torch.testing.assert_close(canonical_pose(vectors @ rotation), posed)


@pytest.mark.parametrize("std", [0.5, 1.0, 2.0])
def test_random_points_have_the_deviation_asked_for(std):
    tangent = lorentz.log0(random_points(4000, 2, -0.3, seed=1, std=std), -0.3)[:, 1:]
    assert tangent.std().item() == pytest.approx(std, rel=0.05)
