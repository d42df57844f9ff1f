r"""The wrapped normal distribution :math:`\mathcal G(\mu, \Sigma)` of Nagano et al. (2019)."""

import math

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.geometry.curvature import Curvature, curvature_radius
from hkconv.geometry.maps import exp0, log0
from hkconv.geometry.relative import ominus, oplus


def wrapped_normal(
    mean: Tensor,
    cov: Tensor,
    n: int,
    generator: torch.Generator | None = None,
    curvature: Curvature = -1.0,
) -> Tensor:
    r"""Draw ``n`` points :math:`z = \exp_\mu(PT_{o \to \mu}(v))` with :math:`v \sim N(0, \Sigma)`.

    Args:
        mean: the point :math:`\mu`, ``(m+1,)``.
        cov: covariance in the tangent space at the origin, ``(m, m)``, or its diagonal, ``(m,)``.
        n: number of samples.
        generator: source of randomness, torch's global one if None.
        curvature: negative curvature.

    Returns:
        Points, ``(n, m+1)``.
    """
    scale = _scale(mean, cov)
    noise = torch.randn(n, scale.size(-1), dtype=mean.dtype, device=mean.device, generator=generator)
    around_origin = exp0(torch.nn.functional.pad(noise @ scale.mT, (1, 0)), curvature)
    return oplus(around_origin, mean, curvature)


def wrapped_normal_log_prob(z: Tensor, mean: Tensor, cov: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r"""Log density at ``z`` with respect to the hyperbolic volume,

    .. math::
        \log N(v; 0, \Sigma) - (m - 1) \log \frac{R \sinh(|v|/R)}{|v|}, \qquad v = \log_o(z \ominus \mu).

    Shapes: ``(..., m+1) -> (...)``; ``mean`` and ``cov`` as in :func:`wrapped_normal`.
    """
    R = curvature_radius(curvature)
    scale = _scale(mean, cov)
    v = log0(ominus(z, mean, curvature), curvature)[..., 1:]
    m = v.size(-1)
    white = torch.linalg.solve_triangular(scale, v.unsqueeze(-1), upper=False).squeeze(-1)
    log_normal = -0.5 * (white * white).sum(-1) - scale.diagonal().log().sum() - 0.5 * m * math.log(2 * math.pi)
    return log_normal - (m - 1) * _log_sinhc(torch.linalg.vector_norm(v, dim=-1) / R)


def _log_sinhc(r: Tensor) -> Tensor:
    r""":math:`\log(\sinh(r)/r) = r + \log((1 - e^{-2r}) / 2r)`, which neither overflows nor divides 0 by 0."""
    zero = r == 0
    safe = torch.where(zero, 1, r)
    return torch.where(zero, 0, safe + torch.log(-torch.expm1(-2 * safe) / (2 * safe)))


def _scale(mean: Tensor, cov: Tensor) -> Tensor:
    """Lower Cholesky factor of a full or diagonal covariance."""
    m = mean.size(-1) - 1
    if mean.dim() != 1 or cov.shape not in {(m,), (m, m)}:
        raise InputError(
            f"wrapped normal needs mean (m+1,) and cov (m, m) or (m,), got {tuple(mean.shape)} and {tuple(cov.shape)}"
        )
    if cov.dim() == 1:
        if not (cov > 0).all():
            raise InputError("wrapped normal: the diagonal of cov must be positive")
        return cov.sqrt().diag()
    factor, info = torch.linalg.cholesky_ex(cov)
    if info.item() != 0 or not torch.allclose(cov, cov.mT):
        raise InputError("wrapped normal: cov must be symmetric positive definite")
    return factor
