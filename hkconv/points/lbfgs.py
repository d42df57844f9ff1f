"""L-BFGS (Liu & Nocedal 1989) over a batch of starting points, each with its own history and step length.

``torch.optim.LBFGS`` shares one line search among all parameters, so a batch of starts would have to run
one after another; here they share every tensor operation, which is what the time goes into.
"""

from collections.abc import Callable

import torch
from torch import Tensor

HISTORY = 8
SUFFICIENT_DECREASE = 1e-4
ROUNDING = 1e-14  # relative error of the objective, below which a decrease cannot be seen
SMALLEST_STEP = 1e-9


def minimise(
    objective: Callable[[Tensor], Tensor], start: Tensor, *, tolerance: float = 1e-10, max_evaluations: int = 1000
) -> tuple[Tensor, Tensor]:
    """Minimise a function from many starting points at once.

    A trial step that does not lower the value enough is halved in the next evaluation, start by start.

    Args:
        objective: maps ``(B, n)`` to ``(B,)``, row by row, differentiably.
        start: starting points, ``(B, n)``.
        tolerance: a start is done when no entry of its gradient exceeds this, or no step helps.
        max_evaluations: bound on the evaluations of the objective.

    Returns:
        Points ``(B, n)`` and their values ``(B,)``.
    """
    x = start
    value, gradient = _evaluate(objective, x)
    steps, changes = x.new_zeros(HISTORY, *x.shape), x.new_zeros(HISTORY, *x.shape)
    direction = -gradient
    length = 1 / gradient.norm(dim=-1, keepdim=True).clamp(min=1)
    for _ in range(max_evaluations):
        settled = (gradient.abs().amax(-1) <= tolerance) | (length.squeeze(-1) < SMALLEST_STEP)
        if settled.all():
            break
        trial = x + length * direction
        trial_value, trial_gradient = _evaluate(objective, trial)
        bound = value + SUFFICIENT_DECREASE * (length * _dot(gradient, direction)).squeeze(-1)
        accepted = (trial_value <= bound + ROUNDING * value.abs()).unsqueeze(-1)
        step, change = trial - x, trial_gradient - gradient
        useful = accepted & (_dot(step, change) > 1e-12 * _dot(change, change))
        steps = torch.where(useful, torch.cat([steps[1:], step[None]]), steps)
        changes = torch.where(useful, torch.cat([changes[1:], change[None]]), changes)
        x = torch.where(accepted, trial, x)
        value = torch.where(accepted.squeeze(-1), trial_value, value)
        gradient = torch.where(accepted, trial_gradient, gradient)
        direction = torch.where(accepted, _descent_direction(gradient, steps, changes), direction)
        length = torch.where(accepted, 1, length / 2)
    return x, value


def _evaluate(objective: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        value = objective(x)
        (gradient,) = torch.autograd.grad(value.sum(), x)
    return value.detach(), gradient


def _descent_direction(gradient: Tensor, steps: Tensor, changes: Tensor) -> Tensor:
    """The two-loop recursion: minus the inverse Hessian, as the history knows it, times the gradient.

    Histories fill from the end; empty places hold zeros, which must contribute nothing.
    """
    curvature = _dot(steps, changes)
    inverse = torch.where(curvature > 0, 1 / curvature, 0)
    shares = []
    direction = -gradient
    for step, change, rho in zip(reversed(steps), reversed(changes), reversed(inverse)):
        shares.append(rho * _dot(step, direction))
        direction = direction - shares[-1] * change
    newest = _dot(changes[-1], changes[-1])
    direction = direction * torch.where(newest > 0, curvature[-1] / newest, 1)
    for step, change, rho, share in zip(steps, changes, inverse, reversed(shares)):
        direction = direction + (share - rho * _dot(change, direction)) * step
    return direction


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1, keepdim=True)
