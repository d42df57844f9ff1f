r"""The energy whose minimum places the kernel points, equation (2) of the paper (``loss_ker``)."""

import numpy as np
import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.geometry import lorentz


def kernel_energy(points: Tensor, curvature: float | Tensor = -1.0) -> Tensor:
    r"""Energy of kernel points, low where they are far from each other but near the origin,

    .. math::
        \mathfrak L(\{\tilde x_k\}) = \sum_{k=1}^K \sum_{l \ne k} \frac{1}{d(\tilde x_l, \tilde x_k)}
                                    + \sum_{k=1}^K d(o, \tilde x_k).

    The first sum runs over *ordered* pairs, so each distance counts twice. Coincident points have
    infinite energy. At the origin, where the second sum has no derivative, autograd takes it to be 0.

    Args:
        points: the kernel points, ``(K, dim+1)``, on the hyperboloid of ``curvature``.
        curvature: negative curvature.

    Returns:
        The energy, a 0-d tensor.
    """
    if points.dim() != 2 or points.size(-1) < 2 or not points.is_floating_point():
        raise InputError(
            f"points must be a floating-point tensor of shape (K, dim+1), got {tuple(points.shape)} of {points.dtype}"
        )
    K, dim = points.size(0), points.size(1) - 1
    first, second = torch.triu_indices(K, K, offset=1, device=points.device)
    origin = lorentz.origin(dim, curvature, dtype=points.dtype, device=points.device)
    repulsion = 2 * lorentz.dist(points[first], points[second], curvature).reciprocal().sum()
    return repulsion + lorentz.dist(origin, points, curvature).sum()


def energy_and_gradient(
    distance: np.ndarray, direction: np.ndarray, R: float, held: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""Energies of many arrangements at once, and their derivatives, in polar coordinates around the origin.

    A search evaluates it thousands of times on tiny arrays, where autograd and torch's thread pool cost far more
    than the arithmetic; hence NumPy. With radii :math:`r = d(o, x)/R`, directions :math:`u` and angles
    :math:`\theta`, the hyperbolic law of cosines in a form that does not cancel at any curvature is

    .. math::
        q = \sinh^2 \frac{d}{2R} = \sinh^2 \frac{r_i - r_j}{2} + \sinh r_i \sinh r_j\, \frac{1 - \cos\theta_{ij}}{2}.

    One matrix product gives all angles, so nothing of size ``K * K * dim`` is formed.

    Args:
        distance: distances :math:`\rho` of the points from the origin, ``(..., n)``, positive.
        direction: unit vectors :math:`u`, ``(..., n, dim)``.
        R: the radius of curvature.
        held: whether one more point sits at the origin, where it stays.

    Returns:
        Energies ``(...)``; derivatives by the distances, ``(..., n)``; and derivatives by the directions, of
        which only the part across the direction is kept, ``(..., n, dim)``.
    """
    radius = distance / R
    sinh, cosh = np.sinh(radius), np.cosh(radius)
    opening = np.maximum(1 - direction @ direction.swapaxes(-1, -2), 0) / 2
    half_gap = np.sinh((radius[..., :, None] - radius[..., None, :]) / 2)
    q = half_gap**2 + sinh[..., :, None] * sinh[..., None, :] * opening
    own = np.arange(q.shape[-1])
    q[..., own, own] = np.inf  # A point does not repel itself: 1/d = 0.
    between = 2 * R * np.arcsinh(np.sqrt(q))
    energy = (1 / between).sum((-1, -2)) + distance.sum(-1)

    # Each pair counts twice: dE/dq = 2 (-1/d²) dd/dq with dd/dq = R / sqrt(q (1 + q)).
    by_q = -2 * R / (between**2 * np.sqrt(q) * np.sqrt(1 + q))
    across_gap = half_gap * np.sqrt(1 + half_gap**2)  # sinh(r_i - r_j) / 2
    by_radius = (by_q * (across_gap + cosh[..., :, None] * sinh[..., None, :] * opening)).sum(-1)
    by_distance = by_radius / R + 1
    by_direction = (by_q * (-0.5 * sinh[..., :, None] * sinh[..., None, :])) @ direction
    along = (by_direction * direction).sum(-1, keepdims=True)
    if held:
        energy = energy + (2 / distance).sum(-1)
        by_distance = by_distance - 2 / distance**2
    return energy, by_distance, by_direction - along * direction


def to_polar(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lengths ``(...)`` and unit directions ``(..., dim)`` of vectors; a zero vector gets a zero direction."""
    length = np.sqrt((vectors * vectors).sum(-1))
    return length, vectors / np.where(length > 0, length, 1)[..., None]
