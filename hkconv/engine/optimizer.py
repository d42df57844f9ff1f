"""Riemannian Adam (Bécigneul and Ganea 2019) and SGD (Bonnabel 2013): torch's own, and a step for points beside it.

The points of one hyperboloid take their step together. It is computed at the origin, :mod:`hkconv.geometry.maps`: far
out, the coordinates of tangent vectors have no digits for their lengths.
"""

from collections.abc import Hashable, Iterable
from typing import Any, Literal

import geoopt
import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.geometry.curvature import curvature_radius
from hkconv.geometry.manifold import Lorentz
from hkconv.geometry.maps import exp_carried, gradient_at_origin, turn
from hkconv.ops import rows

State = dict[str, Tensor]


def moving_part(parameter: Tensor) -> Tensor:
    """The coordinates of a parameter that have momentum: of points of a hyperboloid not the time."""
    return parameter[..., 1:] if isinstance(getattr(parameter, "manifold", None), Lorentz) else parameter


def start_state(point: geoopt.ManifoldParameter, capturable: bool) -> State:
    """Return what Adam remembers of a parameter with a gradient, before its first step.

    Args:
        point: the parameter.
        capturable: count the steps on the parameter's device, where a CUDA graph can count them.

    Returns:
        ``step``, ``exp_avg`` of the parameter's shape, of a hyperboloid without the time, and ``exp_avg_sq`` with one
        number a point.
    """
    return {
        "step": torch.zeros((), device=point.device if capturable else "cpu"),
        "exp_avg": torch.zeros_like(moving_part(point)),
        "exp_avg_sq": torch.zeros_like(point.manifold.inner(point, point.grad, keepdim=True)),
    }


def step_on_manifolds(points: list[geoopt.ManifoldParameter], states: list[State], group: dict[str, Any]) -> None:
    """Move parameters with gradients by the equations of :class:`~hkconv.engine.optimizer.RiemannianAdam`.

    Args:
        points: the parameters.
        states: what Adam remembers of each; updated in place.
        group: their parameter group.
    """
    torch._foreach_add_([state["step"] for state in states], 1)
    together: dict[Hashable, tuple[list[geoopt.ManifoldParameter], list[State]]] = {}
    for point, state in zip(points, states):
        if _has_kernel(point):
            _step_by_kernel(point, state, group)
            continue
        kin_points, kin_states = together.setdefault(_kinship(point, state, group["capturable"]), ([], []))
        kin_points.append(point)
        kin_states.append(state)
    for kin_points, kin_states in together.values():
        _step(kin_points, kin_states, group)


def _has_kernel(point: geoopt.ManifoldParameter) -> bool:
    manifold = point.manifold
    if type(manifold) is not Lorentz or manifold.log_curvature is not None or not point.is_contiguous():
        return False
    return rows.are_fused(point, point.size(-1) - 1, manifold.curvature)


def _step_by_kernel(point: geoopt.ManifoldParameter, state: State, group: dict[str, Any]) -> None:
    """One kernel for the some hundred operations of :func:`_step`."""
    rate, count = group["lr"], state["step"]
    if not group["capturable"]:
        # Each begins a row of 16 bytes, as a quick launch needs it.
        given = torch.tensor([[float(rate), 0], [count.item(), 0]], dtype=torch.float64)
        given = (given.pin_memory() if point.is_cuda else given).to(point.device, non_blocking=True)
        rate, count = given[:, 0]
    elif not isinstance(rate, Tensor):
        rate = torch.full((), rate, dtype=torch.float64, device=point.device)
    R = curvature_radius(point.manifold.curvature)
    settings = {"betas": group["betas"], "eps": group["eps"], "sign": -1 if group["maximize"] else 1, "R": R}
    moments = state["exp_avg"], state["exp_avg_sq"]
    rows.backend(point).move_points(point.detach(), point.grad, moments, rate, count, settings)


def _kinship(point: geoopt.ManifoldParameter, state: State, capturable: bool) -> Hashable:
    """Equal for parameters whose rows can be stacked: points of one hyperboloid that are equally far in time."""
    manifold = point.manifold
    if type(manifold) is not Lorentz or manifold.log_curvature is not None:
        return id(point)
    # A step that is counted on the device cannot be compared without waiting for it; each row gets its own.
    steps = None if capturable else state["step"].item()
    return manifold.curvature, point.size(-1), point.dtype, point.device, steps


