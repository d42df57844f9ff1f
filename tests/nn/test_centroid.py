import math

import literal
import pytest
import torch

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.nn import MassScaling, global_centroid_pool
from hkconv.nn.centroid import mix, pool_with_mass
from hkconv.testing import assert_on_manifold


def test_pools_every_graph_to_its_literal_centroid(dtype, curvature):
    x = lorentz.lift(torch.randn(6, 3, dtype=dtype), curvature)
    batch = torch.tensor([0, 2, 0, 2, 2, 0])
    out = global_centroid_pool(x, batch, 4, curvature=curvature)
    groups = [list(x[batch == g].double()) for g in range(4)]
    empty = literal.origin(3, curvature)
    expected = torch.stack([literal.centroid(g, [1.0] * len(g), curvature) if g else empty for g in groups])
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)


def test_size_defaults_to_the_last_graph_and_no_batch_means_one_graph():
    x = lorentz.lift(torch.randn(6, 3, dtype=torch.float64))
    halves = torch.stack([lorentz.centroid(x[:3]), lorentz.centroid(x[3:])])
    torch.testing.assert_close(global_centroid_pool(x, torch.tensor([0, 0, 0, 1, 1, 1])), halves)
    torch.testing.assert_close(global_centroid_pool(x, None), lorentz.centroid(x).unsqueeze(0))


def test_mass_scaling_starts_as_the_identity_and_then_moves_by_the_equation(curvature):
    layer = MassScaling(3).double()
    point = lorentz.lift(torch.randn(5, 3, dtype=torch.float64), curvature)
    mass = torch.rand(5, dtype=torch.float64) * 10
    torch.testing.assert_close(layer(point, mass, curvature), point)
    with torch.no_grad():
        layer.scale.copy_(torch.tensor([0.5, -1.0, 0.0]))
        layer.shift.copy_(torch.tensor([0.0, 2.0, -1.0]))
    amount = torch.log(1 + mass).unsqueeze(1)
    out = layer(point, mass, curvature)
    torch.testing.assert_close(out[:, 1:], point[:, 1:] * (1 + layer.scale * amount) + layer.shift * amount)
    assert_on_manifold(out, curvature)


def test_mix_is_the_centroid_of_two_with_weights_that_sum_to_one(dtype, curvature):
    first, second = (lorentz.lift(torch.randn(5, 3, dtype=dtype), curvature) for _ in range(2))
    share = torch.sigmoid(torch.tensor(-0.4, dtype=torch.float64)).item()
    out = mix(first, second, torch.tensor(-0.4, dtype=dtype), curvature)
    pairs = zip(first.double(), second.double())
    expected = torch.stack([literal.centroid(list(pair), [1 - share, share], curvature) for pair in pairs])
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)


def test_mass_of_a_pool_moves_with_nothing(curvature):
    """Mass and pooled shape are those of the points among themselves: boosts and permutations change no mass."""
    x = lorentz.lift(torch.randn(6, 3, dtype=torch.float64), curvature)
    batch = torch.tensor([0, 1, 0, 1, 1, 0])
    _, mass = pool_with_mass(x, batch, 2, curvature=curvature)
    center = lorentz.lift(torch.randn(1, 3, dtype=torch.float64), curvature)
    torch.testing.assert_close(
        pool_with_mass(lorentz.oplus(x, center, curvature), batch, 2, curvature=curvature)[1], mass
    )
    order = torch.randperm(6)
    torch.testing.assert_close(pool_with_mass(x[order], batch[order], 2, curvature=curvature)[1], mass)


def test_gradcheck(curvature):
    space = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    batch = torch.tensor([0, 2, 0, 2, 2, 0])

    def run(space):
        return pool_with_mass(lorentz.lift(space, curvature), batch, 3, curvature=curvature)

    assert torch.autograd.gradcheck(run, (space,))
    layer = MassScaling(3).double()
    mass = torch.rand(6, dtype=torch.float64, requires_grad=True)
    inputs = (space, mass, *layer.parameters())
    assert torch.autograd.gradcheck(lambda s, m, *_: layer(lorentz.lift(s, curvature), m, curvature), inputs)


def test_wrong_batch_is_named():
    with pytest.raises(InputError, match=r"batch must have shape \(6,\), got \(5,\)"):
        global_centroid_pool(lorentz.lift(torch.randn(6, 3)), torch.zeros(5, dtype=torch.long))


@pytest.mark.parametrize(("radius", "tolerance"), [(0.0, 1e-6), (1.0, 1e-6), (4.0, 2e-5)])
@pytest.mark.parametrize("logit", [-3.0, 0.0, 2.0])
def test_mix_is_the_weighted_centroid_of_both(logit, radius, tolerance, curvature):
    logit = torch.tensor(logit, dtype=torch.float64)
    space = torch.nn.functional.normalize(torch.randn(2, 5, 10, 4, dtype=torch.float64), dim=-1) * math.sinh(radius)
    x, y = lorentz.lift(space, curvature)
    weight = torch.stack([1 - logit.sigmoid(), logit.sigmoid()])
    expected = lorentz.centroid(torch.stack([x, y], dim=-2), weight, curvature=curvature)
    torch.testing.assert_close(mix(x, y, logit, curvature), expected, rtol=1e-9, atol=1e-9)
    x, y = lorentz.lift(space.float(), curvature)
    found = mix(x, y, logit.float(), curvature).double()
    assert ((found - expected).norm(dim=-1) / expected.norm(dim=-1)).max() < tolerance
    torch.testing.assert_close(mix(x, x, logit.float(), curvature), x)
