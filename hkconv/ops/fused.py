r"""HKConv as one operator, ``hkconv::hk_conv``, with nothing of size edges x kernel points x n ever stored.

Without an activation, HLinear's products are linear in the two ends of an edge,
:math:`W (u \ominus x) = W_s u_s - c\,W_s x_s + t' w_t`, so they are taken over *nodes*, here. What is left for an edge
is a gather and a few multiply-adds, in :mod:`hkconv.ops.cpu` and :mod:`hkconv.ops.cuda`. The backward pass takes the
products anew rather than keeping them.

The operator lives on the hyperboloid of curvature -1: :math:`x/R` is a point of it, the centroid commutes with the
scaling, and shares of distances do not change. Other curvatures, and the gradient of a learned one, are therefore a
matter of a few multiplications around it.
"""

from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.geometry.centroid import effective_weight
from hkconv.geometry.curvature import curvature_radius
from hkconv.geometry.lorentz import lift
from hkconv.ops import reference
from hkconv.ops.edges import EdgeGradients, EdgeInputs, Inputs, Packed
from hkconv.ops.neighbors import Neighbors

_SCHEMA = ", ".join(
    [f"Tensor{'?' if 'None' in str(kind) else ''} {name}" for name, kind in Inputs.__annotations__.items()]
    + [f"Tensor neighbors_{name}" for name in Neighbors._fields]
    + ["bool relative"]
)
torch.library.define("hkconv::hk_conv", f"({_SCHEMA}) -> (Tensor, Tensor)")
torch.library.define(
    "hkconv::hk_conv_backward",
    f"({_SCHEMA}, Tensor out, Tensor mass, Tensor grad_out, Tensor grad_mass, bool points_too) -> Tensor[]",
)


