import numpy as np
import pytest
import torch

from hkconv.geometry import lorentz
from hkconv.points import kernel_energy
from hkconv.points.multistart import tangent_energy
from hkconv.points.polar import to_polar


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
