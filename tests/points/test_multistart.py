import pytest
import torch

from hkconv.geometry import lorentz
from hkconv.points import kernel_energy
from hkconv.points.multistart import best_of_many_starts


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
