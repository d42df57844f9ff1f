"""Riemannian Adam (Bécigneul and Ganea 2019): torch's own Adam, and beside it a step for points on a manifold."""

from collections.abc import Iterable
from typing import Any, Literal

import geoopt
import torch
from torch import Tensor

from hkconv.engine.manifold_step import start_state, step_on_manifolds
from hkconv.errors import InputError

STEP_KINDS = ("exp", "retraction")


class RiemannianAdam(torch.optim.Adam):
    r"""Adam for Euclidean and manifold parameters together.

    Euclidean parameters go through :class:`torch.optim.Adam` itself, bit for bit, with ``foreach=True`` on every
    device: torch would take it on a GPU alone, and on a CPU it is the faster one too. A
    :class:`geoopt.ManifoldParameter` holds points :math:`x` of a manifold; with :math:`g_t` the Riemannian
    gradient, each point takes the step

    .. math::
        m_t &= \beta_1 \tilde m_{t-1} + (1 - \beta_1)\, g_t \\
        v_t &= \beta_2 v_{t-1} + (1 - \beta_2)\, \langle g_t, g_t \rangle_{x_{t-1}} \\
        x_t &= \exp_{x_{t-1}}\left(-\eta\,
               \frac{m_t / (1 - \beta_1^t)}{\sqrt{v_t / (1 - \beta_2^t)} + \epsilon}\right) \\
        \tilde m_t &= PT_{x_{t-1} \to x_t}(m_t)

    with one number :math:`v` a point, so that the step does not depend on the coordinates. Weight decay
    would pull towards a point outside the manifold; it is not applied to manifold parameters.

    Args:
        params: parameters, or groups of them as for every torch optimizer.
        lr: learning rate :math:`\eta`.
        betas: :math:`(\beta_1, \beta_2)`.
        eps: :math:`\epsilon`.
        weight_decay: L2 penalty of the Euclidean parameters.
        step: ``"exp"`` for the exponential map, ``"retraction"`` for the manifold's cheaper first-order
            step. A parameter group can have its own.
        capturable: count steps on the device, so that a CUDA graph can hold the step. The parameters must be on
            a GPU.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        step: Literal["exp", "retraction"] = "exp",
        capturable: bool = False,
    ):
        super().__init__(params, lr, betas, eps, weight_decay, foreach=True, capturable=capturable)
        self.defaults["step"] = step
        for group in self.param_groups:
            _check_step_kind(group.setdefault("step", step))

    # The manifold step happens inside `_init_group`, which a compiler would run while tracing and then leave
    # out. Overriding `step` itself would make torch call its step hooks twice.
    step = torch.compiler.disable(torch.optim.Adam.step)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, as in every torch optimizer."""
        if "step" in param_group:
            _check_step_kind(param_group["step"])
        super().add_param_group(param_group)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("step", self.defaults["step"])
            # A state of torch's Adam says None: torch's choice, which is the slower one on a CPU.
            if group["foreach"] is None and not group["fused"]:
                group["foreach"] = True

    def _init_group(self, group: dict[str, Any], *lists: list[Tensor]) -> bool:
        """Torch asks here, once a group and step, which parameters to update: the Euclidean ones."""
        curved = [parameter for parameter in group["params"] if _is_curved(parameter)]
        if not curved:
            return super()._init_group(group, *lists)
        moving = [point for point in curved if point.grad is not None]
        for point in moving:
            if not self.state[point]:
                self.state[point].update(start_state(point, group["capturable"]))
        if moving:
            step_on_manifolds(moving, [self.state[point] for point in moving], group)
        flat = {**group, "params": [parameter for parameter in group["params"] if not _is_curved(parameter)]}
        return super()._init_group(flat, *lists)


def _is_curved(parameter: Tensor) -> bool:
    return isinstance(parameter, geoopt.ManifoldTensor) and not isinstance(parameter.manifold, geoopt.Euclidean)


def _check_step_kind(step: str) -> None:
    if step not in STEP_KINDS:
        raise InputError(f"step must be {' or '.join(map(repr, STEP_KINDS))}, got {step!r}")