def _step(points: list[geoopt.ManifoldParameter], states: list[State], group: dict[str, Any]) -> None:
    manifold = points[0].manifold
    first = [state["exp_avg"] for state in states]
    second = [state["exp_avg_sq"] for state in states]
    x = _stack(points)
    euclidean = _stack([point.grad for point in points])
    gradient, square = _gradient(manifold, x, -euclidean if group["maximize"] else euclidean)
    beta1, beta2 = group["betas"]
    m = _stack(first).lerp(gradient, 1 - beta1)
    v = _stack(second).lerp(square, 1 - beta2)
    momentum = m / _bias_correction(beta1, second, states, group["capturable"])
    scale = (v / _bias_correction(beta2, second, states, group["capturable"])).sqrt() + group["eps"]
    moved, carried = _move(manifold, x, -group["lr"] * momentum / scale, m, group["step"])
    _unstack(carried, first)
    _unstack(v, second)
    _unstack(moved, points)


def _gradient(manifold: geoopt.Manifold, x: Tensor, euclidean: Tensor) -> tuple[Tensor, Tensor]:
    """The Riemannian gradient and its square."""
    if isinstance(manifold, Lorentz):
        gradient = gradient_at_origin(x, euclidean, manifold.curvature)
        return gradient, gradient.square().sum(-1, keepdim=True)
    gradient = manifold.egrad2rgrad(x, euclidean)
    return gradient, manifold.inner(x, gradient, keepdim=True).clamp(min=0)


