import math

import pytest
import torch
from tree_cases import random_trees

from hkconv.geometry import lorentz
from hkconv.language.probes import PROBES, chain_depths, chain_distances, depth_loss, distance_loss
from hkconv.language.tree_batches import batch_trees

LENGTHS = (1, 4, 9, 6)


@pytest.fixture
def batch():
    (batch,) = batch_trees(random_trees(0, LENGTHS))
    return batch


def make_probe(name, dtype, generator, dim=7, rank=5, scale=1.0):
    probe = PROBES[name](dim, rank, generator).to(dtype)
    with torch.no_grad():
        probe.weight.mul_(20 * scale / math.sqrt(dim))
    return probe


def literal_map(name, B, h):
    """The vector Bh, or in the Poincaré ball of curvature -1 the point at distance |Bh| in its direction."""
    v = [sum(b * x for b, x in zip(row, h)) for row in B]
    if name == "euclidean":
        return v
    r = math.sqrt(sum(x * x for x in v))
    return [math.tanh(r / 2) * x / r for x in v]


def literal_distance(name, p, q):
    square = sum((a - b) ** 2 for a, b in zip(p, q))
    if name == "euclidean":
        return math.sqrt(square)
    room = (1 - sum(a * a for a in p)) * (1 - sum(b * b for b in q))
    return math.acosh(1 + 2 * square / room)


def literal_losses(name, probe, states, batch):
    """The two losses in Python's numbers, sentence by sentence, word by word."""
    B = probe.weight.double().tolist()
    distance, depth = [], []
    for sentence, present, gold, depths in zip(
        states.double().tolist(), batch.present, batch.distances.tolist(), batch.depths.tolist()
    ):
        n = int(present.sum())
        points = [literal_map(name, B, h) for h in sentence[:n]]
        origin = [0.0] * len(B)
        pairs = ((i, j) for i in range(n) for j in range(n))
        distance.append(
            sum(abs(literal_distance(name, points[i], points[j]) ** 2 - gold[i][j]) for i, j in pairs) / n**2
        )
        depth.append(sum(abs(literal_distance(name, points[i], origin) ** 2 - depths[i]) for i in range(n)) / n)
    return sum(distance) / len(distance), sum(depth) / len(depth)


@pytest.mark.parametrize("name", PROBES)
def test_losses_are_the_equations(name, batch, dtype, generator):
    states = torch.randn(*batch.rows.shape, 7, dtype=dtype, generator=generator)
    probe = make_probe(name, dtype, generator)
    found = (
        distance_loss(probe.distances(states), batch.distances, batch.present).item(),
        depth_loss(probe.depths(states), batch.depths, batch.present).item(),
    )
    assert found == pytest.approx(
        literal_losses(name, probe, states, batch), rel=2e-6 if dtype == torch.float32 else 1e-12
    )


@pytest.mark.parametrize("name", PROBES)
def test_padding_changes_neither_loss_nor_gradient(name, batch, generator):
    states = torch.randn(*batch.rows.shape, 7, dtype=torch.float64, generator=generator)
    gradients = []
    for padding in (0.0, 100.0):
        probe = make_probe(name, torch.float64, torch.Generator().manual_seed(0))
        filled = states.masked_fill(~batch.present.unsqueeze(-1), padding)
        loss = distance_loss(probe.distances(filled), batch.distances, batch.present)
        loss = loss + depth_loss(probe.depths(filled), batch.depths, batch.present)
        loss.backward()
        gradients.append(torch.cat([probe.weight.grad.flatten(), loss.detach()[None]]))
    torch.testing.assert_close(*gradients, rtol=1e-13, atol=0)
    assert gradients[0].isfinite().all()


@pytest.mark.parametrize("name", PROBES)
def test_gradients_by_differences(name, batch, generator):
    states = torch.randn(*batch.rows.shape, 4, dtype=torch.float64, generator=generator)
    probe = make_probe(name, torch.float64, generator, dim=4, rank=3)
    start = probe.weight.detach().clone().requires_grad_()
    del probe.weight

    def losses(weight):
        probe.weight = weight
        return (
            distance_loss(probe.distances(states), batch.distances, batch.present),
            depth_loss(probe.depths(states), batch.depths, batch.present),
        )

    assert torch.autograd.gradcheck(losses, (start,))


@pytest.mark.parametrize("scale", [1e-3, 0.3, 1.0, 5.0])
def test_hyperbolic_distances_are_those_of_the_geometry(scale, dtype, generator):
    # Beyond radius 8, and pairs that almost coincide.
    states = torch.randn(3, 8, 7, dtype=dtype, generator=generator)
    states[:, 1] = states[:, 0] * (1 + 1e-3)
    probe = make_probe("hyperbolic", dtype, generator, scale=scale)
    exact = probe.double()
    points = lorentz.exp0(torch.nn.functional.pad(states.double() @ exact.weight.t(), (1, 0)))
    expected = lorentz.dist(points.unsqueeze(1), points.unsqueeze(2)).square()
    assert scale < 5 or points[..., 0].max() > math.cosh(8)
    found = probe.to(dtype).distances(states).double()
    relative, absolute = (1e-4, 1e-5) if dtype == torch.float32 else (1e-11, 1e-13)
    torch.testing.assert_close(found, expected, rtol=relative, atol=absolute)
    assert not found.diagonal(dim1=1, dim2=2).any()


def test_hyperbolic_depths_are_distances_to_the_origin(dtype, generator):
    states = torch.randn(2, 6, 7, dtype=dtype, generator=generator)
    probe = make_probe("hyperbolic", dtype, generator)
    points = lorentz.exp0(torch.nn.functional.pad(states @ probe.weight.t(), (1, 0)))
    expected = lorentz.dist(points, lorentz.origin(5, dtype=dtype)).square()
    torch.testing.assert_close(probe.depths(states), expected)


@pytest.mark.parametrize("scale", [0.0, 1e3, 1e10])
def test_no_state_makes_a_hyperbolic_loss_or_gradient_nan(scale, batch, generator):
    states = scale * torch.randn(*batch.rows.shape, 7, generator=generator)
    probe = make_probe("hyperbolic", torch.float32, generator)
    loss = distance_loss(probe.distances(states), batch.distances, batch.present)
    loss.backward()
    assert loss.isfinite() and probe.weight.grad.isfinite().all()


def test_the_chain():
    present = torch.tensor([[True, True, True], [True, False, False]])
    assert chain_distances(present).tolist() == [[[0, 1, 2], [1, 0, 1], [2, 1, 0]]] * 2
    assert chain_depths(present).tolist() == [[0, 1, 2]] * 2


def test_equal_generators_make_equal_probes():
    first, second, third = (PROBES["euclidean"](4, 3, torch.Generator().manual_seed(seed)).weight for seed in (1, 1, 2))
    assert torch.equal(first, second) and not torch.equal(first, third)
    assert first.abs().max() <= 0.05
