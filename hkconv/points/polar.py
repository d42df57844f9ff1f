r"""The energy of equation (2) and its gradient by hand, in polar coordinates around the origin.

A search evaluates it thousands of times on tiny arrays, where autograd and torch's thread pool cost far more
than the arithmetic; hence NumPy. With radii :math:`r = d(o, x)/R`, directions :math:`u` and angles
:math:`\theta`, the hyperbolic law of cosines in a form that does not cancel at any curvature is

.. math::
    q = \sinh^2 \frac{d}{2R} = \sinh^2 \frac{r_i - r_j}{2} + \sinh r_i \sinh r_j\, \frac{1 - \cos\theta_{ij}}{2}.

One matrix product gives all angles, so nothing of size ``K * K * dim`` is formed.
"""

import numpy as np


def energy_and_gradient(
    distance: np.ndarray, direction: np.ndarray, R: float, held: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""Energies of many arrangements at once, and their derivatives.

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
