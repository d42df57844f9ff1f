import geoopt
import pytest
import torch

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.geometry.manifold import Lorentz
from hkconv.language.averaging import load_average


class Mixed(torch.nn.Module):
    """A matrix, points of a hyperboloid and a counter."""

    def __init__(self, curvature, learnable=False):
        super().__init__()
        self.manifold = Lorentz(curvature, learnable)
        self.weight = torch.nn.Parameter(torch.randn(3, 4))
        points = lorentz.lift(torch.randn(5, 3), curvature)
        self.points = geoopt.ManifoldParameter(points, manifold=self.manifold)
        self.register_buffer("count", torch.tensor(int(torch.randint(100, (1,)))))


def copies(models):
    return [{name: tensor.clone() for name, tensor in model.state_dict().items()} for model in models]


def test_numbers_are_averaged_and_points_become_their_centroid(curvature):
    models = [Mixed(curvature) for _ in range(4)]
    states = copies(models)
    load_average(models[0], states)
    expected = sum(state["weight"].double() for state in states) / 4
    torch.testing.assert_close(models[0].weight.double(), expected, rtol=1e-6, atol=1e-7)
    # Literally: the sum, divided by its Lorentz norm.
    total = sum(state["points"].double() for state in states)
    square = total[:, :1] ** 2 - total[:, 1:].pow(2).sum(1, keepdim=True)
    torch.testing.assert_close(
        models[0].points.double(), total / (-curvature * square).sqrt(), rtol=1e-5, atol=1e-6, check_dtype=False
    )
    assert models[0].count == states[-1]["count"]


def test_the_average_of_learned_curvatures_has_its_points_on_it():
    models = [Mixed(curvature, learnable=True) for curvature in (-0.5, -1.0, -2.0)]
    load_average(models[0], copies(models))
    point = models[0].points.detach().double()
    curvature = models[0].points.manifold.curvature.item()
    assert curvature == pytest.approx(-1.0, rel=1e-6)
    torch.testing.assert_close(lorentz.inner(point, point), torch.full((5,), 1 / curvature).double(), rtol=1e-4, atol=0)


def test_one_checkpoint_is_its_own_average(curvature):
    first, second = Mixed(curvature), Mixed(curvature)
    load_average(second, copies([first]))
    torch.testing.assert_close(second.weight, first.weight, rtol=0, atol=0)
    torch.testing.assert_close(second.points, first.points, rtol=0, atol=0)


def test_nothing_to_average():
    with pytest.raises(InputError, match="no checkpoints"):
        load_average(Mixed(-1.0), [])
