"""L-BFGS (Liu & Nocedal 1989) over a batch of starting points, each with its own history and step length.

``torch.optim.LBFGS`` knows one history and one line search, so many starts would have to run one after
another; here they share every array operation, which is where the time goes.
"""

from collections.abc import Callable

import numpy as np

HISTORY = 8
SUFFICIENT_DECREASE = 1e-4
ROUNDING = 1e-14  # relative error of a value, below which a decrease cannot be seen
SMALLEST_STEP = 1e-20

Objective = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@np.errstate(all="ignore")  # A trial step too far may overflow; it is not accepted.
def minimise(
    objective: Objective, start: np.ndarray, *, max_evaluations: int, tolerance: float = 1e-10
) -> tuple[np.ndarray, np.ndarray]:
    """Minimise a function from many starting points at once.

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
        bound = value + SUFFICIENT_DECREASE * (length * _dot(gradient, direction))[:, 0]
        accepted = trial_value <= bound + ROUNDING * np.abs(value)
        step, change = trial - x, trial_gradient - gradient
        convex = (_dot(step, change) > 1e-12 * _dot(change, change))[:, 0]
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
    products = _dot(steps, changes)
    weights = np.divide(1, products, out=np.zeros_like(products), where=products > 0)
    direction = -gradient
    shares = np.zeros_like(products)
    for i in reversed(range(HISTORY)):
        shares[i] = weights[i] * _dot(steps[i], direction)
        direction = direction - shares[i] * changes[i]
    newest = _dot(changes[-1], changes[-1])
    direction = direction * np.divide(products[-1], newest, out=np.ones_like(newest), where=newest > 0)
    for i in range(HISTORY):
        direction = direction + (shares[i] - weights[i] * _dot(changes[i], direction)) * steps[i]
    return direction


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.einsum("...i,...i->...", a, b)[..., None]