def _move(manifold: geoopt.Manifold, x: Tensor, step: Tensor, m: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """Return where a step leads, and the momentum there."""
    if isinstance(manifold, Lorentz):
        moved = exp_carried(x, step, manifold.curvature)
        return moved, turn(x, moved, m, manifold.curvature)
    moved = manifold.projx((manifold.expmap if kind == "exp" else manifold.retr)(x, step))
    return moved, manifold.transp(x, moved, m)


def _bias_correction(beta: float, second: list[Tensor], states: list[State], capturable: bool) -> float | Tensor:
    r""":math:`1 - \beta^t`: one number for all, or on the device one for each row."""
    if not capturable:
        return 1 - beta ** states[0]["step"].item()
    # In float32 1 - 0.999 would keep four digits.
    corrections = 1 - beta ** torch.stack([state["step"] for state in states]).double()
    pieces = [correction.expand_as(row) for correction, row in zip(corrections, second)]
    return _stack(pieces).to(second[0].dtype)


def _stack(tensors: list[Tensor]) -> Tensor:
    """All rows of several tensors under each other; a single tensor keeps its shape, whatever its manifold."""
    if len(tensors) == 1:
        return tensors[0].detach()
    return torch.cat([tensor.reshape(-1, tensor.size(-1)) for tensor in tensors])


def _unstack(stacked: Tensor, targets: list[Tensor]) -> None:
    """The inverse of :func:`_stack`, in place."""
    if len(targets) == 1:
        targets[0].copy_(stacked)
        return
    pieces = stacked.split([target.numel() // target.size(-1) for target in targets])
    torch._foreach_copy_(targets, [piece.view_as(target) for piece, target in zip(pieces, targets)])


STEP_KINDS = ("exp", "retraction")


class RiemannianOptimizer(torch.optim.Optimizer):
    """Part of an optimizer of torch's that moves points of manifolds before torch moves the other parameters."""

    moves_points = True

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, as in every torch optimizer."""
        if "step" in param_group:
            _check_step_kind(param_group["step"])
        super().add_param_group(param_group)

    def _set_step_kind(self, step: str) -> None:
        self.defaults["step"] = step
        for group in self.param_groups:
            _check_step_kind(group.setdefault("step", step))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("step", self.defaults["step"])
            # A state of torch's own says None: torch's choice, which is the slower one on a CPU.
            if group["foreach"] is None and not group["fused"]:
                group["foreach"] = True

    def _init_group(self, group: dict[str, Any], *lists: list[Tensor]) -> bool:
        """Torch asks here, once a group and step, which parameters to update: the Euclidean ones."""
        curved = [parameter for parameter in group["params"] if _is_curved(parameter)]
        if not curved:
            return super()._init_group(group, *lists)  # type: ignore[misc]  # of torch's class beside this one
        moving = [point for point in curved if point.grad is not None]
        if moving:
            self._move_points(moving, group)
        flat = {**group, "params": [parameter for parameter in group["params"] if not _is_curved(parameter)]}
        return super()._init_group(flat, *lists)  # type: ignore[misc]  # see above

    def _move_points(self, points: list[geoopt.ManifoldParameter], group: dict[str, Any]) -> None:
        raise NotImplementedError


class RiemannianAdam(RiemannianOptimizer, torch.optim.Adam):
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
        decoupled_weight_decay: shrink the Euclidean parameters by :math:`\eta` times ``weight_decay`` in place of the
            penalty, as :class:`torch.optim.AdamW` does.
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
        decoupled_weight_decay: bool = False,
    ):
        switches = {"capturable": capturable, "decoupled_weight_decay": decoupled_weight_decay}
        super().__init__(params, lr, betas, eps, weight_decay, foreach=True, **switches)
        self._set_step_kind(step)

    # The manifold step happens inside `_init_group`, which a compiler would run while tracing and then leave
    # out. Overriding `step` itself would make torch call its step hooks twice.
    step = torch.compiler.disable(torch.optim.Adam.step)

    def _move_points(self, points: list[geoopt.ManifoldParameter], group: dict[str, Any]) -> None:
        for point in points:
            if not self.state[point]:
                self.state[point].update(start_state(point, group["capturable"]))
        step_on_manifolds(points, [self.state[point] for point in points], group)


class RiemannianSGD(RiemannianOptimizer, torch.optim.SGD):
    r"""Stochastic gradient descent for Euclidean and manifold parameters together.

    Euclidean parameters go through :class:`torch.optim.SGD` itself, with ``foreach=True``. A point :math:`x` with the
    Riemannian gradient :math:`g_t` takes the step

    .. math::
        m_t &= \mu\, \tilde m_{t-1} + (1 - \tau)\, g_t, \qquad m_1 = g_1 \\
        x_t &= \exp_{x_{t-1}}(-\eta\, m_t) \\
        \tilde m_t &= PT_{x_{t-1} \to x_t}(m_t)

    and with ``nesterov`` goes along :math:`g_t + \mu\, m_t`. Weight decay is not applied to points.

    Args:
        params: parameters, or groups of them as for every torch optimizer.
        lr: learning rate :math:`\eta`.
        momentum: :math:`\mu`.
        dampening: :math:`\tau`.
        weight_decay: L2 penalty of the Euclidean parameters.
        nesterov: as in torch.
        step: ``"exp"`` or ``"retraction"``, see :class:`RiemannianAdam`.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        *,
        nesterov: bool = False,
        step: Literal["exp", "retraction"] = "exp",
    ):
        super().__init__(params, lr, momentum, dampening, weight_decay, nesterov, foreach=True)
        self._set_step_kind(step)

    step = torch.compiler.disable(torch.optim.SGD.step)

    def _move_points(self, points: list[geoopt.ManifoldParameter], group: dict[str, Any]) -> None:
        momentum = group["momentum"]
        for point in points:
            manifold, x, state = point.manifold, point.detach(), self.state[point]
            gradient, _ = _gradient(manifold, x, -point.grad if group["maximize"] else point.grad)
            before = state.get("momentum_buffer")
            m = gradient if before is None else momentum * before + (1 - group["dampening"]) * gradient
            along = gradient + momentum * m if group["nesterov"] else m
            moved, carried = _move(manifold, x, -group["lr"] * along, m, group["step"])
            if momentum:
                state["momentum_buffer"] = carried
            x.copy_(moved)


def _is_curved(parameter: Tensor) -> bool:
    return isinstance(parameter, geoopt.ManifoldTensor) and not isinstance(parameter.manifold, geoopt.Euclidean)


def _check_step_kind(step: str) -> None:
    if step not in STEP_KINDS:
        raise InputError(f"step must be {' or '.join(map(repr, STEP_KINDS))}, got {step!r}")
