import torch

from hkconv.geometry import lorentz
from hkconv.geometry.centroid import centroid_and_mass
from hkconv.ops.centroid import segment_centroid


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
    centre = lorentz.exp0(torch.nn.functional.pad(8 * torch.eye(3, dtype=torch.float64)[:1], (1, 0)))
    cluster = lorentz.oplus(lorentz.lift(0.3 * torch.randn(50, 3, dtype=torch.float64)), centre)
    x = lorentz.lift(cluster[:, 1:].float())
    exact = lorentz.centroid(lorentz.lift(x[:, 1:].double()))
    ours, _ = segment_centroid(x, torch.zeros(50, dtype=torch.long), 1)
    assert lorentz.dist(lorentz.lift(ours[0, 1:].double()), exact) < 1e-4
    s = x.sum(0)
    textbook = s / (-lorentz.inner(s, s)).sqrt()
    assert not lorentz.dist(lorentz.lift(textbook[1:].double()), exact) < 1e-2
