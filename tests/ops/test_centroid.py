import pytest
import torch

from hkconv.geometry import lorentz
from hkconv.geometry.centroid import centroid_and_mass
from hkconv.ops.centroid import neighbor_centroid, segment_centroid
from hkconv.ops.neighbors import neighbors
from hkconv.testing import assert_on_manifold


def test_each_group_equals_the_dense_centroid_and_mass(dtype, curvature):
    x = lorentz.lift(torch.randn(20, 3, dtype=dtype), curvature)
    group = torch.randint(5, (20,))
    weight = torch.rand(20, dtype=dtype)
    weight[group == 2] = 0
    points, masses = segment_centroid(x, group, 6, weight, curvature)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    for g in range(6):
        expected = centroid_and_mass(x[group == g], weight[group == g], curvature=curvature)
        torch.testing.assert_close((points[g], masses[g]), expected, rtol=tolerance, atol=tolerance)


def test_far_clusters_keep_their_digits_in_float32():
    """At radius 8 the textbook quotient s / |s|_L is off by a large share of the spread; this one is not."""
    center = lorentz.exp0(torch.nn.functional.pad(8 * torch.eye(3, dtype=torch.float64)[:1], (1, 0)))
    cluster = lorentz.oplus(lorentz.lift(0.3 * torch.randn(50, 3, dtype=torch.float64)), center)
    x = lorentz.lift(cluster[:, 1:].float())
    exact = lorentz.centroid(lorentz.lift(x[:, 1:].double()))
    ours, _ = segment_centroid(x, torch.zeros(50, dtype=torch.long), 1)
    assert lorentz.dist(lorentz.lift(ours[0, 1:].double()), exact) < 1e-4
    s = x.sum(0)
    textbook = s / (-lorentz.inner(s, s)).sqrt()
    assert not lorentz.dist(lorentz.lift(textbook[1:].double()), exact) < 1e-2


def bipartite():
    """Nine sources, six targets: one with a single neighbor, one with the same three times, and 4 and 5 with none."""
    source = torch.tensor([0, 3, 8, 5, 5, 2, 5, 7, 1, 0, 8])
    target = torch.tensor([2, 0, 0, 3, 3, 0, 3, 2, 1, 0, 2])
    return torch.stack([source, target])


def cluster(radius, spread, points=50):
    """Points about one that is far away, as float32 has them."""
    center = lorentz.exp0(torch.nn.functional.pad(radius * torch.eye(3, dtype=torch.float64)[:1], (1, 0)))
    around = lorentz.oplus(lorentz.lift(spread * torch.randn(points, 3, dtype=torch.float64)), center)
    return lorentz.lift(around[:, 1:].float())


def of_all(x, weight=None):
    """The centroid of all points by way of one target's neighbors."""
    count = x.size(0)
    edge_index = torch.stack([torch.arange(count), torch.zeros(count, dtype=torch.long)])
    return neighbor_centroid(x, neighbors(edge_index, (count, 1)), weight)


@pytest.mark.parametrize("weighted", [False, True])
def test_centroid_of_neighbors_equals_that_of_segments_with_gradients(weighted, curvature):
    (source, target), found = bipartite(), neighbors(bipartite(), (9, 6))
    space = torch.randn(9, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(11, dtype=torch.float64, requires_grad=True) if weighted else None
    x, by_target = lorentz.lift(space, curvature), found.order.long()
    ours = neighbor_centroid(x, found, weight[by_target] if weighted else None, curvature)
    expected, _ = segment_centroid(x[source], target, 6, weight, curvature)
    torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)
    leaves, pull = [space, weight] if weighted else [space], torch.randn_like(ours)
    found, wanted = (torch.autograd.grad(out, leaves, pull, retain_graph=True) for out in (ours, expected))
    assert all(gradient.abs().max() > 0.01 for gradient in wanted)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_weights_of_zero_beside_a_single_other_one_have_their_gradients(seed):
    """The root is at its lower bound there, which another neighbor would leave."""
    torch.manual_seed(seed)
    x, found = (
        lorentz.lift(torch.randn(4, 3, dtype=torch.float64)),
        neighbors(torch.tensor([[0, 1, 2, 3], [0] * 4]), (4, 1)),
    )
    weight = torch.tensor([torch.rand(()), 0, 0, 0], dtype=torch.float64, requires_grad=True)
    ours = neighbor_centroid(x, found, weight)[0, 1:]
    expected = segment_centroid(x, torch.zeros(4, dtype=torch.long), 1, weight)[0][0, 1:]
    for one, other in zip(ours, expected):
        gradients = [torch.autograd.grad(value, weight, retain_graph=True)[0] for value in (one, other)]
        torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)


