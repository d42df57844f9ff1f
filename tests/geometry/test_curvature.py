import pytest
import torch

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.geometry.curvature import LearnedCurvature, curvature_radius, curvature_value


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


def test_a_learned_curvature_starts_where_it_is_told_and_is_taken_everywhere(curvature):
    learned = LearnedCurvature(curvature).double()
    assert curvature_value(learned) == pytest.approx(curvature)
    assert curvature_radius(learned).item() == pytest.approx(curvature_radius(curvature))
    s = torch.randn(5, 3, dtype=torch.float64)
    torch.testing.assert_close(lorentz.lift(s, learned), lorentz.lift(s, curvature))
    assert torch.autograd.gradcheck(lambda _: lorentz.lift(s, learned), (learned.log_curvature,))


def test_no_step_makes_a_learned_curvature_non_negative():
    learned = LearnedCurvature(-0.01)
    optimizer = torch.optim.SGD(learned.parameters(), lr=10.0)
    (-curvature_radius(learned)).backward()
    optimizer.step()
    assert -0.01 < curvature_value(learned) < 0


def test_a_learned_curvature_finds_that_of_given_distances():
    s = torch.randn(20, 3, dtype=torch.float64)
    given = lorentz.dist(lorentz.lift(s, -0.3), lorentz.lift(s.flip(0), -0.3), -0.3)
    learned = LearnedCurvature(-1.0).double()
    optimizer = torch.optim.Adam(learned.parameters(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        found = lorentz.dist(lorentz.lift(s, learned), lorentz.lift(s.flip(0), learned), learned)
        (found - given).square().mean().backward()
        optimizer.step()
    assert curvature_value(learned) == pytest.approx(-0.3, rel=1e-3)


def test_a_learned_curvature_returns_to_its_start():
    learned = LearnedCurvature(-2.0)
    with torch.no_grad():
        learned.log_curvature.fill_(3.0)
    learned.reset_parameters()
    assert curvature_value(learned) == pytest.approx(-2.0)
    assert str(learned) == "LearnedCurvature(-2)"
    with pytest.raises(InputError, match="curvature must be negative and finite, got 0"):
        LearnedCurvature(0.0)
