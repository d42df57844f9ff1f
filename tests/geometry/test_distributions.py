import math

import numpy as np
import pytest
import torch

from hkconv.errors import InputError
from hkconv.geometry import lorentz

from . import literal
from .helpers import assert_finite_gradients, assert_on_manifold, at_origin, curvature_scale, random_points

COV = torch.tensor([[0.5, 0.2], [0.2, 0.3]], dtype=torch.float64)


def polar_grid(curvature, reach=14.0):
    """Points of L² in polar coordinates about the origin, and the volume that each stands for."""
    R = curvature_scale(curvature)
    nodes, weights = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(160))
    radius, width = (nodes + 1) * reach / 2, weights * reach / 2
    angle = torch.arange(128, dtype=torch.float64) * 2 * math.pi / 128
    circle = torch.stack([angle.cos(), angle.sin()], dim=-1)
    x = lorentz.exp0(at_origin(radius[:, None, None] * circle), curvature)
    volume = width * R * torch.sinh(radius / R) * 2 * math.pi / 128
    return x, volume[:, None]


@pytest.mark.parametrize("curvature", [-1.0, -0.3])
@pytest.mark.parametrize("at", [(0.0, 0.0), (0.9, -0.6)])
def test_density_integrates_to_one(curvature, at):
    mean = lorentz.lift(torch.tensor(at, dtype=torch.float64), curvature)
    x, volume = polar_grid(curvature)
    density = lorentz.wrapped_normal_log_prob(x, mean, COV, curvature).exp()
    assert (density * volume).sum().item() == pytest.approx(1.0, abs=1e-6)


def test_density_is_that_of_the_samples(curvature, generator):
    """The mean of 1/p over samples in a disk is its volume, 2πR² (cosh(r/R) - 1)."""
    R, radius = curvature_scale(curvature), 0.8
    mean = random_points(2, curvature=curvature)
    z = lorentz.wrapped_normal(mean, COV, 40_000, generator, curvature)
    inside = lorentz.dist(mean, z, curvature) < radius
    volume = (inside / lorentz.wrapped_normal_log_prob(z, mean, COV, curvature).exp()).mean().item()
    assert volume == pytest.approx(2 * math.pi * R**2 * (math.cosh(radius / R) - 1), rel=0.03)


def test_samples_have_the_covariance_in_the_tangent_space_at_the_origin(curvature, generator):
    mean, o = random_points(2, curvature=curvature), lorentz.origin(2, curvature, dtype=torch.float64)
    z = lorentz.wrapped_normal(mean, COV, 40_000, generator, curvature)
    assert_on_manifold(z, curvature)
    v = literal.transport(mean, o, literal.log(mean, z, curvature), curvature)
    torch.testing.assert_close(v[:, 0], torch.zeros(40_000, dtype=torch.float64), atol=1e-6, rtol=0)
    torch.testing.assert_close(v[:, 1:].mean(0), torch.zeros(2, dtype=torch.float64), atol=0.02, rtol=0)
    torch.testing.assert_close(v[:, 1:].T.cov(), COV, atol=0.015, rtol=0)


def test_log_density_is_the_normal_one_and_the_volume_of_the_map(curvature):
    """log N(v; 0, Σ) - (m - 1) log(R sinh(|v|/R) / |v|) in four dimensions."""
    R = curvature_scale(curvature)
    root = torch.randn(4, 4, dtype=torch.float64)
    cov = root @ root.T + torch.eye(4, dtype=torch.float64)
    mean, z = random_points(4, curvature=curvature), random_points(6, 4, curvature=curvature)
    o = lorentz.origin(4, curvature, dtype=torch.float64)
    v = literal.transport(mean, o, literal.log(mean, z, curvature), curvature)[:, 1:]
    normal = torch.distributions.MultivariateNormal(torch.zeros(4, dtype=torch.float64), cov)
    length = v.norm(dim=-1)
    expected = normal.log_prob(v) - 3 * torch.log(R * torch.sinh(length / R) / length)
    torch.testing.assert_close(lorentz.wrapped_normal_log_prob(z, mean, cov, curvature), expected, atol=1e-8, rtol=1e-8)


def test_a_diagonal_stands_for_the_full_matrix(dtype, curvature):
    mean = random_points(3, curvature=curvature, dtype=dtype)
    diagonal = torch.tensor([0.2, 0.5, 1.5], dtype=dtype)
    one, other = (
        lorentz.wrapped_normal(mean, cov, 5, torch.Generator().manual_seed(1), curvature)
        for cov in (diagonal, diagonal.diag())
    )
    torch.testing.assert_close(one, other)
    one, other = (lorentz.wrapped_normal_log_prob(one, mean, cov, curvature) for cov in (diagonal, diagonal.diag()))
    torch.testing.assert_close(one, other)


def test_the_generator_decides_the_samples():
    mean, cov = random_points(2), torch.ones(2, dtype=torch.float64)

    def draw(seed):
        return lorentz.wrapped_normal(mean, cov, 4, torch.Generator().manual_seed(seed))

    assert draw(3).equal(draw(3))
    assert not draw(3).equal(draw(4))


def test_log_density_at_the_mean_has_a_finite_gradient(dtype, curvature):
    mean = random_points(3, curvature=curvature, dtype=dtype)
    cov = torch.ones(3, dtype=dtype)

    def log_prob(z, mean, cov):
        return lorentz.wrapped_normal_log_prob(z, mean, cov, curvature)

    assert_finite_gradients(log_prob, mean, mean, cov)
    peak = -1.5 * math.log(2 * math.pi)
    assert log_prob(mean, mean, cov).item() == pytest.approx(peak, rel=1e-5)


@pytest.mark.parametrize(
    ("cov", "message"),
    [
        (torch.ones(3), r"got \(3,\) and \(3,\)"),
        (torch.ones(2, 3), r"got \(3,\) and \(2, 3\)"),
        (torch.tensor([1.0, 0.0]), "positive"),
        (torch.tensor([1.0, float("nan")]), "positive"),
        (torch.tensor([[1.0, 2.0], [2.0, 1.0]]), "symmetric positive definite"),
        (torch.tensor([[1.0, 0.9], [0.0, 1.0]]), "symmetric positive definite"),
        (torch.full((2, 2), float("nan")), "symmetric positive definite"),
    ],
)
def test_what_is_no_covariance_is_rejected(cov, message):
    mean = lorentz.origin(2)
    with pytest.raises(InputError, match=message):
        lorentz.wrapped_normal(mean, cov, 3)
    with pytest.raises(InputError, match=message):
        lorentz.wrapped_normal_log_prob(mean, mean, cov)


def test_a_batch_of_means_is_rejected():
    with pytest.raises(InputError, match=r"mean \(m\+1,\)"):
        lorentz.wrapped_normal(random_points(4, 2), torch.ones(2), 3)