def test_centroid_of_neighbors_has_the_gradient_of_a_learned_curvature():
    found, space = neighbors(bipartite(), (9, 6)), torch.randn(9, 3, dtype=torch.float64)
    curvature = torch.tensor(-0.7, dtype=torch.float64, requires_grad=True)

    def run(k):
        return neighbor_centroid(lorentz.lift(space, k), found, None, k)

    assert run(curvature)[:4, 1:].requires_grad
    assert torch.autograd.gradcheck(run, (curvature,))


def test_centroid_of_no_neighbors_is_the_origin(dtype, curvature):
    found, space = neighbors(bipartite(), (9, 6)), torch.randn(9, 3, dtype=dtype, requires_grad=True)
    out = neighbor_centroid(lorentz.lift(space, curvature), found, None, curvature)
    origin = lorentz.origin(3, curvature, dtype=dtype)
    assert out.dtype == dtype
    assert torch.equal(out[4:], origin.expand(2, -1)) and (out[:4, 1:].abs().amax(1) > 0.01).all()
    out.square().sum().backward()
    assert torch.isfinite(space.grad).all()
    nothing, x = neighbors(torch.empty(2, 0, dtype=torch.long), (9, 2)), lorentz.lift(space, curvature)
    assert torch.equal(neighbor_centroid(x, nothing, None, curvature), origin.expand(2, -1))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("spread", [1e-3, 0.3])
@pytest.mark.parametrize("radius", [8.0, 12.0])
def test_centroid_of_far_neighbors_keeps_its_digits_in_float32(radius, spread, weighted):
    x = cluster(radius, spread)
    weight = torch.rand(50) if weighted else None
    exact = lorentz.centroid(lorentz.lift(x[:, 1:].double()), None if weight is None else weight.double())
    error = (of_all(x, weight)[0, 1:].double() - exact[1:]).norm() / exact[1:].norm()
    assert error < 1e-5
    total = (x if weight is None else x * weight[:, None]).sum(0)
    textbook = total / (-lorentz.inner(total, total)).sqrt()
    assert not (textbook[1:].double() - exact[1:]).norm() / exact[1:].norm() < 1e-5


@pytest.mark.parametrize("case", ["cluster", "one point", "all around", "with the origin"])
@pytest.mark.parametrize("size", [1e6, 1e10])
def test_centroid_of_neighbors_is_finite_wherever_they_are(size, case, dtype):
    """Where even float64 loses 1 - |r|^2, the root is kept at what the sum of weights says."""
    space = size * torch.nn.functional.normalize(torch.randn(6, 3, dtype=dtype))
    if case == "cluster":
        space = space[:1] * (1 + 1e-5 * torch.randn(6, 3, dtype=dtype))
    elif case == "one point":
        space = space[:1].repeat(6, 1)
    elif case == "with the origin":
        space[0] = 0
    space.requires_grad_()
    out = of_all(lorentz.lift(space))
    assert_on_manifold(out)
    if case == "one point" and size < 1e8:  # further out 1 - |r|^2 is below the rounding of 1
        torch.testing.assert_close(out[0, 1:], space[0], rtol=1e-3, atol=0)
    # No centroid is farther than its farthest point.
    assert out[0, 1:].norm() <= space.norm(dim=1).max() * (1 + 1e-5)
    out.sum().backward()
    assert torch.isfinite(space.grad).all()
