import pytest
import torch

from hkconv.errors import InputError
from hkconv.geometry.curvature import curvature_radius


def test_radius_is_one_over_root_of_minus_curvature(curvature):
    assert curvature_radius(curvature) ** -2 == pytest.approx(-curvature)


def test_tensor_gives_the_same_radius_and_its_gradient(curvature):
    k = torch.tensor(curvature, dtype=torch.float64, requires_grad=True)
    R = curvature_radius(k)
    R.backward()
    assert R.item() == pytest.approx(curvature_radius(curvature))
    assert k.grad.item() == pytest.approx(0.5 * R.item() ** 3)


@pytest.mark.parametrize("bad", [0.0, -0.0, 1.0, float("nan"), -float("inf")])
@pytest.mark.parametrize("make", [float, torch.tensor])
def test_a_curvature_that_is_not_negative_is_rejected(bad, make):
    with pytest.raises(InputError, match="curvature must be"):
        curvature_radius(make(bad))


def test_a_vector_of_curvatures_is_rejected():
    with pytest.raises(InputError, match=r"0-d tensor, got shape \(2,\)"):
        curvature_radius(torch.tensor([-1.0, -2.0]))
