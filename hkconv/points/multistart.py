r"""The minimiser of the energy in general: L-BFGS from many random starts, in the tangent space at the origin.

The energy has a kink where a point sits at the origin, and for many ``K`` the minimum is exactly there. No
gradient method converges on a kink, so two searches run: one with all points free, one with a point held at
the origin. The lower result wins.
"""

import math

import numpy as np
import torch
from torch import Tensor

from hkconv.geometry import lorentz
from hkconv.geometry.curvature import curvature_radius
from hkconv.points.lbfgs import minimise
from hkconv.points.orientation import canonical_pose
from hkconv.points.polar import energy_and_gradient, to_polar

STARTS = 8
EXPLORING_EVALUATIONS = 200
POLISHING_EVALUATIONS = 1000
CAPTURE_RADIUS = 1e-3


def best_of_many_starts(K: int, dim: int, curvature: float, seed: int) -> Tensor:
    """The lowest arrangement found of ``K >= 2`` points, ``(K, dim+1)`` in float64, deterministic in the seed."""
    used = min(dim, K - 1)  # K points around the origin need no more dimensions than the simplex.
    generator = torch.Generator().manual_seed(seed)
    searches = [_search(K - held, used, curvature, held, generator) for held in (False, True)]
    _, found = min(searches, key=lambda search: search[0])
    held = K - len(found)
    tangent = canonical_pose(torch.from_numpy(found))
    return lorentz.exp0(torch.nn.functional.pad(tangent, (1, dim - used, held, 0)), curvature)


def _search(free: int, dim: int, curvature: float, held: bool, generator: torch.Generator) -> tuple[float, np.ndarray]:
    """Lowest energy, and its tangent vectors ``(free, dim)``, over random starts of the free points."""

    def objective(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        energy, gradient = tangent_energy(flat.reshape(-1, free, dim), curvature, held)
        return energy, gradient.reshape(flat.shape)

    start = _random_starts(free, dim, generator).reshape(STARTS, -1)
    flat, energy = minimise(objective, start, max_evaluations=EXPLORING_EVALUATIONS)
    best = energy.argmin()
    flat, energy = minimise(objective, flat[best : best + 1], max_evaluations=POLISHING_EVALUATIONS)
    return energy.item(), flat.reshape(free, dim)


def _random_starts(free: int, dim: int, generator: torch.Generator) -> np.ndarray:
    r"""Random directions at evenly spaced radii up to :math:`\sqrt n`, the bound of the simplex radius."""
    noise = torch.randn(STARTS, free, dim, dtype=torch.float64, generator=generator).numpy()
    radius = (np.arange(free) + 0.5) / math.sqrt(free)
    return to_polar(noise)[1] * radius[:, None]


def tangent_energy(tangent: np.ndarray, curvature: float, held: bool) -> tuple[np.ndarray, np.ndarray]:
    r"""Energies of the points :math:`\exp_o(v)` of many arrangements, and their gradients by :math:`v`.

    Where no point is held, an arrangement with a point within ``CAPTURE_RADIUS`` of the origin is given the
    gradient 0, so that it counts as settled: the search with a held point covers it.

    Args:
        tangent: spatial parts of tangent vectors at the origin, ``(B, n, dim)``.
        curvature: negative curvature.
        held: whether one more point sits at the origin.

    Returns:
        Energies ``(B,)`` and gradients ``(B, n, dim)``.
    """
    distance, direction = to_polar(tangent)
    energy, by_distance, by_direction = energy_and_gradient(distance, direction, curvature_radius(curvature), held)
    gradient = by_distance[..., None] * direction + by_direction / distance[..., None]
    if not held:
        gradient[distance.min(-1) < CAPTURE_RADIUS] = 0
    return energy, gradient
