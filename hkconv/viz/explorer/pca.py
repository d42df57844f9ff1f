r"""Hyperbolic principal components: which planes of :math:`\mathbb L^n` show most of a cloud of points, and where a
point lies in them.

Everything is in units of :math:`R`, so that the curvature is -1.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from hkconv.geometry.hyperboloid import origin
from hkconv.geometry.lorentz import exp0, lift, log0, ominus, oplus

MOST_STEPS = 100
LAST_STEP = 1e-8
MOST_HALVINGS = 20


def frechet_mean(points: Tensor) -> Tensor:
    r"""The point :math:`\mu` with the least mean of :math:`d^2(\mu, x_i)`.

    Found by Newton's method in the tangent space, for a plain step along the mean of :math:`w_i = \log_\mu x_i`
    overshoots among points far apart: with :math:`r_i = |w_i|` and :math:`e_i = w_i/r_i` the Hessian is
    :math:`H = \frac1N \sum_i e_i e_i^T + r_i \coth r_i (I - e_i e_i^T) \ge I`, and the step :math:`H^{-1} \bar w`. It
    is halved until the mean square falls. The function is strictly convex, so that there is one minimum.

    Args:
        points: float64 points of curvature -1, ``(N, n+1)`` with ``N >= 1``.

    Returns:
        The mean, ``(n+1,)``.
    """
    mean = lift(points[:, 1:].mean(0))
    seen = _seen_from(points, mean)
    for _ in range(MOST_STEPS):
        step = torch.linalg.solve(_hessian(seen), seen.mean(0))
        mean, seen = _walk(points, mean, seen, step)
        # Newton's method squares the error: after a step of the root of float64's precision nothing changes.
        if torch.linalg.vector_norm(step) < LAST_STEP:
            break
    return mean


def _walk(points: Tensor, mean: Tensor, seen: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    """Go a step, or as much of it as brings the mean square down; where rounding hides that, stay."""
    for _ in range(MOST_HALVINGS):
        candidate = lift(oplus(exp0(_at_origin(step)), mean)[1:])
        seen_there = _seen_from(points, candidate)
        if seen_there.square().sum() < seen.square().sum():
            return candidate, seen_there
        step = step / 2
    return mean, seen


@dataclass(frozen=True, eq=False)
class Coordinates:
    r"""Coordinates of points along the principal axes, seen from the mean.

    Args:
        along: :math:`c_{ij} = e_j \cdot z_i` with :math:`z_i` the space part of :math:`x_i \ominus \mu`, ``(N, k)``.
        rest: the length of what is left of :math:`z_i` across all axes, ``(N,)``.
    """

    along: Tensor
    rest: Tensor

    def in_plane(self, first: int, second: int) -> Tensor:
        r"""The nearest point of the plane through :math:`\mu` that two axes span: its geodesic projection.

        Of :math:`[z_t, z]` the plane keeps :math:`[z_t, a, b]`, which leaves the hyperboloid and is scaled back to it.
        With :math:`q^2` the squared length of all that is dropped this is :math:`(a, b)/\sqrt{1 + q^2}`, for
        :math:`z_t^2 - a^2 - b^2 = 1 + q^2`. The same axis twice projects to its geodesic.

        Returns:
            Points of :math:`\mathbb L^2`, ``(N, 3)``.
        """
        others = [axis for axis in range(self.along.size(1)) if axis not in {first, second}]
        scale = (1 + self.rest.square() + self.along[:, others].square().sum(1)).rsqrt()
        second_axis = self.along[:, second] if second != first else torch.zeros_like(self.rest)
        return lift(torch.stack([self.along[:, first], second_axis], 1) * scale[:, None])

    def spread(self) -> Tensor:
        r"""Mean of :math:`d^2(\mu, x_i)`."""
        return torch.linalg.vector_norm(torch.cat([self.along, self.rest[:, None]], 1), dim=1).asinh().square().mean()

    def kept(self) -> Tensor:
        r"""The share of the variance that each plane keeps: mean :math:`d^2(\mu, \pi x_i)` by mean
        :math:`d^2(\mu, x_i)`.

        A projection draws points to the mean by more than in flat space, where the shares of the axes would add up.

        Returns:
            ``(k, k)``, symmetric; on its diagonal the share of a single axis. All ones if there is no variance.
        """
        size, total = self.along.size(1), self.spread()
        shares = torch.ones(size, size, dtype=total.dtype)
        if total == 0:
            return shares
        for first in range(size):
            for second in range(first, size):
                in_plane = self.in_plane(first, second)[:, 1:]
                share = torch.linalg.vector_norm(in_plane, dim=1).asinh().square().mean() / total
                shares[first, second] = shares[second, first] = share
        return shares


@dataclass(frozen=True, eq=False)
class Frame:
    """A point to look from and orthonormal axes there, most variance first.

    Args:
        mean: the point, ``(n+1,)``.
        axes: carried to the origin along the geodesic, ``(k, n)``.
    """

    mean: Tensor
    axes: Tensor

    def coordinates(self, points: Tensor) -> Coordinates:
        """Coordinates of points ``(N, n+1)`` along the axes."""
        seen = ominus(points, self.mean)[:, 1:]
        along = seen @ self.axes.T
        return Coordinates(along, torch.linalg.vector_norm(seen - along @ self.axes, dim=1))


def principal_frame(points: Tensor, most_axes: int) -> Frame:
    r"""The Fréchet mean and the eigenvectors of :math:`\frac1N\sum_i w_i w_i^T`, :math:`w_i = \log_\mu x_i`, with the
    largest eigenvalues.

    Points of two dimensions need no projection and are taken as they lie, seen from the origin.

    Args:
        points: float64 points of curvature -1, ``(N, n+1)`` with ``n >= 2``.
        most_axes: how many axes at most, at least 2.

    Returns:
        The frame, with ``min(n, most_axes)`` axes, each with its largest entry positive.
    """
    dim = points.size(1) - 1
    if dim == 2:
        return Frame(origin(2, dtype=points.dtype), torch.eye(2, dtype=points.dtype))
    mean = frechet_mean(points)
    seen = _seen_from(points, mean)
    _, vectors = torch.linalg.eigh(seen.T @ seen / seen.size(0))
    axes = vectors.T.flip(0)[:most_axes]
    largest = axes.gather(1, axes.abs().argmax(1, keepdim=True))
    return Frame(mean, axes * largest.sign())


def _seen_from(points: Tensor, place: Tensor) -> Tensor:
    """The logarithms of points at a place, carried to the origin, ``(N, n)``."""
    return log0(ominus(points, place))[:, 1:]


def _at_origin(space: Tensor) -> Tensor:
    return torch.cat([space.new_zeros(1), space])


def _hessian(seen: Tensor) -> Tensor:
    length = torch.linalg.vector_norm(seen, dim=1)
    near = length == 0
    safe = torch.where(near, 1, length)
    across = torch.where(near, 1, safe / safe.tanh())
    direction = seen / safe[:, None]
    identity = torch.eye(seen.size(1), dtype=seen.dtype)
    return across.mean() * identity + (direction.T * (1 - across)) @ direction / len(seen)


def rank_correlation(first: Tensor, second: Tensor) -> float | None:
    """Spearman's coefficient of two lists of numbers, equal ones with their mean rank; None where one has one value."""
    ranks = torch.stack([_ranks(first), _ranks(second)])
    ranks = ranks - ranks.mean(1, keepdim=True) if first.numel() else ranks
    norms = torch.linalg.vector_norm(ranks, dim=1)
    return float(ranks[0] @ ranks[1] / norms.prod()) if bool((norms > 0).all()) else None


def _ranks(values: Tensor) -> Tensor:
    _, place, counts = values.unique(return_inverse=True, return_counts=True)
    return (counts.cumsum(0) - (counts - 1) / 2).double()[place]
