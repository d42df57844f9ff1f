import pytest
import torch

from hkconv.geometry import lorentz
from hkconv.points import kernel_points


@pytest.mark.parametrize("curvature", [-1.0, -0.3, -2.5])
def test_unit_standard_deviation_in_the_tangent_space(curvature):
    points = kernel_points(20_000, 3, curvature, method="random", seed=5)
    tangent = lorentz.log0(points, curvature)[:, 1:]
    torch.testing.assert_close(points, lorentz.lift(points[:, 1:], curvature))
    assert tangent.mean(0).abs().max() < 0.03
    torch.testing.assert_close(tangent.T.cov(), torch.eye(3, dtype=torch.float64), rtol=0, atol=0.05)


def test_seeds_differ():
    assert not torch.equal(kernel_points(4, 2, method="random"), kernel_points(4, 2, method="random", seed=1))
