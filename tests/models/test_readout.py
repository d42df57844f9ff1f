import math

import pytest
import torch

from hkconv.geometry import lorentz
from hkconv.models.readout import LayerReadout
from hkconv.nn import global_centroid_pool

BATCH = torch.tensor([0, 2, 0, 2, 2, 0])


def make(task, mass=False, curvature=-1.0, dtype=torch.float64):
    return LayerReadout(task, 3, 4, mass=mass, curvature=curvature, temperature=0.3).to(dtype)


def cloud(curvature, dtype):
    return lorentz.lift(torch.randn(6, 3, dtype=dtype), curvature)


@pytest.mark.parametrize("task", ["node", "graph"])
def test_logits_are_negated_distances_over_the_temperature(task, dtype, curvature):
    readout, x = make(task, curvature=curvature, dtype=dtype), cloud(curvature, dtype)
    points = x if task == "node" else global_centroid_pool(x, BATCH, 3, curvature=curvature)
    d = lorentz.dist(points.unsqueeze(1), readout.distance.centers, curvature)
    torch.testing.assert_close(readout.read(x, BATCH, 3, None), -d / 0.3)


def test_link_logits_are_those_of_the_decoder(curvature):
    readout, x = make("link", curvature=curvature), cloud(curvature, torch.float64)
    pairs = torch.tensor([[0, 1, 2], [3, 1, 5]])
    expected = 2.0 - lorentz.dist(x[pairs[0]], x[pairs[1]], curvature).square()
    torch.testing.assert_close(readout.read(x, None, None, pairs), expected)


def test_mass_of_the_pooling_is_kept_and_does_not_depend_on_the_order_of_nodes(curvature):
    """A graph and its nodes twice have one centroid; the mass tells them apart."""
    readout, x = make("graph", mass=True, curvature=curvature), cloud(curvature, torch.float64)
    batch, doubled = torch.zeros(6, dtype=torch.long), torch.zeros(12, dtype=torch.long)
    once, twice = readout.read(x, batch, 1, None), readout.read(x.repeat(2, 1), doubled, 1, None)
    torch.testing.assert_close(once, twice)  # scale and shift start at zero
    with torch.no_grad():
        readout.pool_mass.scale.fill_(0.5)
        readout.pool_mass.shift.fill_(-0.2)
    once, twice = readout.read(x, batch, 1, None), readout.read(x.repeat(2, 1), doubled, 1, None)
    assert (once - twice).abs().max() > 0.1
    torch.testing.assert_close(readout.read(x[torch.randperm(6)], batch, 1, None), once)


def test_an_empty_graph_has_finite_logits_with_mass():
    readout = make("graph", mass=True)
    with torch.no_grad():
        readout.pool_mass.scale.fill_(0.5)
    logits = readout.read(cloud(-1.0, torch.float64), BATCH, 3, None)
    logits.sum().backward()
    assert logits.isfinite().all() and readout.pool_mass.shift.grad.isfinite().all()


def test_reset_returns_the_temperature():
    readout = make("node")
    before = readout.distance.centers.detach().clone()
    with torch.no_grad():
        readout.log_temperature.fill_(2.0)
    readout.reset_parameters()
    assert readout.log_temperature.item() == pytest.approx(math.log(0.3))
    assert not torch.equal(readout.distance.centers, before)
