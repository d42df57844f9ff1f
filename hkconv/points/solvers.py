"""Minimizers of the energy of kernel points: L-BFGS from many random starts, and the paper's gradient descent."""

import math
import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.geometry.curvature import curvature_radius
from hkconv.points.energy import energy_and_gradient, kernel_energy, to_polar
from hkconv.points.placements import canonical_pose, random_points

STARTS = 8
EXPLORING_EVALUATIONS = 200
POLISHING_EVALUATIONS = 1000
CAPTURE_RADIUS = 1e-3

# of L-BFGS
HISTORY = 8
SUFFICIENT_DECREASE = 1e-4
ROUNDING = 1e-14  # relative error of a value, below which a decrease cannot be seen
SMALLEST_STEP = 1e-20

# of the descent
STEP = 1e-4
WINDOW = 1000
SMALLEST_DECREASE = 1e-5
MAX_STEPS = 300_000
WEAKEST_CURVATURE = -1e-8  # In flatter space the distances within a unit of the origin are lost to rounding.
LONGEST_MOVE = 0.1  # Two points that start almost together would otherwise throw each other out of reach.

Objective = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def best_of_many_starts(K: int, dim: int, curvature: float, seed: int) -> Tensor:
    """The lowest arrangement found of ``K >= 2`` points, ``(K, dim+1)`` in float64, deterministic in the seed.

    The energy has a kink where a point sits at the origin, and for many ``K`` the minimum is exactly there. No
    gradient method converges on a kink, so two searches run in the tangent space at the origin: one with all
    points free, one with a point held at the origin. The lower result wins.
    """
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
    flat, energy = minimize(objective, start, max_evaluations=EXPLORING_EVALUATIONS)
    best = energy.argmin()
    flat, energy = minimize(objective, flat[best : best + 1], max_evaluations=POLISHING_EVALUATIONS)
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


@np.errstate(all="ignore")  # A trial step too far may overflow; it is not accepted.
def minimize(
    objective: Objective, start: np.ndarray, *, max_evaluations: int, tolerance: float = 1e-10
) -> tuple[np.ndarray, np.ndarray]:
    """Minimize a function by L-BFGS (Liu & Nocedal 1989) from many starting points at once.

    Each start has its own history and step length, and all share every array operation, which is where the time
    goes: ``torch.optim.LBFGS`` knows one history and one line search, so starts would run one after another.
    A trial step that does not lower the value enough is halved in the next evaluation; after one that does but
    shows no convexity to learn a length from, the next is twice as long. Each start goes its own way.

    Args:
        objective: maps points ``(B, n)`` to values ``(B,)`` and gradients ``(B, n)``, row by row.
        start: starting points, ``(B, n)``.
        max_evaluations: bound on the evaluations of the objective.
        tolerance: a start is settled when no entry of its gradient exceeds this, or no step helps.

    Returns:
        Points ``(B, n)`` and their values ``(B,)``.
    """
    x = start
    value, gradient = objective(x)
    steps, changes = np.zeros((2, HISTORY, *x.shape))
    direction = -gradient
    length = 1 / np.maximum(np.linalg.norm(gradient, axis=-1, keepdims=True), 1)
    for _ in range(max_evaluations):
        settled = (np.abs(gradient).max(-1) <= tolerance) | (length[:, 0] < SMALLEST_STEP)
        if settled.all():
            break
        trial = x + length * direction
        trial_value, trial_gradient = objective(trial)
        bound = value + SUFFICIENT_DECREASE * (length * _row_dot(gradient, direction))[:, 0]
        accepted = trial_value <= bound + ROUNDING * np.abs(value)
        step, change = trial - x, trial_gradient - gradient
        convex = (_row_dot(step, change) > 1e-12 * _row_dot(change, change))[:, 0]
        learned = accepted & convex
        _remember(steps, changes, step, change, learned)
        x = np.where(accepted[:, None], trial, x)
        value = np.where(accepted, trial_value, value)
        gradient = np.where(accepted[:, None], trial_gradient, gradient)
        direction = np.where(accepted[:, None], _descent_direction(gradient, steps, changes), direction)
        length = np.where(learned[:, None], 1, np.where(accepted[:, None], 2 * length, length / 2))
    return x, value


def _remember(steps: np.ndarray, changes: np.ndarray, step: np.ndarray, change: np.ndarray, rows: np.ndarray) -> None:
    """Append to the histories of the given rows, newest last, dropping the oldest."""
    for history, newest in ((steps, step), (changes, change)):
        history[:-1, rows] = history[1:, rows]
        history[-1, rows] = newest[rows]


