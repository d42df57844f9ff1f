r"""HKConv as one operator, ``hkconv::hk_conv``, with nothing of size edges x kernel points x n kept.

Without an activation, HLinear's products are linear in the two ends of an edge,
:math:`W (u \ominus x) = W_s u_s - c\,W_s x_s + t' w_t`, so they are taken over *nodes*, here. What is left for an edge
is a gather and a few multiply-adds, in :mod:`hkconv.ops.cpu` and :mod:`hkconv.ops.cuda`. Between forward and backward
the products of the nodes are kept; of each edge nothing on a CPU, and on a GPU four numbers a kernel point and eleven
more. Small maps on a CPU, and on either device maps of relative features with ``rectify``, where ReLU is the
activation, are applied to each edge by itself.

The operator lives on the hyperboloid of curvature -1: :math:`x/R` is a point of it, the centroid commutes with the
scaling, and shares of distances do not change. Other curvatures, and the gradient of a learned one, are therefore a
matter of a few multiplications around it.
"""

from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hkconv.geometry.centroid import effective_weight
from hkconv.geometry.curvature import Curvature, curvature_radius
from hkconv.geometry.lorentz import lift
from hkconv.ops import reference
from hkconv.ops.linear import LinearTensors
from hkconv.ops.neighbors import Neighbors


class Inputs(NamedTuple):
    """The differentiable inputs of the operator, in its order; ``edge_weight`` in the order by target."""

    x_source: Tensor
    x_target: Tensor
    weight: Tensor
    bias: Tensor | None
    gate_weight: Tensor
    gate_bias: Tensor | None
    log_scale: Tensor
    points: Tensor
    edge_weight: Tensor | None


class EdgeInputs(NamedTuple):
    r"""All that the edges read, for S sources, T targets and K kernel points, at curvature -1.

    A row of products holds the K directions one after the other, then the K gates, then unused room: P numbers.

    Args:
        source, target: points ``(S|T, m+1)``, of which only the space is read.
        source_product: :math:`W_s u_s` and :math:`v_s \cdot u_s`; if not relative, :math:`W u` and :math:`v \cdot u`.
        target_product: :math:`W_s x_s` and :math:`v_s \cdot x_s`; None if not relative.
        bias: :math:`b` and :math:`b'`, ``(P,)``.
        time: :math:`w_t` and :math:`v_t`, ``(P,)``.
        scale: :math:`\lambda`, ``(K,)``.
        points: kernel points ``(K, m+1)``, as the backend reads them.
        weight: ``(E,)`` in the order by target, not all zero for any target; None for equal ones.
        record: what a backend keeps of each edge, ``(E, R)``; None if nothing.
        out_dim: :math:`n`.
    """

    source: Tensor
    target: Tensor
    source_product: Tensor
    target_product: Tensor | None
    bias: Tensor
    time: Tensor
    scale: Tensor
    points: Tensor
    weight: Tensor | None
    record: Tensor | None
    out_dim: int


class EdgeGradients(NamedTuple):
    """Gradients of :class:`EdgeInputs`, empty where there is none."""

    source: Tensor
    target: Tensor
    source_product: Tensor
    target_product: Tensor
    bias: Tensor
    time: Tensor
    scale: Tensor
    points: Tensor
    weight: Tensor


_SCHEMA = ", ".join(
    [f"Tensor{'?' if 'None' in str(kind) else ''} {name}" for name, kind in Inputs.__annotations__.items()]
    + [f"Tensor neighbors_{name}" for name in Neighbors._fields]
    + ["bool relative", "bool rectify"]
)
torch.library.define("hkconv::hk_conv", f"({_SCHEMA}) -> (Tensor, Tensor)")
torch.library.define(
    "hkconv::hk_conv_backward",
    f"({_SCHEMA}, Tensor out, Tensor mass, Tensor grad_out, Tensor? grad_mass, bool points_too) -> Tensor[]",
)


