import itertools
import math

import numpy as np
import pytest
import torch

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.points import kernel_energy, kernel_points
from hkconv.points.energy import to_polar
from hkconv.points.solvers import tangent_energy

CURVATURES = [-1.0, -0.3, -2.5]


def literal_energy(points, curvature):
    """Equation (3) pair by pair, with equation (1) for the distance."""
    R = (-curvature) ** -0.5
    K, coordinates = points.shape

    def dist(x, y):
        inner = -x[0] * y[0] + sum(x[i] * y[i] for i in range(1, coordinates))
        return R * math.acosh(max(curvature * inner, 1.0))

    rows = points.tolist()
    origin = [R] + [0.0] * (coordinates - 1)
    pairs = ((k, j) for k, j in itertools.product(range(K), repeat=2) if k != j)
    return sum(1 / dist(rows[j], rows[k]) for k, j in pairs) + sum(dist(origin, row) for row in rows)


@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize("dtype,tolerance", [(torch.float64, 1e-11), (torch.float32, 1e-5)])
def test_equals_the_equation_pair_by_pair(curvature, dtype, tolerance):
    points = kernel_points(7, 3, curvature, method="random", seed=3)
    energy = kernel_energy(points.to(dtype), curvature)
    assert energy.shape == () and energy.dtype == dtype
    assert energy.item() == pytest.approx(literal_energy(points, curvature), rel=tolerance)


def test_permutations_and_rotations_change_nothing():
    points = kernel_points(6, 3, method="random")
    energy = kernel_energy(points)
    rotation = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64)).Q
    rotated = torch.cat([points[:, :1], points[:, 1:] @ rotation], dim=1)
    torch.testing.assert_close(kernel_energy(points[torch.randperm(6)]), energy, rtol=1e-13, atol=0)
    torch.testing.assert_close(kernel_energy(rotated), energy, rtol=1e-13, atol=0)


def test_gradient():
    points = kernel_points(4, 2, -0.3, method="random").requires_grad_()
    curvature = torch.tensor(-0.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(kernel_energy, (points, curvature))


def test_one_point_has_only_its_distance_from_the_origin():
    assert kernel_energy(torch.tensor([[math.cosh(1.5), math.sinh(1.5)]])).item() == pytest.approx(1.5, rel=1e-6)


def test_coincident_points_have_infinite_energy():
    assert kernel_energy(kernel_points(1, 2).expand(2, 3)).item() == math.inf


@pytest.mark.parametrize("points", [torch.ones(3), torch.ones(2, 3, 4), torch.ones(3, 1), torch.ones(3, 2).long()])
def test_bad_points(points):
    with pytest.raises(InputError, match=r"points must be a floating-point tensor of shape \(K, dim\+1\)"):
        kernel_energy(points)


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("curvature", [-1.0, -0.3, -2.5, -50.0, -1e-6])
def test_energy_and_gradient_equal_autograd(curvature, held):
    generator = torch.Generator().manual_seed(0)
    tangent = torch.randn(3, 5, 2, dtype=torch.float64, generator=generator)
    energy, gradient = tangent_energy(tangent.numpy(), curvature, held)
    for one, its_energy, its_gradient in zip(tangent, energy, gradient):
        one = one.clone().requires_grad_()
        padded = torch.nn.functional.pad(one, (1, 0, int(held), 0))
        expected = kernel_energy(lorentz.exp0(padded, curvature), curvature)
        (expected_gradient,) = torch.autograd.grad(expected, one)
        assert its_energy == pytest.approx(expected.item(), rel=1e-12)
        np.testing.assert_allclose(its_gradient, expected_gradient.numpy(), rtol=1e-9, atol=1e-9)


def test_an_arrangement_captured_by_the_origin_counts_as_settled():
    tangent = np.array([[[1e-4, 0.0], [1.0, 0.0]], [[1e-2, 0.0], [1.0, 0.0]]])
    _, gradient = tangent_energy(tangent, -1.0, held=False)
    assert (gradient[0] == 0).all() and (gradient[1] != 0).any()


def test_zero_vector_has_no_direction():
    length, direction = to_polar(np.array([[3.0, 4.0], [0.0, 0.0]]))
    assert length.tolist() == [5.0, 0.0] and direction.tolist() == [[0.6, 0.8], [0.0, 0.0]]
