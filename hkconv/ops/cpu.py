"""HKConv on the CPU: the kernels of :mod:`hkconv.ops.native` over the edges of a group of targets.

Small maps are applied to each edge by itself (``native/by_edges.hpp``), with edges in the lanes of the vector units; of
wide ones the products of nodes are gathered (``native/by_nodes.hpp``). Nothing is written by two threads: each has sums
of its own for the gradients of sources and parameters, which are then added in order. The division of the work depends
on the graph and the number of threads alone, and so do all bits of the result.
"""

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.ops import native
from hkconv.ops.fused import EdgeGradients, EdgeInputs, Inputs
from hkconv.ops.neighbors import Neighbors

# Up to so many coordinates of inputs times outputs a map costs less than to gather its products.
LARGEST_MAP = 32 * 32

# A number in a thread's own sums for sources costs as much as so many products of edges.
WORTH_A_COPY = 1

# Products of edges that keep a thread busy for longer than it takes to call it.
WORTH_A_THREAD = 1 << 16


def multiplies_edges(inputs: Inputs, relative: bool, rectify: bool) -> bool:
    """True where maps are applied to edges, which an activation of the relative feature needs in any case."""
    _, n, coordinates = inputs.weight.shape
    return relative and (rectify or n * (coordinates - 1) <= LARGEST_MAP)


def pack(inputs: Inputs) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """HLinear's parameters side by side, weight, bias, time and scale, and the kernel points."""
    K, n, _ = inputs.weight.shape
    bias = inputs.weight.new_zeros(K * n) if inputs.bias is None else inputs.bias.flatten()
    gate_bias = inputs.weight.new_zeros(K) if inputs.gate_bias is None else inputs.gate_bias
    weight = torch.cat([inputs.weight.flatten(0, 1), inputs.gate_weight])
    scale, points = inputs.log_scale.exp(), inputs.points.contiguous()
    return weight, torch.cat([bias, gate_bias]), weight[:, 0].contiguous(), scale, points


def unpack(inputs: Inputs, scale: Tensor, found: EdgeGradients, by_weight: Tensor, relative: bool) -> dict[str, Tensor]:
    """Gradients of HLinear's parameters; ``by_weight`` lacks that of time if relative."""
    K, n, coordinates = inputs.weight.shape
    if relative:
        by_weight = torch.cat([found.time.unsqueeze(1), by_weight], dim=1)
    return {
        "weight": by_weight[: K * n].reshape(K, n, coordinates),
        "bias": found.bias[: K * n].reshape(K, n),
        "gate_weight": by_weight[K * n :].clone(),
        "gate_bias": found.bias[K * n :].clone(),
        "log_scale": found.scale * scale,
    }


def aggregate_by_edges(inputs: Inputs, neighbors: Neighbors, rectify: bool) -> tuple[Tensor, Tensor]:
    """Aggregated points (T, n+1) and their masses for unit total weight (T,)."""
    out, mass = _outputs(inputs.x_target, inputs.weight.size(1))
    native.call_typed("aggregate_edges", out.dtype, *_edge_arguments(inputs, neighbors, rectify), out, mass)
    return out, mass


def gradients_by_edges(
    inputs: Inputs,
    neighbors: Neighbors,
    outputs: tuple[Tensor, Tensor],
    grads: tuple[Tensor, Tensor | None],
    points_too: bool,
    rectify: bool,
) -> list[Tensor]:
    """Gradients of :func:`aggregate_by_edges` in the order of :class:`~hkconv.ops.fused.Inputs`."""
    K, n, coordinates = inputs.weight.shape
    new, dtype = inputs.weight.new_zeros, inputs.weight.dtype
    parts = _parts(neighbors, K * (n + 1), coordinates)
    sources, targets = new(parts, *inputs.x_source.shape), new(inputs.x_target.shape)
    weight, bias, scale, points = new(K * (n + 1), coordinates), new(K * (n + 1)), new(K), new(inputs.points.shape)
    edge_weight = None if inputs.edge_weight is None else torch.empty_like(inputs.edge_weight)
    arguments = _edge_arguments(inputs, neighbors, rectify)
    native.call_typed(
        "pull_edges", dtype, parts, *arguments, *_pulled(outputs, grads), sources, targets, edge_weight, weight, bias,
        scale, points if points_too else None,
    )  # fmt: skip
    return [
        sources[0].clone() if parts > 1 else sources[0],
        targets,
        weight[: K * n].reshape(K, n, coordinates),
        bias[: K * n].reshape(K, n),
        weight[K * n :].clone(),
        bias[K * n :].clone(),
        scale * inputs.log_scale.exp(),
        points if points_too else new(0),
        new(0) if edge_weight is None else edge_weight,
    ]


def see(inputs: EdgeInputs, neighbors: Neighbors) -> None:
    """Nothing: kernels find all of an edge again."""


def aggregate(inputs: EdgeInputs, neighbors: Neighbors) -> tuple[Tensor, Tensor]:
    """Aggregated points (T, n+1) and their masses for unit total weight (T,), by products of nodes."""
    out, mass = _outputs(inputs.target, inputs.out_dim)
    native.call_typed("aggregate_nodes", out.dtype, *_node_arguments(inputs, neighbors), out, mass)
    return out, mass