def hk_aggregate(
    x_source: Tensor,
    x_target: Tensor,
    neighbors: Neighbors,
    edge_weight: Tensor | None,
    linear: LinearTensors,
    points: Tensor,
    relative: bool = True,
    curvature: Curvature = -1.0,
    with_mass: bool = True,
    rectify: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """:func:`hkconv.ops.reference.hk_aggregate`, ``edge_weight`` in the order by target, ``rectify`` for ReLU."""
    edge_weight = None if edge_weight is None else edge_weight.to(x_source.dtype)
    acting = None if edge_weight is None else acting_weight(edge_weight, neighbors)
    if not relative:  # the only product in which time is an input and not computed
        x_source = lift(x_source[:, 1:], curvature)
    inputs = Inputs(x_source, x_target, points=points, edge_weight=acting, **linear)
    R = curvature_radius(curvature)
    curved = isinstance(R, Tensor) or R != 1
    out, unit_mass = hk_conv(_on_unit_hyperboloid(inputs, R) if curved else inputs, neighbors, relative, rectify)
    mass = unit_mass * _total_weight(edge_weight, neighbors) if with_mass else None
    return out * R if curved else out, mass


def hk_conv(inputs: Inputs, neighbors: Neighbors, relative: bool, rectify: bool = False) -> tuple[Tensor, Tensor]:
    """Aggregated points ``(T, n+1)`` on the hyperboloid of curvature -1, and their masses for unit total weight."""
    if torch.compiler.is_compiling() or type(inputs.x_source) not in _PLAIN:
        return torch.ops.hkconv.hk_conv(*inputs, *neighbors, relative, rectify)
    return _HKConv.apply(*inputs, *neighbors, relative, rectify)


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


def acting_weight(weight: Tensor, neighbors: Neighbors) -> Tensor:
    """Weights as they act: in units of the largest at their target, and equal ones where all vanish.

    A centroid does not depend on the unit, which keeps the inverse of a sum of tiny weights within range.
    """
    largest = torch.segment_reduce(weight.detach(), "max", offsets=neighbors.target_pointer)
    return effective_weight(weight, largest.index_select(0, neighbors.target))


def _total_weight(weight: Tensor | None, neighbors: Neighbors) -> Tensor:
    if weight is None:
        return neighbors.target_pointer.diff()
    return weight.new_zeros(neighbors.size[1]).index_add(0, neighbors.target, weight)


class _Form(NamedTuple):
    """Features that HLinear sees: relative ones or points, with ReLU or without."""

    relative: bool
    rectify: bool


class _Prepared(NamedTuple):
    """The packed weights of HLinear, ``(P, m+1)``, and all that the edges read."""

    weight: Tensor
    edges: EdgeInputs


def _split(arguments: tuple) -> tuple[Inputs, Neighbors, _Form, tuple]:
    """The arguments of the operator, and what comes after them."""
    end = len(Inputs._fields)
    last = end + len(Neighbors._fields)
    form = _Form._make(arguments[last : last + 2])
    return Inputs(*arguments[:end]), Neighbors(*arguments[end:last]), form, arguments[last + 2 :]


def _backend(x: Tensor) -> ModuleType:
    # Imported when first used: Triton is not everywhere.
    if x.device.type == "cpu":
        from hkconv.ops import cpu

        return cpu
    from hkconv.ops import cuda

    return cuda


def _prepare(inputs: Inputs, neighbors: Neighbors, form: _Form) -> _Prepared:
    backend = _backend(inputs.x_source)
    weight, bias, time, scale, points = backend.pack(inputs)
    edges = EdgeInputs(
        inputs.x_source.contiguous(),
        inputs.x_target.contiguous(),
        *_products(inputs, weight, form),
        bias,
        time,
        scale,
        points,
        None if inputs.edge_weight is None else inputs.edge_weight.contiguous(),
        None,
        inputs.weight.size(1),
    )
    return _Prepared(weight, edges._replace(record=backend.see(edges, neighbors)))


def _is_shared(inputs: Inputs) -> bool:
    """True where sources and targets are the same nodes, which then need their products once."""
    source, target = inputs.x_source, inputs.x_target
    return source.data_ptr() == target.data_ptr() and source.shape == target.shape


def _products(inputs: Inputs, weight: Tensor, form: _Form) -> tuple[Tensor, Tensor | None]:
    """Those of the sources and of the targets; the same tensor where these are the same nodes."""
    if form.rectify:
        directions, gates = _maps(inputs, weight)
        return torch.cat([inputs.x_source.relu() @ directions.T, inputs.x_source @ gates.T], dim=1), None
    if not form.relative:
        return inputs.x_source @ weight.T, None
    weight = weight[:, 1:].T
    of_sources = inputs.x_source[:, 1:] @ weight
    return of_sources, of_sources if _is_shared(inputs) else inputs.x_target[:, 1:] @ weight


def _maps(inputs: Inputs, rows: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    """Those of packed weights or products that belong to directions, and to gates with the room behind them."""
    K, n, _ = inputs.weight.shape
    return rows.narrow(dim, 0, K * n), rows.narrow(dim, K * n, rows.size(dim) - K * n)


def _through_products(inputs: Inputs, weight: Tensor, found: EdgeGradients, form: _Form) -> Tensor:
    """Add to the gradients of points what comes through the products; returns the gradient of the packed weights.

    Without that of time if relative, where time has products of its own.
    """
    if form.rectify:
        (directions, gates), of_products = _maps(inputs, weight), _maps(inputs, found.source_product, dim=1)
        found.source.add_((of_products[0] @ directions) * (inputs.x_source > 0)).addmm_(of_products[1], gates)
        return torch.cat([of_products[0].T @ inputs.x_source.relu(), of_products[1].T @ inputs.x_source])
    if not form.relative:
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


def _aggregate(inputs: Inputs, neighbors: Neighbors, form: _Form) -> tuple[tuple[Tensor, Tensor], _Prepared | None]:
    """Aggregated points and masses, and the products they were made of, if any."""
    backend = _backend(inputs.x_source)
    if backend.multiplies_edges(inputs, *form):
        return backend.aggregate_by_edges(inputs, neighbors, form.rectify), None
    prepared = _prepare(inputs, neighbors, form)
    return backend.aggregate(prepared.edges, neighbors), prepared


def _gradients(
    inputs: Inputs,
    neighbors: Neighbors,
    form: _Form,
    prepared: _Prepared | None,
    outputs: tuple[Tensor, Tensor],
    grads: tuple[Tensor, Tensor | None],
    points_too: bool,
) -> list[Tensor]:
    """Gradients in the order of :class:`Inputs`, given the outputs and their gradients."""
    backend = _backend(inputs.x_source)
    if prepared is None:
        return backend.gradients_by_edges(inputs, neighbors, outputs, grads, points_too, form.rectify)
    found = backend.gradients(prepared.edges, neighbors, outputs, grads, points_too)
    by_weight = _through_products(inputs, prepared.weight, found, form)
    by_parameter = backend.unpack(inputs, prepared.edges.scale, found, by_weight, form.relative)
    by_input = {"x_source": found.source, "x_target": found.target, "points": found.points, "edge_weight": found.weight}
    return [{**by_parameter, **by_input}[name] for name in Inputs._fields]


@torch.library.impl("hkconv::hk_conv", ("cpu", "cuda"))
def _forward(*arguments: Any) -> tuple[Tensor, Tensor]:
    inputs, neighbors, form, _ = _split(arguments)
    return _aggregate(inputs, neighbors, form)[0]


@torch.library.impl("hkconv::hk_conv_backward", ("cpu", "cuda"))
def _backward(*arguments: Any) -> list[Tensor]:
    inputs, neighbors, form, (out, mass, grad_out, grad_mass, points_too) = _split(arguments)
    backend = _backend(inputs.x_source)
    prepared = None if backend.multiplies_edges(inputs, *form) else _prepare(inputs, neighbors, form)
    if prepared is not None and prepared.edges.record is not None:
        backend.aggregate(prepared.edges, neighbors)  # which fills the records
    return _gradients(inputs, neighbors, form, prepared, (out, mass), (grad_out, grad_mass), points_too)


@torch.library.register_fake("hkconv::hk_conv")
def _shapes(*arguments: Any) -> tuple[Tensor, Tensor]:
    inputs, *_ = _split(arguments)
    targets = inputs.x_target.size(0)
    return inputs.x_target.new_empty(targets, inputs.weight.size(1) + 1), inputs.x_target.new_empty(targets)


@torch.library.register_fake("hkconv::hk_conv_backward")
def _backward_shapes(*arguments: Any) -> list[Tensor]:
    inputs, points_too = _split(arguments)[0], arguments[-1]
    shapes = [
        None if value is None else value.shape
        for value in inputs._replace(bias=inputs.weight[..., 0], gate_bias=inputs.log_scale)
    ]
    if not points_too:
        shapes[_POINTS] = None
    return [inputs.weight.new_empty((0,) if shape is None else shape) for shape in shapes]


def _save(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    *tensors, relative, rectify = inputs
    ctx.form = _Form(relative, rectify)
    ctx.save_for_backward(*tensors, *output)
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, grad_out: Tensor | None, grad_mass: Tensor | None) -> tuple[Tensor | None, ...]:
    *tensors, out, mass = ctx.saved_tensors
    grad_out = torch.zeros_like(out) if grad_out is None else grad_out
    arguments = (*tensors, *ctx.form)
    if torch.is_grad_enabled():  # the gradient is to be differentiated itself
        return _differentiable_gradient(*_split(arguments)[:3], ctx.needs_input_grad, (grad_out, grad_mass))
    points_too = ctx.needs_input_grad[_POINTS]
    found = torch.ops.hkconv.hk_conv_backward(*arguments, out, mass, grad_out, grad_mass, points_too)
    return _needed(found, ctx.needs_input_grad)


_POINTS = Inputs._fields.index("points")
_NO_GRADIENTS = (None,) * (len(Neighbors._fields) + len(_Form._fields))
_TENSORS = len(Inputs._fields) + len(Neighbors._fields)


def _needed(found: list[Tensor], needs: tuple[bool, ...]) -> tuple[Tensor | None, ...]:
    return *(gradient if need else None for gradient, need in zip(found, needs)), *_NO_GRADIENTS


torch.library.register_autograd("hkconv::hk_conv", _gradient, setup_context=_save)

# Tensors that can be computed with at once; those that only record what is done to them need the operator.
_PLAIN = {Tensor, torch.nn.Parameter}


class _HKConv(torch.autograd.Function):
    """The operator without torch's dispatcher, the Python part of which takes longer than a small graph's kernels."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor]:
        inputs, neighbors, ctx.form, _ = _split(arguments)
        outputs, prepared = _aggregate(inputs, neighbors, ctx.form)
        kept: tuple[Tensor | None, ...] = ()
        if prepared is not None:
            *edge_tensors, ctx.out_dim = prepared.edges
            kept = (prepared.weight, *edge_tensors)
        ctx.save_for_backward(*arguments[:_TENSORS], *outputs, *kept)
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor | None, grad_mass: Tensor | None) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # once: a checkpoint gives them a single time
        tensors, (out, mass, *kept) = saved[:_TENSORS], saved[_TENSORS:]
        inputs, neighbors, *_ = _split((*tensors, *ctx.form))
        grads = torch.zeros_like(out) if grad_out is None else grad_out, grad_mass
        needed = ctx.needs_input_grad
        if torch.is_grad_enabled():  # the gradient is to be differentiated itself
            return _differentiable_gradient(inputs, neighbors, ctx.form, needed, grads)
        prepared = _Prepared(kept[0], EdgeInputs._make([*kept[1:], ctx.out_dim])) if kept else None
        return _needed(_gradients(inputs, neighbors, ctx.form, prepared, (out, mass), grads, needed[_POINTS]), needed)


def _differentiable_gradient(
    given: Inputs,
    neighbors: Neighbors,
    form: _Form,
    needed: tuple[bool, ...],
    grads: tuple[Tensor, Tensor | None],
) -> tuple[Tensor | None, ...]:
    """The gradient by way of the reference, which PyTorch can differentiate again."""
    # Aliases, because sources and targets may be one tensor with two gradients.
    inputs = Inputs._make(None if value is None else value.view_as(value) for value in given)
    linear: LinearTensors = {
        "weight": inputs.weight,
        "bias": inputs.bias,
        "gate_weight": inputs.gate_weight,
        "gate_bias": inputs.gate_bias,
        "log_scale": inputs.log_scale,
    }
    x_source, x_target, points = (lift(x[:, 1:]) for x in (inputs.x_source, inputs.x_target, inputs.points))
    edges = neighbors.edges()._replace(weight=inputs.edge_weight)
    act = torch.relu if form.rectify else None
    out, mass = reference.hk_aggregate(x_source, x_target, edges, linear, points, act, relative=form.relative)
    total = _total_weight(inputs.edge_weight, neighbors)
    unit_mass = torch.where(total > 0, mass / torch.where(total > 0, total, 1), 1)
    wanted = [value for value, need in zip(inputs, needed) if need and value is not None]
    used = [(output, grad) for output, grad in zip((out, unit_mass), grads) if grad is not None]
    found_outputs, found_grads = zip(*used)
    found = iter(torch.autograd.grad(found_outputs, wanted, found_grads, create_graph=True, allow_unused=True))
    return *(next(found) if need else None for need in needed[: len(inputs)]), *_NO_GRADIENTS
