r"""Attention as one operator, ``hkconv::hk_attention``, in memory linear in the lengths of the sequences.

As in :mod:`hkconv.ops.fused` the products of HLinear are taken over *positions*, here, and a pair of positions needs a
few multiply-adds, in :mod:`hkconv.ops.attention_cpu` and :mod:`hkconv.ops.attention_cuda`, which go over the pairs
block by block. Between forward and backward of all pairs nothing is kept but the logarithm of each query's sum of
exponentials.

The operator lives on the hyperboloid of curvature -1, where :math:`d` is :math:`1/R` of what it was: scores have a
factor of their own, :math:`R^2/\sqrt n`.
"""

from types import ModuleType
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from hkconv.geometry.curvature import Curvature, curvature_radius
from hkconv.geometry.lorentz import lift
from hkconv.ops import reference
from hkconv.ops.linear import LinearTensors


class KernelInputs(NamedTuple):
    """Inputs of HKConv's aggregation beside HyboNet's, as in :class:`AttentionInputs`."""

    own: Tensor
    weight: Tensor
    bias: Tensor | None
    gate_weight: Tensor
    gate_bias: Tensor | None
    log_scale: Tensor
    points: Tensor


class AttentionInputs(NamedTuple):
    r"""The tensors of the operator, in its order, for H heads, B sequences, T queries, S keys and K kernel points.

    Args:
        query, key, value, own: points ``(H, B, T|S|S|T, n+1)``, of which only the space is read.
        weight, bias, gate_weight, gate_bias, log_scale: of K HLinear a head, with leading ``(H, K)``.
        points: kernel points ``(K, n+1)``.
        steepness: the factor of :math:`-d^2` in the scores, ``()``.
        padding: ``(B, S)``, true for keys that nobody sees.

    ``own`` to ``points`` are None for HyboNet's aggregation.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    own: Tensor | None
    weight: Tensor | None
    bias: Tensor | None
    gate_weight: Tensor | None
    gate_bias: Tensor | None
    log_scale: Tensor | None
    points: Tensor | None
    steepness: Tensor
    padding: Tensor | None

    @property
    def kernel(self) -> KernelInputs | None:
        """``own`` to ``points``; None for HyboNet's aggregation."""
        if self.own is None:
            return None
        # With the first come all of them but the biases, which are optional.
        return KernelInputs(
            self.own,
            cast(Tensor, self.weight),
            self.bias,
            cast(Tensor, self.gate_weight),
            self.gate_bias,
            cast(Tensor, self.log_scale),
            cast(Tensor, self.points),
        )


class Kernel(NamedTuple):
    r"""Operands of pairs for HKConv. A row of products holds the K directions one after the other, then the K gates.

    Args:
        own: the points :math:`v_i`, ``(H, B, T, n+1)``.
        value_product, own_product: :math:`W_s v_s` and the gates' :math:`v \cdot v_s`, ``(H, B, S|T, K(n+1))``.
        bias, time: :math:`b` and :math:`w_t` in the same order, ``(H, K(n+1))``.
        scale: :math:`\lambda`, ``(H, K)``.
        points: ``(K, n+1)``.
    """

    own: Tensor
    value_product: Tensor
    own_product: Tensor
    bias: Tensor
    time: Tensor
    scale: Tensor
    points: Tensor


class Pairs(NamedTuple):
    """All that pairs of queries and keys read; the kernel is None for HyboNet's aggregation."""

    query: Tensor
    key: Tensor
    value: Tensor
    steepness: Tensor
    padding: Tensor | None
    causal: bool
    kernel: Kernel | None


class KernelGradients(NamedTuple):
    """Gradients of :class:`Kernel`, as in :class:`PairGradients`."""

    own: Tensor
    value_product: Tensor
    own_product: Tensor
    time: Tensor
    scale: Tensor
    points: Tensor


class PairGradients(NamedTuple):
    """Gradients of :class:`Pairs`, and of :class:`Kernel` if there is one; that of the biases follows from these."""

    query: Tensor
    key: Tensor
    value: Tensor
    steepness: Tensor
    own: Tensor | None = None
    value_product: Tensor | None = None
    own_product: Tensor | None = None
    time: Tensor | None = None
    scale: Tensor | None = None
    points: Tensor | None = None

    @property
    def kernel(self) -> KernelGradients:
        """Those of :class:`Kernel`, where there is one."""
        return KernelGradients._make(getattr(self, name) for name in KernelGradients._fields)