def hk_aggregate(
    x_source: Tensor,
    x_target: Tensor,
    neighbors: Neighbors,
    edge_weight: Tensor | None,
    linear: dict[str, Tensor | None],
    points: Tensor,
    relative: bool = True,
    curvature: float | Tensor = -1.0,
    with_mass: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """:func:`hkconv.ops.reference.hk_aggregate` without an activation, ``edge_weight`` in the order by target."""
    edge_weight = None if edge_weight is None else edge_weight.to(x_source.dtype)
    acting = None if edge_weight is None else _acting_weight(edge_weight, neighbors)
    if not relative:  # the only product in which time is an input and not computed
        x_source = lift(x_source[:, 1:], curvature)
    inputs = Inputs(x_source, x_target, points=points, edge_weight=acting, **linear)
    R = curvature_radius(curvature)
    curved = isinstance(R, Tensor) or R != 1
    out, unit_mass = hk_conv(_on_unit_hyperboloid(inputs, R) if curved else inputs, neighbors, relative)
    mass = unit_mass * _total_weight(edge_weight, neighbors) if with_mass else None
    return out * R if curved else out, mass


def hk_conv(inputs: Inputs, neighbors: Neighbors, relative: bool) -> tuple[Tensor, Tensor]:
    """Aggregated points ``(T, n+1)`` on the hyperboloid of curvature -1, and their masses for unit total weight."""
    return torch.ops.hkconv.hk_conv(*inputs, *neighbors, relative)


def _on_unit_hyperboloid(inputs: Inputs, R: float | Tensor) -> Inputs:
    """With points divided by R, the weights that see them are multiplied by it, and lengths shrink with the points."""
    x_source = inputs.x_source / R
    return inputs._replace(
        x_source=x_source,
        x_target=x_source if inputs.x_target is inputs.x_source else inputs.x_target / R,
        weight=inputs.weight * R,
        gate_weight=inputs.gate_weight * R,
        log_scale=(inputs.log_scale.exp() / R).log(),
        points=inputs.points / R,
    )


def _acting_weight(weight: Tensor, neighbors: Neighbors) -> Tensor:
    """Where all weights of a target vanish, all its neighbours count alike."""
    counted = F.pad((weight > 0).cumsum(0, dtype=torch.int32), (1, 0))
    positive = counted[neighbors.target_pointer].diff()
    return effective_weight(weight, positive[neighbors.target_by_target()])


def _total_weight(weight: Tensor | None, neighbors: Neighbors) -> Tensor:
    if weight is None:
        return neighbors.target_pointer.diff()
    return weight.new_zeros(neighbors.size[1]).index_add(0, neighbors.target_by_target(), weight)


class _Call(NamedTuple):
    inputs: Inputs
    neighbors: Neighbors
    relative: bool


def _parse(arguments: tuple) -> _Call:
    split, end = len(Inputs._fields), len(Inputs._fields) + len(Neighbors._fields)
    return _Call(Inputs(*arguments[:split]), Neighbors(*arguments[split:end]), arguments[end])


def _backend(x: Tensor) -> ModuleType:
    # Imported when first used: Numba takes a second, and Triton is not everywhere.
    if x.device.type == "cpu":
        from hkconv.ops import cpu

        return cpu
    from hkconv.ops import cuda

    return cuda


@torch.library.impl("hkconv::hk_conv", ("cpu", "cuda"))
def _forward(*arguments) -> tuple[Tensor, Tensor]:
    call = _parse(arguments)
    backend = _backend(call.inputs.x_source)
    return backend.aggregate(_edge_inputs(call, backend.pack(call.inputs)), call.neighbors)


@torch.library.impl("hkconv::hk_conv_backward", ("cpu", "cuda"))
def _backward(*arguments) -> list[Tensor]:
    call = _parse(arguments)
    out, mass, grad_out, grad_mass, points_too = arguments[-5:]
    backend = _backend(out)
    packed = backend.pack(call.inputs)
    edge_inputs = _edge_inputs(call, packed)
    found = backend.gradients(edge_inputs, call.neighbors, (out, mass), (grad_out, grad_mass), points_too)
    by_bias = found.source_product.sum(0)
    by_weight = _through_products(call, packed, found)
    by_parameter = backend.unpack(call.inputs, packed, found, by_weight, by_bias, call.relative)
    by_input = {"x_source": found.source, "x_target": found.target, "points": found.points, "edge_weight": found.weight}
    return [{**by_parameter, **by_input}[name] for name in Inputs._fields]


def _is_shared(inputs: Inputs) -> bool:
    """Whether sources and targets are the same nodes, which then need their products once."""
    source, target = inputs.x_source, inputs.x_target
    return source.data_ptr() == target.data_ptr() and source.shape == target.shape


def _edge_inputs(call: _Call, packed: Packed) -> EdgeInputs:
    inputs = call.inputs
    if call.relative:
        source_product = inputs.x_source[:, 1:] @ packed.weight[:, 1:].T
        target_product = source_product if _is_shared(inputs) else inputs.x_target[:, 1:] @ packed.weight[:, 1:].T
    else:
        source_product, target_product = inputs.x_source @ packed.weight.T, None
    return EdgeInputs(
        inputs.x_source.contiguous(),
        inputs.x_target.contiguous(),
        source_product,
        target_product,
        packed.bias,
        packed.time,
        packed.scale,
        inputs.points.contiguous(),
        None if inputs.edge_weight is None else inputs.edge_weight.contiguous(),
        inputs.weight.size(1),
    )


def _through_products(call: _Call, packed: Packed, found: EdgeGradients) -> Tensor:
    """Add to the gradients of points what comes through the products; returns the gradient of the packed weights.

    Without that of time if relative, where time has products of its own.
    """
    inputs, weight = call.inputs, packed.weight
    if not call.relative:
        found.source.addmm_(found.source_product, weight)
        return found.source_product.T @ inputs.x_source
    if _is_shared(inputs):
        by_product = found.source_product.add_(found.target_product)
        found.source[:, 1:].addmm_(by_product, weight[:, 1:])
        return by_product.T @ inputs.x_source[:, 1:]
    found.source[:, 1:].addmm_(found.source_product, weight[:, 1:])
    found.target[:, 1:].addmm_(found.target_product, weight[:, 1:])
    by_weight = found.source_product.T @ inputs.x_source[:, 1:]
    return by_weight.addmm_(found.target_product.T, inputs.x_target[:, 1:])


@torch.library.register_fake("hkconv::hk_conv")
def _shapes(*arguments) -> tuple[Tensor, Tensor]:
    inputs = _parse(arguments).inputs
    targets = inputs.x_target.size(0)
    return inputs.x_target.new_empty(targets, inputs.weight.size(1) + 1), inputs.x_target.new_empty(targets)


@torch.library.register_fake("hkconv::hk_conv_backward")
def _backward_shapes(*arguments) -> list[Tensor]:
    inputs, points_too = _parse(arguments).inputs, arguments[-1]
    shapes = inputs._replace(bias=inputs.weight[..., 0], gate_bias=inputs.log_scale)
    shapes = shapes if points_too else shapes._replace(points=None)
    return [inputs.weight.new_empty((0,) if value is None else value.shape) for value in shapes]


def _save(ctx, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.relative = inputs
    ctx.save_for_backward(*tensors, *output)


def _gradient(ctx, grad_out: Tensor | None, grad_mass: Tensor | None) -> tuple[Tensor | None, ...]:
    *tensors, out, mass = ctx.saved_tensors
    grad_out = torch.zeros_like(out) if grad_out is None else grad_out
    grad_mass = torch.zeros_like(mass) if grad_mass is None else grad_mass
    needed = ctx.needs_input_grad
    arguments = (*tensors, ctx.relative)
    if torch.is_grad_enabled():  # the gradient is to be differentiated itself
        return _differentiable_gradient(_parse(arguments), needed, (grad_out, grad_mass))
    points_too = needed[Inputs._fields.index("points")]
    found = torch.ops.hkconv.hk_conv_backward(*arguments, out, mass, grad_out, grad_mass, points_too)
    return *(gradient if need else None for gradient, need in zip(found, needed)), *_NO_GRADIENTS


_NO_GRADIENTS = (None,) * (len(Neighbors._fields) + 1)

torch.library.register_autograd("hkconv::hk_conv", _gradient, setup_context=_save)


def _differentiable_gradient(
    call: _Call, needed: tuple[bool, ...], grads: tuple[Tensor, Tensor]
) -> tuple[Tensor | None, ...]:
    """The gradient by way of the reference, which PyTorch can differentiate again."""
    # Aliases, because sources and targets may be one tensor with two gradients.
    inputs = Inputs(*(None if value is None else value.view_as(value) for value in call.inputs))
    linear = {name: getattr(inputs, name) for name in ("weight", "bias", "gate_weight", "gate_bias", "log_scale")}
    x_source, x_target, points = (lift(x[:, 1:]) for x in (inputs.x_source, inputs.x_target, inputs.points))
    edges = call.neighbors.edges()._replace(weight=inputs.edge_weight)
    out, mass = reference.hk_aggregate(x_source, x_target, edges, linear, points, relative=call.relative)
    total = _total_weight(inputs.edge_weight, call.neighbors)
    unit_mass = torch.where(total > 0, mass / torch.where(total > 0, total, 1), 1)
    wanted = [value for value, need in zip(inputs, needed) if need]
    found = iter(torch.autograd.grad((out, unit_mass), wanted, grads, create_graph=True, allow_unused=True))
    return *(next(found) if need else None for need in needed[: len(inputs)]), *_NO_GRADIENTS
