"""Kernel points without a search: the regular simplex where it is optimal, and random draws (HKN-random)."""

import math

import torch
from torch import Tensor

from hkconv.geometry import lorentz
from hkconv.geometry.curvature import curvature_radius


def best_simplex(K: int, dim: int, curvature: float) -> Tensor:
    r"""The better of the two simplex arrangements of ``K <= dim + 1`` points, ``(K, dim+1)`` in float64.

    Where all points have room to be alike, two arrangements compete: the regular simplex of all ``K`` points around
    the origin, and the regular simplex of ``K - 1`` points around one point *at* the origin. The second pays no
    distance for its center and wins where space is nearly flat: at curvature -1 only for ``K = 3`` (three points
    on a line, energy :math:`2\sqrt{10}`), at curvature -0.3 up to ``K = 8``. Multi-start searches for ``K`` up to 40
    and curvatures from -0.001 to -10 found nothing below the better of the two.
    """
    if K == 1:
        return lorentz.origin(dim, curvature, dtype=torch.float64).unsqueeze(0)
    arrangements = [(K, False), (K - 1, True)]
    if K == 2:  # A tie: two points on a line through the origin, which may lie anywhere between them.
        arrangements.pop()
    vertices, centered = min(arrangements, key=lambda found: simplex_energy(found[0], found[1], curvature))
    directions = _unit_simplex(vertices) * simplex_radius(vertices, centered, curvature)
    unused = dim - directions.size(1)
    tangent = torch.nn.functional.pad(directions, (1, unused, int(centered), 0))
    return lorentz.exp0(tangent, curvature)


def simplex_energy(vertices: int, centered: bool, curvature: float) -> float:
    """Energy of the regular simplex at its best radius, with or without one more point at its center."""
    radius = simplex_radius(vertices, centered, curvature)
    side, _ = _side(vertices, radius, curvature)
    return vertices * ((vertices - 1) / side + radius + (2 / radius if centered else 0.0))


def simplex_radius(vertices: int, centered: bool, curvature: float) -> float:
    r"""The circumradius at which the energy of a regular simplex of ``n`` vertices is stationary: the root of

    .. math:: 1 - (n - 1)\, \frac{d'(r)}{d(r)^2} - \frac{2\,[\text{centered}]}{r^2},

    found by bisection to the last bit. Since :math:`d \ge \sqrt 2\, r` and :math:`d' \le 2`, it is below
    :math:`\sqrt{n + 1}`.
    """
    low, high = 0.0, math.sqrt(vertices + 1)
    while low < (middle := (low + high) / 2) < high:
        side, growth = _side(vertices, middle, curvature)
        outward_push = (vertices - 1) * growth / side**2 + (2 / middle**2 if centered else 0.0)
        low, high = (middle, high) if outward_push > 1 else (low, middle)
    return high


def _side(vertices: int, radius: float, curvature: float) -> tuple[float, float]:
    r"""Distance ``d`` between two vertices, and its derivative by the circumradius ``r``.

    :math:`\cosh(d/R) = \cosh^2(r/R) + \sinh^2(r/R)/(n-1)`, in the form that does not cancel,
    :math:`\sinh(d/2R) = \sqrt{n / 2(n-1)}\, \sinh(r/R)`.
    """
    R = curvature_radius(curvature)
    ratio = math.sqrt(vertices / (2 * (vertices - 1)))
    half = ratio * math.sinh(radius / R)
    return 2 * R * math.asinh(half), 2 * ratio * math.cosh(radius / R) / math.hypot(1, half)


def _unit_simplex(vertices: int) -> Tensor:
    """Unit vectors from the center of a regular simplex to its vertices, ``(n, n-1)``."""
    corners = torch.eye(vertices, dtype=torch.float64) - 1 / vertices
    return torch.nn.functional.normalize(canonical_pose(corners)[:, :-1], dim=-1)


def random_points(K: int, dim: int, curvature: float, seed: int, std: float = 1.0) -> Tensor:
    r"""``K`` draws from the wrapped normal :math:`\mathcal G(o, \mathrm{std}^2 I)`, ``(K, dim+1)`` in float64.

    Torch's global source of randomness is neither used nor changed.
    """
    generator = torch.Generator().manual_seed(seed)
    origin = lorentz.origin(dim, curvature, dtype=torch.float64)
    variance = torch.full((dim,), std * std, dtype=torch.float64)
    return lorentz.wrapped_normal(origin, variance, K, generator, curvature)


def canonical_pose(vectors: Tensor) -> Tensor:
    r"""Rotate (or reflect) ``K`` vectors so that the first lies on the first axis, the second in the plane of
    the first two axes with a positive second coordinate, and so on: a lower triangular matrix. The energy does
    not change under rotations about the origin, so solvers turn their result into this one pose.

    Args:
        vectors: one vector a row, ``(K, n)`` with ``n <= K``.

    Returns:
        Vectors with the same lengths and angles, ``(K, n)``.
    """
    upper = torch.linalg.qr(vectors.mT).R
    sign = torch.where(upper.diagonal() < 0, -1, 1).to(vectors.dtype)
    return (sign.unsqueeze(-1) * upper).mT.contiguous()