_SCHEMA = ", ".join(
    [f"Tensor{'?' if 'None' in str(kind) else ''} {name}" for name, kind in AttentionInputs.__annotations__.items()]
    + ["bool causal"]
)
torch.library.define("hkconv::hk_attention", f"({_SCHEMA}) -> (Tensor, Tensor, Tensor)")
torch.library.define(
    "hkconv::hk_attention_backward",
    f"({_SCHEMA}, Tensor out, Tensor mass, Tensor log_total, Tensor grad_out, bool points_too) -> Tensor[]",
)
_POINTS = AttentionInputs._fields.index("points")
LINEAR = ("weight", "bias", "gate_weight", "gate_bias", "log_scale")


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    own: Tensor | None = None,
    linear: LinearTensors | None = None,
    points: Tensor | None = None,
    padding: Tensor | None = None,
    causal: bool = False,
    curvature: Curvature = -1.0,
) -> Tensor:
    """:func:`hkconv.ops.reference.attend`, block by block."""
    R = curvature_radius(curvature)
    # Filled on the device: a copy from the host could not be captured in a CUDA graph.
    steepness = query.new_full((), (key.size(-1) - 1) ** -0.5) * (R * R)
    parameters = dict.fromkeys(LINEAR) if linear is None else cast(dict[str, Tensor | None], linear)
    inputs = AttentionInputs(query, key, value, own, points=points, steepness=steepness, padding=padding, **parameters)
    if isinstance(R, Tensor) or R != 1:
        return R * torch.ops.hkconv.hk_attention(*_on_unit_hyperboloid(inputs, R), causal)[0]
    return torch.ops.hkconv.hk_attention(*inputs, causal)[0]


def _on_unit_hyperboloid(inputs: AttentionInputs, R: float | Tensor) -> AttentionInputs:
    """With points divided by R, the weights that see them are multiplied by it, and lengths shrink with the points."""
    value = inputs.value / R
    scaled = inputs._replace(query=inputs.query / R, key=inputs.key / R, value=value)
    kernel = inputs.kernel
    if kernel is None:
        return scaled
    return scaled._replace(
        own=value if inputs.own is inputs.value else kernel.own / R,
        weight=kernel.weight * R,
        gate_weight=kernel.gate_weight * R,
        log_scale=(kernel.log_scale.exp() / R).log(),
        points=kernel.points / R,
    )


def _backend(x: Tensor) -> ModuleType:
    # Imported when first used: Triton is not everywhere.
    if x.device.type == "cpu":
        from hkconv.ops import attention_cpu

        return attention_cpu
    from hkconv.ops import attention_cuda

    return attention_cuda


def _packed_weight(kernel: KernelInputs) -> Tensor:
    """Directions and gates below each other, ``(H, K(n+1), n+1)``."""
    return torch.cat([kernel.weight.flatten(1, 2), kernel.gate_weight], dim=1)


def _product(points: Tensor, weight: Tensor) -> Tensor:
    """``(H, B, T, n+1), (H, P, n+1) -> (H, B, T, P)``, without time."""
    return (points[..., 1:].flatten(1, 2) @ weight[..., 1:].mT).unflatten(1, points.shape[1:3])


def _pairs(inputs: AttentionInputs, causal: bool) -> Pairs:
    kernel = None if inputs.kernel is None else _kernel(inputs.kernel, inputs.value)
    query, key, value = (x.contiguous() for x in (inputs.query, inputs.key, inputs.value))
    padding = None if inputs.padding is None else inputs.padding.contiguous()
    return Pairs(query, key, value, inputs.steepness, padding, causal, kernel)


def _kernel(inputs: KernelInputs, value: Tensor) -> Kernel:
    weight = _packed_weight(inputs)
    bias = torch.zeros_like(inputs.weight[..., 0]) if inputs.bias is None else inputs.bias
    gate_bias = torch.zeros_like(inputs.log_scale) if inputs.gate_bias is None else inputs.gate_bias
    of_values = _product(value, weight)
    return Kernel(
        inputs.own.contiguous(),
        of_values,
        of_values if _is_shared(inputs.own, value) else _product(inputs.own, weight),
        torch.cat([bias.flatten(1), gate_bias], dim=1),
        weight[..., 0].contiguous(),
        inputs.log_scale.exp(),
        inputs.points.contiguous(),
    )


def _is_shared(own: Tensor, value: Tensor) -> bool:
    """True where queries stand at all the values' positions, which then need their products once."""
    return own.data_ptr() == value.data_ptr() and own.shape == value.shape


@torch.library.impl("hkconv::hk_attention", ("cpu", "cuda"))
def _forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    *tensors, causal = arguments
    inputs = AttentionInputs(*tensors)
    return _backend(inputs.query).attend(_pairs(inputs, causal))