def gradients(
    inputs: EdgeInputs,
    neighbors: Neighbors,
    outputs: tuple[Tensor, Tensor],
    grads: tuple[Tensor, Tensor | None],
    points_too: bool,
) -> EdgeGradients:
    """Gradients of :func:`aggregate`, given its outputs and theirs."""
    new, width = inputs.source.new_zeros, inputs.bias.numel()
    parts = _parts(neighbors, width, width)
    sources, targets = new(parts, *inputs.source.shape), new(inputs.target.shape)
    source_product = new(parts, *inputs.source_product.shape)
    target_product = None if inputs.target_product is None else new(inputs.target_product.shape)
    edge_weight = None if inputs.weight is None else torch.empty_like(inputs.weight)
    time, scale, points = new(width), new(inputs.scale.shape), new(inputs.points.shape)
    native.call_typed(
        "pull_nodes", time.dtype, parts, *_node_arguments(inputs, neighbors), *_pulled(outputs, grads), sources,
        targets, source_product, target_product, edge_weight, time, scale, points if points_too else None,
    )  # fmt: skip
    return EdgeGradients(
        source=sources[0].clone() if parts > 1 else sources[0],
        target=targets,
        source_product=source_product[0],
        target_product=new(0) if target_product is None else target_product,
        bias=source_product[0].sum(0),
        time=time,
        scale=scale,
        points=points if points_too else new(0),
        weight=new(0) if edge_weight is None else edge_weight,
    )


def _edge_arguments(inputs: Inputs, neighbors: Neighbors, rectify: bool) -> list[Tensor | int | None]:
    """The first arguments of kernels that apply maps to edges."""
    K, n, coordinates = inputs.weight.shape
    weight, bias, _, scale, points = pack(inputs)
    ends = (inputs.x_source, inputs.x_target, *edges_by_target(neighbors, inputs.x_source, inputs.x_target))
    sizes = torch.get_num_threads(), WORTH_A_THREAD, *neighbors.size, K, coordinates - 1, n, rectify
    return [*sizes, *_contiguous(*ends, inputs.edge_weight, weight, bias, scale, points)]


def _node_arguments(inputs: EdgeInputs, neighbors: Neighbors) -> list[Tensor | int | None]:
    """The first arguments of kernels that gather products of nodes."""
    K, coordinates = inputs.points.shape
    ends = (inputs.source, inputs.target, *edges_by_target(neighbors, inputs.source, inputs.target))
    products = inputs.source_product, inputs.target_product, inputs.bias, inputs.time, inputs.scale, inputs.points
    sizes = (
        torch.get_num_threads(),
        WORTH_A_THREAD,
        *neighbors.size,
        K,
        coordinates - 1,
        inputs.out_dim,
        inputs.bias.numel(),
    )
    return [*sizes, *_contiguous(*ends, inputs.weight, *products)]


def _contiguous(*tensors: Tensor | None) -> list[Tensor | None]:
    """Tensors as kernels read them, who would take numbers of another type for some of their own."""
    types = {str(x.dtype).removeprefix("torch.") for x in tensors if x is not None and x.is_floating_point()}
    if len(types) > 1:
        raise InputError(
            f"points and parameters must have one type, got {' and '.join(sorted(types))}: "
            "convert the layer or its input by .to()"
        )
    return [None if tensor is None else tensor.detach().contiguous() for tensor in tensors]


def _outputs(target: Tensor, n: int) -> tuple[Tensor, Tensor]:
    return target.new_empty(target.size(0), n + 1), target.new_empty(target.size(0))


def _pulled(outputs: tuple[Tensor, Tensor], grads: tuple[Tensor, Tensor | None]) -> list[Tensor | None]:
    """The outputs and their gradients, and room for those of the means."""
    return _contiguous(*outputs, *grads, torch.empty_like(outputs[0]))


def _parts(neighbors: Neighbors, work_an_edge: int, numbers_a_source: int) -> int:
    """Number of threads that share a backward pass, each with sums of its own for so many numbers of every source."""
    work = neighbors.source.numel() * work_an_edge
    affordable = work // max(1, WORTH_A_COPY * neighbors.size[0] * numbers_a_source), work // WORTH_A_THREAD
    return max(1, min(torch.get_num_threads(), *affordable))


def edges_by_target(neighbors: Neighbors, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Pointer and sources of the edges.

    A structure that would lead out of memory is refused: kernels follow it blindly.
    """
    pointer, other = (tensor.int().contiguous() for tensor in (neighbors.target_pointer, neighbors.source))
    _check(pointer, other, None, target.size(0), source.size(0))
    return pointer, other


def edges_by_source(neighbors: Neighbors, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same sorted by source, with the edges' positions in the order by target."""
    given = neighbors.source_pointer, neighbors.target_by_source, neighbors.by_source
    pointer, other, position = (tensor.int().contiguous() for tensor in given)
    _check(pointer, other, position, source.size(0), target.size(0))
    return pointer, other, position


def _check(pointer: Tensor, other: Tensor, position: Tensor | None, nodes: int, others: int) -> None:
    fits = pointer.numel() == nodes + 1 and (position is None or position.numel() == other.numel())
    if not fits or not native.call("is_inside", pointer, nodes, other, other.numel(), others, position):
        raise InputError("these neighbors have indices outside of their graph: make them by hkconv.neighbors")
