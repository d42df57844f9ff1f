import math

import pytest
import torch
from scipy.stats import spearmanr

from hkconv.geometry.lorentz import dist, exp0, inner, lift, oplus
from hkconv.viz.explorer.pca import Coordinates, frechet_mean, principal_frame, rank_correlation


def literal_log(x, u):
    """log_x(u) = d / sinh(d) (u - cosh(d) x)."""
    cosh = -inner(x, u)[:, None]
    d = torch.acosh(cosh)
    return d / torch.sinh(d) * (u - cosh * x)


@pytest.mark.parametrize("radius", [0.5, 3.0, 8.0])
def test_at_the_mean_the_logarithms_cancel(radius, cloud):
    points = cloud(60, 4, radius)
    mean = frechet_mean(points)
    assert literal_log(mean, points).sum(0).abs().max() < 1e-7 * 60 * radius
    best = dist(points, mean).square().sum()
    for _ in range(20):
        nearby = oplus(cloud(1, 4, 0.1)[0], mean)
        assert dist(points, nearby).square().sum() > best


def test_the_mean_of_points_far_apart_and_of_one_point(cloud):
    points = cloud(3, 2, 1.0)
    assert torch.allclose(frechet_mean(points[:1]), points[0], atol=1e-12)
    three = [2 * math.pi * number / 3 for number in range(3)]
    far = exp0(torch.tensor([[0, 18 * math.cos(a), 18 * math.sin(a)] for a in three], dtype=torch.float64))
    assert dist(frechet_mean(far), lift(torch.zeros(2, dtype=torch.float64))) < 1e-6


def test_a_projection_is_the_nearest_point_of_the_plane(cloud, generator):
    points = cloud(8, 4, 2.5)
    frame = principal_frame(points, 4)
    projected = frame.coordinates(points).in_plane(0, 2)

    def in_space(plane):
        """Points of the plane of axes 0 and 2, in the space they were cut out of."""
        return oplus(lift(plane @ frame.axes[[0, 2]]), frame.mean)

    found = projected[:, 1:].clone()
    least = dist(points, in_space(found))
    for _ in range(200):
        step = torch.randn(found.shape, generator=generator, dtype=torch.float64)
        for scale in (0.3, 0.01, 1e-4):
            assert (dist(points, in_space(found + scale * step)) > least).all()


def test_a_cloud_in_a_plane_is_shown_as_it_is(cloud, generator):
    flat = cloud(40, 2, 3.0)
    axes = torch.linalg.qr(torch.randn(6, 2, generator=generator, dtype=torch.float64))[0].T
    place = cloud(1, 6, 2.0)[0]
    points = oplus(lift(flat[:, 1:] @ axes), place)
    coordinates = principal_frame(points, 4).coordinates(points)
    assert coordinates.kept()[0, 1] == pytest.approx(1, abs=1e-9)
    shown = coordinates.in_plane(0, 1)
    assert torch.allclose(dist(shown[:, None], shown), dist(flat[:, None], flat), atol=1e-7)


def test_the_share_of_the_variance_that_a_plane_keeps(cloud):
    points = cloud(50, 5, 2.0) * torch.tensor([1, 3, 2, 1, 0.5, 0.2], dtype=torch.float64)
    points = lift(points[:, 1:])
    frame = principal_frame(points, 5)
    coordinates = frame.coordinates(points)
    kept = coordinates.kept()
    center = lift(torch.zeros(2, dtype=torch.float64))
    variance = dist(points, frame.mean).square().mean()
    assert coordinates.spread() == pytest.approx(variance.item(), rel=1e-9)
    for first, second in [(0, 1), (1, 3), (4, 2)]:
        share = dist(coordinates.in_plane(first, second), center).square().mean() / variance
        assert kept[first, second] == pytest.approx(share.item(), rel=1e-9)
        assert kept[first, second] == kept[second, first] > kept[first, first]
    assert kept[0, 1] == kept.max() < 1


def test_axes_follow_the_variance_of_the_logarithms(generator):
    spread = torch.tensor([0.2, 1.5, 0.1, 0.6], dtype=torch.float64)
    tangent = torch.randn(400, 4, generator=generator, dtype=torch.float64) * spread
    tangent = torch.cat([tangent, -tangent])  # so that the mean is the origin and logarithms there are known
    frame = principal_frame(exp0(torch.nn.functional.pad(tangent, (1, 0))), 3)
    values, vectors = torch.linalg.eigh(tangent.T @ tangent)
    assert frame.mean[0] == pytest.approx(1)
    assert torch.allclose((frame.axes @ vectors.flip(1)[:, :3]).abs(), torch.eye(3, dtype=torch.float64), atol=1e-6)
    assert (frame.axes.gather(1, frame.axes.abs().argmax(1, keepdim=True)) > 0).all()
    assert values[-1] > values[-2]


def test_two_dimensions_stay_as_they_are(cloud):
    points = cloud(10, 2, 4.0)
    coordinates = principal_frame(points, 6).coordinates(points)
    assert torch.allclose(coordinates.in_plane(0, 1), points, atol=1e-12)
    assert coordinates.kept()[0, 1] == pytest.approx(1)


def test_no_variance_at_all():
    points = lift(torch.ones(3, 4, dtype=torch.float64))
    coordinates = principal_frame(points, 3).coordinates(points)
    assert (coordinates.kept() == 1).all()
    assert isinstance(coordinates, Coordinates)
    assert coordinates.in_plane(0, 1)[:, 1:].abs().max() < 1e-9


def test_rank_correlation_is_spearmans(generator):
    first, second = torch.rand(2, 50, generator=generator, dtype=torch.float64)
    second = (5 * (first + second)).round()
    assert rank_correlation(first, second) == pytest.approx(spearmanr(first, second).statistic, abs=1e-12)
    assert rank_correlation(first, first.exp()) == pytest.approx(1)
    assert rank_correlation(first, torch.ones(50)) is None and rank_correlation(first[:0], first[:0]) is None
