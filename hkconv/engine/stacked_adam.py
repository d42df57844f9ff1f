"""Riemannian Adam for many networks at once, each with a learning rate and a weight decay of its own."""

from collections.abc import Mapping, Sequence

import geoopt
import torch
from torch import Tensor

from hkconv.engine.optimizer import State, start_state, step_on_manifolds

BETAS = (0.9, 0.999)
EPS = 1e-8


class StackedAdam:
    r"""The steps of R :class:`~hkconv.engine.optimizer.RiemannianAdam`, one for each network.

    Adam treats every number by itself, and its Riemannian form every point: the R optimizers are one, whose
    :math:`\eta` and weight decay differ from row to row.

    Args:
        lr: learning rate of each network, ``(R,)``.
        weight_decay: L2 penalty of the Euclidean parameters of each, ``(R,)``.
    """

    def __init__(self, lr: Tensor, weight_decay: Tensor):
        self.lr, self.weight_decay = lr.unsqueeze(1), weight_decay.unsqueeze(1)
        # Counted on the device, where a CUDA graph can; in float32 1 - 0.999 would keep four digits.
        self.steps = torch.zeros((), dtype=torch.float64, device=lr.device)
        self.first: Tensor | None = None
        self.second: Tensor | None = None
        self.states: dict[str, State] = {}

    @torch.no_grad()
    def step(self, weights: Tensor, gradient: Tensor, is_used: Tensor) -> None:
        r"""Move the Euclidean parameters,

        .. math::
            \theta \leftarrow \theta - \frac{\eta_r}{1 - \beta_1^t}\,
            \frac{m}{\sqrt{v / (1 - \beta_2^t)} + \epsilon}, \qquad g \leftarrow g + \lambda_r \theta.

        Args:
            weights: all of them, a row a network, ``(R, P)``; changed in place.
            gradient: ``(R, P)``.
            is_used: ``(P,)``, 1 for a parameter that the loss depends on, 0 for one that stays as it is.
        """
        if self.first is None or self.second is None:
            self.first, self.second = torch.zeros_like(weights), torch.zeros_like(weights)
        self.steps += 1
        beta1, beta2 = BETAS
        gradient = gradient + self.weight_decay * is_used * weights
        self.first.lerp_(gradient, 1 - beta1)
        self.second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        scale = (self.second.sqrt() / (1 - beta2**self.steps).sqrt()).add_(EPS)
        weights.sub_(self.lr / (1 - beta1**self.steps) * self.first / scale)

    @torch.no_grad()
    def step_points(
        self, points: Mapping[str, Tensor], gradients: Sequence[Tensor | None], manifolds: Mapping[str, geoopt.Manifold]
    ) -> None:
        """Move the points on manifolds.

        Args:
            points: parameters by name, each ``(R, ..., n+1)``; changed in place.
            gradients: of each; None for one that stays as it is.
            manifolds: of each.
        """
        for (name, values), gradient in zip(points.items(), gradients):
            if gradient is None:
                continue
            point = geoopt.ManifoldParameter(values, manifold=manifolds[name])
            point.grad = gradient
            on_device = {"capturable": values.is_cuda}
            if name not in self.states:
                self.states[name] = start_state(point, **on_device)
            lr = self.lr.view(-1, *[1] * (values.dim() - 1))
            group = {"lr": lr, "betas": BETAS, "eps": EPS, "step": "exp", "maximize": False, **on_device}
            step_on_manifolds([point], [self.states[name]], group)

    def state(self) -> list[Tensor]:
        """Return all that a step changes; nothing but the count of steps before the first."""
        moments = [] if self.first is None or self.second is None else [self.first, self.second]
        return [self.steps, *moments, *(tensor for state in self.states.values() for tensor in state.values())]

    def keep(self, rows: Tensor) -> None:
        """Forget all networks but those in some rows."""
        self.lr, self.weight_decay = self.lr[rows], self.weight_decay[rows]
        if self.first is not None and self.second is not None:
            self.first, self.second = self.first[rows], self.second[rows]
        for state in self.states.values():
            state["exp_avg"], state["exp_avg_sq"] = state["exp_avg"][rows], state["exp_avg_sq"][rows]
