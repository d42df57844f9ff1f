import copy
import pickle

import geoopt
import literal
import pytest
import torch

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.nn import HDistance
from hkconv.ops import reference
from hkconv.testing import assert_on_manifold


def test_gives_the_distance_to_every_center(dtype, curvature):
    layer = HDistance(3, 4, curvature=curvature).to(dtype)
    x = lorentz.lift(torch.randn(5, 3, dtype=dtype), curvature)
    expected = torch.stack(
        [
            torch.stack([literal.dist(p, c, curvature) for c in layer.centers.detach().double()])
            for p in lorentz.lift(x[:, 1:].double(), curvature)
        ]
    )
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(layer(x).double(), expected, rtol=tolerance, atol=tolerance)


def test_any_leading_shape():
    layer = HDistance(3, 4)
    x = lorentz.lift(torch.randn(2, 5, 3))
    torch.testing.assert_close(layer(x), torch.stack([layer(x[0]), layer(x[1])]))


def test_centers_are_a_manifold_parameter_that_survives_copies_and_casts(curvature):
    layer = HDistance(3, 4, curvature=curvature)
    assert isinstance(layer.centers, geoopt.ManifoldParameter)
    assert_on_manifold(layer.double().centers.detach(), curvature, tolerance=1e-15)
    for clone in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert isinstance(clone.centers, geoopt.ManifoldParameter)
        assert torch.equal(clone.centers, layer.centers)
        assert clone.centers.manifold.curvature == curvature


def test_gradcheck_and_finite_gradient_at_a_center(dtype, curvature):
    layer = HDistance(3, 4, curvature=curvature).double()
    space = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s, _: layer(lorentz.lift(s, curvature)), (space, layer.centers))
    layer = layer.to(dtype)
    at_center = layer.centers[:, 1:].detach().clone().requires_grad_()
    layer(lorentz.lift(at_center, curvature)).sum().backward()
    assert torch.isfinite(at_center.grad).all() and torch.isfinite(layer.centers.grad).all()


def test_reset_moves_the_centers_and_keeps_them_on_the_manifold(curvature):
    layer = HDistance(3, 4, curvature=curvature)
    before = layer.centers.detach().clone()
    layer.reset_parameters()
    assert not torch.equal(before, layer.centers)
    assert_on_manifold(layer.centers.detach(), curvature)


def test_repr_and_bad_input():
    assert str(HDistance(3, 4)) == "HDistance(3, 4)"
    with pytest.raises(InputError, match="x must have 4 coordinates"):
        HDistance(3, 4)(torch.randn(2, 3))


def test_many_points_are_taken_in_pieces_with_the_same_distances_and_gradients(dtype, curvature, monkeypatch):
    layer = HDistance(3, 4, curvature=curvature).to(dtype)
    x = lorentz.lift(torch.randn(50, 3, dtype=dtype), curvature)
    found, largest = [], []
    for numbers in (10**6, 200):
        monkeypatch.setattr(reference, "NUMBERS_AT_ONCE", numbers)
        point, sizes = x.clone().requires_grad_(), [0]
        with torch.autograd.graph.saved_tensors_hooks(lambda t, sizes=sizes: sizes.append(t.numel()) or t, lambda t: t):
            out = layer(point)
        found.append([out, *torch.autograd.grad(out.square().sum(), [point, layer.centers])])
        largest.append(max(sizes))
    for whole, parts in zip(*found):
        torch.testing.assert_close(parts, whole, rtol=1e-4 if dtype == torch.float32 else 1e-12, atol=0)
    assert largest[1] < 200 < largest[0]