@torch.library.impl("hkconv::hk_attention_backward", ("cpu", "cuda"))
def _backward(*arguments: Any) -> list[Tensor]:
    *tensors, causal, out, mass, log_total, grad_out, points_too = arguments
    inputs = AttentionInputs(*tensors)
    pairs = _pairs(inputs, causal)
    found: PairGradients = _backend(out).gradients(pairs, (out, mass, log_total), grad_out.contiguous(), points_too)
    gradients = {"query": found.query, "key": found.key, "value": found.value, "steepness": found.steepness}
    if inputs.kernel is not None:
        of_kernel = found.kernel
        by_parameter = _through_products(inputs.kernel, inputs.value, of_kernel, found.value)
        gradients |= {"own": of_kernel.own, "points": of_kernel.points, **by_parameter}
    return [gradients[name] if name in gradients else out.new_empty(0) for name in AttentionInputs._fields]


def _through_products(
    inputs: KernelInputs, value: Tensor, found: KernelGradients, grad_value: Tensor
) -> dict[str, Tensor]:
    """Add to the gradients of points what comes through the products; returns those of HLinear's parameters."""
    weight = _packed_weight(inputs)[..., 1:]
    by_bias = found.value_product.sum((1, 2))
    if _is_shared(inputs.own, value):
        both = found.value_product.add_(found.own_product).flatten(1, 2)
        by_weight = both.mT @ value[..., 1:].flatten(1, 2)
        grad_value[..., 1:] += (both @ weight).view_as(value[..., 1:])
    else:
        by_end = []
        for points, into, by_product in (
            (value, grad_value, found.value_product),
            (inputs.own, found.own, found.own_product),
        ):
            by_product = by_product.flatten(1, 2)
            by_end.append(by_product.mT @ points[..., 1:].flatten(1, 2))
            into[..., 1:] += (by_product @ weight).view_as(points[..., 1:])
        by_weight = by_end[0] + by_end[1]
    by_weight = torch.cat([found.time.unsqueeze(-1), by_weight], dim=-1)
    K, n = inputs.weight.shape[1:3]
    parts = {
        "weight": by_weight[:, : K * n].unflatten(1, (K, n)),
        "bias": by_bias[:, : K * n].unflatten(1, (K, n)),
        "gate_weight": by_weight[:, K * n :],
        "gate_bias": by_bias[:, K * n :],
        "log_scale": found.scale * inputs.log_scale.exp(),
    }
    # An operator's outputs share no memory.
    return {name: part.clone(memory_format=torch.contiguous_format) for name, part in parts.items()}


@torch.library.register_fake("hkconv::hk_attention")
def _shapes(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    query: Tensor = arguments[0]
    return query.new_empty(query.shape), query.new_empty(query.shape[:-1]), query.new_empty(query.shape[:-1])


@torch.library.register_fake("hkconv::hk_attention_backward")
def _backward_shapes(*arguments: Any) -> list[Tensor]:
    inputs = AttentionInputs(*arguments[: len(AttentionInputs._fields)])._replace(padding=None)
    kernel = inputs.kernel
    if kernel is not None:
        inputs = inputs._replace(bias=kernel.weight[..., 0], gate_bias=kernel.log_scale)
    if not arguments[-1]:
        inputs = inputs._replace(points=None)
    return [inputs.query.new_empty((0,) if value is None else value.shape) for value in inputs]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    *tensors, ctx.causal = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.mark_non_differentiable(*output[1:])


def _gradient(ctx: Any, grad_out: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    *tensors, out, mass, log_total = ctx.saved_tensors
    if torch.is_grad_enabled():  # the gradient is to be differentiated itself
        return _differentiable_gradient(AttentionInputs(*tensors), ctx.causal, ctx.needs_input_grad, grad_out)
    points_too = ctx.needs_input_grad[_POINTS]
    found = torch.ops.hkconv.hk_attention_backward(*tensors, ctx.causal, out, mass, log_total, grad_out, points_too)
    return *(gradient if need else None for gradient, need in zip(found, ctx.needs_input_grad)), None


torch.library.register_autograd("hkconv::hk_attention", _gradient, setup_context=_save)


def _differentiable_gradient(
    given: AttentionInputs, causal: bool, needed: tuple[bool, ...], grad_out: Tensor
) -> tuple[Tensor | None, ...]:
    """The gradient by way of the reference, which PyTorch can differentiate again."""
    # Aliases, because values and their own may be one tensor with two gradients.
    inputs = AttentionInputs._make(None if value is None else value.view_as(value) for value in given)
    linear = None if inputs.own is None else cast(LinearTensors, {name: getattr(inputs, name) for name in LINEAR})
    query, key, value = (lift(x[..., 1:]) for x in (inputs.query, inputs.key, inputs.value))
    own, points = (None if x is None else lift(x[..., 1:]) for x in (inputs.own, inputs.points))
    out = reference.attend(query, key, value, own, linear, points, inputs.padding, causal, steepness=inputs.steepness)
    wanted = [x for x, need in zip(inputs, needed) if need and x is not None]
    found = iter(torch.autograd.grad(out, wanted, grad_out, create_graph=True, materialize_grads=True))
    return *(next(found) if need else None for need in needed[: len(AttentionInputs._fields)]), None
