r"""The minimiser of the energy in general: L-BFGS from many random starts, in the tangent space at the origin.

The energy has a kink where a point sits at the origin, and for many ``K`` the minimum is exactly there. No
gradient method converges on a kink, so two searches run: one with all points free, one with a point held at
the origin. The lower result wins.
"""

import math

import torch
from torch import Tensor

from hkconv.geometry import lorentz
from hkconv.geometry.curvature import curvature_radius
from hkconv.points.lbfgs import minimise
from hkconv.points.orientation import canonical_pose

STARTS = 8
EXPLORING_EVALUATIONS = 200
POLISHING_EVALUATIONS = 1000
CAPTURE_RADIUS = 1e-3


def best_of_many_starts(K: int, dim: int, curvature: float, seed: int) -> Tensor:
    """The lowest arrangement found of ``K >= 2`` points, ``(K, dim+1)`` in float64, deterministic in the seed."""
    used = min(dim, K - 1)  # K points around the origin need no more dimensions than the simplex.
    generator = torch.Generator().manual_seed(seed)
    searches = [_search(K - held, used, curvature, held, generator) for held in (False, True)]
    energy, tangent = min(searches, key=lambda search: search[0])
    held = K - tangent.size(0)
    tangent = torch.nn.functional.pad(canonical_pose(tangent), (1, dim - used, held, 0))
    return lorentz.exp0(tangent, curvature)


def _search(free: int, dim: int, curvature: float, held: bool, generator: torch.Generator) -> tuple[float, Tensor]:
    """Lowest energy, and its tangent vectors ``(free, dim)``, over random starts of the free points."""
    start = _random_starts(free, dim, generator)

    def objective(flat: Tensor) -> Tensor:
        return tangent_energy(flat.view(-1, free, dim), curvature, held)

    flat, energy = minimise(objective, start.flatten(1), max_evaluations=EXPLORING_EVALUATIONS)
    best = energy.argmin().unsqueeze(0)
    flat, energy = minimise(objective, flat[best], max_evaluations=POLISHING_EVALUATIONS)
    return energy.item(), flat.view(free, dim)


def _random_starts(free: int, dim: int, generator: torch.Generator) -> Tensor:
    r"""Random directions at evenly spaced radii up to :math:`\sqrt n`, about the size of the optimum."""
    noise = torch.randn(STARTS, free, dim, dtype=torch.float64, device="cpu", generator=generator)
    radius = (torch.arange(free, dtype=torch.float64, device="cpu") + 0.5) / math.sqrt(free)
    return torch.nn.functional.normalize(noise, dim=-1) * radius.unsqueeze(-1)


def tangent_energy(tangent: Tensor, curvature: float, held: bool) -> Tensor:
    r"""The energy of :math:`\exp_o(v_k)` for many arrangements at once, from tangent vectors at the origin.

    With radii :math:`r = |v|/R` and angles :math:`\theta`, the hyperbolic law of cosines in a form that does
    not cancel is :math:`\sinh^2(d/2R) = \sinh^2((r_1 - r_2)/2) + \sinh r_1 \sinh r_2 (1 - \cos\theta)/2`.
    One matrix product gives all angles, so nothing of size ``K * K * dim`` is formed.

    Args:
        tangent: spatial parts of tangent vectors, ``(B, n, dim)``.
        curvature: negative curvature.
        held: whether one more point sits at the origin.

    Returns:
        Energies, ``(B,)``. Where no point is held, an arrangement with a point within ``CAPTURE_RADIUS`` of
        the origin has gradient 0, so that it counts as settled: the other search covers it.
    """
    R = curvature_radius(curvature)
    distance = tangent.norm(dim=-1)
    radius, sinh = distance / R, torch.sinh(distance / R)
    directions = tangent / distance.unsqueeze(-1)
    same = torch.eye(tangent.size(-2), dtype=tangent.dtype, device=tangent.device)
    one_minus_cosine = (1 - directions @ directions.mT).clamp(min=0)
    gap = radius.unsqueeze(-1) - radius.unsqueeze(-2)
    square = torch.sinh(gap / 2) ** 2 + sinh.unsqueeze(-1) * sinh.unsqueeze(-2) * one_minus_cosine / 2
    between = 2 * R * torch.asinh((square + same).sqrt())
    energy = ((1 - same) / between).sum((-1, -2)) + distance.sum(-1)
    if held:
        return energy + (2 / distance).sum(-1)
    captured = distance.amin(-1) < CAPTURE_RADIUS
    return torch.where(captured, energy.detach(), energy)