def _descent_direction(gradient: np.ndarray, steps: np.ndarray, changes: np.ndarray) -> np.ndarray:
    """The two-loop recursion: minus the inverse Hessian, as the history knows it, times the gradient.

    Histories fill from the end; empty places hold zeros and contribute nothing.
    """
    products = _row_dot(steps, changes)
    weights = np.divide(1, products, out=np.zeros_like(products), where=products > 0)
    direction = -gradient
    shares = np.zeros_like(products)
    for i in reversed(range(HISTORY)):
        shares[i] = weights[i] * _row_dot(steps[i], direction)
        direction = direction - shares[i] * changes[i]
    newest = _row_dot(changes[-1], changes[-1])
    direction = direction * np.divide(products[-1], newest, out=np.ones_like(newest), where=newest > 0)
    for i in range(HISTORY):
        direction = direction + (shares[i] - weights[i] * _row_dot(changes[i], direction)) * steps[i]
    return direction


def _row_dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.einsum("...i,...i->...", a, b)[..., None]


def descend(K: int, dim: int, curvature: float, seed: int) -> Tensor:
    r"""Riemannian gradient descent on equation (2) with the paper's fixed step, ``(K, dim+1)`` in float64.

    .. math:: \tilde x_k \leftarrow \exp_{\tilde x_k}(-0.0001\, \operatorname{grad}_k \mathfrak L)

    The paper says "until it converges" and nothing about the start. Here the start is a wrapped normal of radius
    about 1, and it has converged when :data:`WINDOW` steps together lower the energy by less than the fraction
    :data:`SMALLEST_DECREASE`. The descent crawls at the end, because rotating far points past each other changes
    the energy little: 10 points in two dimensions take some 250 000 steps, ten to twenty seconds, and end 0.4 %
    above the minimum. Warns where the steps run out.
    """
    if curvature > WEAKEST_CURVATURE:
        raise InputError(f'curvature must be at most {WEAKEST_CURVATURE:g} with method="gradient", got {curvature:g}')
    points = random_points(K, dim, curvature, seed, std=1 / math.sqrt(dim))
    R = curvature_radius(curvature)
    space = points[:, 1:].numpy() / R
    energy = kernel_energy(points, curvature).item()
    for _ in range(MAX_STEPS // WINDOW):
        for _ in range(WINDOW):
            space = descent_step(space, R)
        points = lorentz.lift(torch.from_numpy(space * R), curvature)
        before, energy = energy, kernel_energy(points, curvature).item()
        if before - energy < SMALLEST_DECREASE * energy:
            return points
    warnings.warn(
        f'gradient descent of K={K} kernel points in dim={dim} did not converge in {MAX_STEPS} steps; "optimal" does',
        stacklevel=2,
    )
    return points


def descent_step(space: np.ndarray, R: float) -> np.ndarray:
    r"""One step on the spatial parts of points in units of ``R``, ``(K, dim)``: :math:`\exp_x(-\mathrm{STEP}\, g)`,
    :math:`\exp_x(w)/R = \cosh(|w|/R)\, x/R + \sinh(|w|/R)\, w/|w|`, no point moving further than ``LONGEST_MOVE``.
    """
    gradient, slope = riemannian_gradient(space, R)
    move = np.minimum(STEP * slope, LONGEST_MOVE) / R
    return np.cosh(move)[:, None] * space - (np.sinh(move) / np.maximum(slope, 1e-300))[:, None] * gradient


def riemannian_gradient(space: np.ndarray, R: float) -> tuple[np.ndarray, np.ndarray]:
    r"""Riemannian gradient of the energy, for the spatial parts of points in units of ``R``, ``(K, dim)``.

    The gradient of :math:`d(x, y)` by :math:`x` is the unit vector at ``x`` that points away from ``y``,
    :math:`(x \cosh\delta - y) / \sinh\delta` with :math:`\delta = d/R`. It has the weight :math:`-2/d^2` for every
    other kernel point, and 1 for the origin.

    Returns:
        The spatial parts of the gradients, ``(K, dim)``, and their lengths, ``(K,)``.
    """
    radius = np.sqrt(_dot(space, space))
    time = np.sqrt(1 + radius * radius)
    cosh = np.multiply.outer(time, time) - space @ space.T
    itself = np.s_[:: len(space) + 1]
    cosh.flat[itself] = 2  # Any distance but 0 will do: its pull is struck out below.
    delta = np.arccosh(cosh)
    pull = 2 / (R * R * delta * delta * np.sinh(delta))
    pull.flat[itself] = 0
    outward = time / np.maximum(radius, 1e-300) - _dot(pull, cosh)
    gradient = pull @ space + outward[:, None] * space
    gradient_time = _dot(space, gradient) / time
    return gradient, np.sqrt(np.maximum(_dot(gradient, gradient) - gradient_time**2, 0))


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->i", a, b)
