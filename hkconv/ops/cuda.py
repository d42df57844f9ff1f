r"""HKConv on CUDA: the kernels of :mod:`hkconv.ops.cuda_kernels`, and what is done between them.

Forward, each edge gets its record, and each target then the centroid of its messages. Backward, a walk over the targets
finds the gradients of their products, another those of points and gates, and a walk over the sources, from the records,
theirs. Sums for what all edges share are kept by each program over all its chunks. There are no atomics: the same input
gives the same bits.

With ReLU, products are taken of each edge, by one matrix product for all, and nothing of their size outlasts a pass.

In Triton's interpreter (``TRITON_INTERPRET=1``) the same functions take CPU tensors.
"""

from functools import lru_cache
from typing import NamedTuple, cast

import torch
from torch import Tensor

from hkconv.ops.backends import Launcher
from hkconv.ops.cuda_kernels import (
    PULLED,
    SEEN,
    _finish_hubs,
    _forward,
    _pack,
    _pull_edges,
    _pull_products,
    _pull_sources,
    _see,
    _unpack,
)
from hkconv.ops.cuda_parts import TILE, TILE_PER_WARP, _power_of_two
from hkconv.ops.cuda_walks import (
    _add_gradients_of_hubs,
    _by_source,
    _by_target,
    _gradient_rows,
    _Rows,
    _Work,
    assert_inside,
)
from hkconv.ops.fused import EdgeGradients, EdgeInputs, Inputs
from hkconv.ops.neighbors import Neighbors

# Edges of a tile of points, at most.
EDGES_A_TILE = 8

# Programs that share the chunks of a backward pass, each with sums of its own for what all edges share.
PROGRAMS = 4224


def multiplies_edges(inputs: Inputs, relative: bool, rectify: bool) -> bool:
    """True where an activation of the relative feature takes its products from nodes to edges."""
    return relative and rectify


def pack(inputs: Inputs) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """HLinear's parameters side by side: weight, bias, time, scale; rows of products start at multiples of 16 bytes.

    And the kernel points, in Klein coordinates behind their times.
    """
    K, n, width = inputs.weight.shape
    P = _of_four(K * (n + 1))
    new = inputs.weight.new_empty
    packed = new(P, width), new(P), new(P), new(K), new(K, width)
    given = [inputs.weight if value is None else value.contiguous() for value in inputs[2:8]]
    present = {"BIAS": inputs.bias is not None, "GATE_BIAS": inputs.gate_bias is not None}
    _launch_pack(_parameter_rows(P, width), [*given, *packed], K=K, n=n, width=width, P=P, **present, **_tile(width))
    return packed


def unpack(inputs: Inputs, scale: Tensor, found: EdgeGradients, by_weight: Tensor, relative: bool) -> dict[str, Tensor]:
    """Gradients of HLinear's parameters; ``by_weight`` lacks that of time if relative."""
    K, n, width = inputs.weight.shape
    new = inputs.weight.new_empty
    shapes = {"weight": (K, n, width), "bias": (K, n), "gate_weight": (K, width), "gate_bias": (K,), "log_scale": (K,)}
    unpacked = {name: new(shape) for name, shape in shapes.items()}
    tensors = [by_weight, found.time, found.bias, found.scale, scale, *unpacked.values()]
    sizes = {"K": K, "n": n, "width": width}
    _launch_unpack(_parameter_rows(K * (n + 1), width), tensors, **sizes, RELATIVE=relative, **_tile(width))
    return unpacked


def _parameter_rows(rows: int, width: int) -> tuple[int, int]:
    return -(-rows // _tile(width)["R"]), 1


def _tile(width: int) -> dict[str, int]:
    columns = _power_of_two(width)
    return {"R": max(1, 1024 // columns), "C": columns}


class _ByEdges(NamedTuple):
    """Features after ReLU, ``(E, m)``, packed weights, and what edges read for gates and for directions."""

    activated: Tensor
    weight: Tensor
    gates: EdgeInputs
    directions: EdgeInputs


def _by_edges(inputs: Inputs, neighbors: Neighbors) -> _ByEdges:
    """Gates by the products of nodes, and directions by those of edges, ``(E, P)``."""
    K, n, _ = inputs.weight.shape
    weight, bias, time, scale, points = pack(inputs)
    source, target = inputs.x_source.contiguous(), inputs.x_target.contiguous()
    from_source, from_target = (x[:, 1:] @ weight[K * n :, 1:].T for x in (source, target))
    edge_weight = None if inputs.edge_weight is None else inputs.edge_weight.contiguous()
    gates = EdgeInputs(
        source, target, from_source, from_target, bias[K * n :], time[K * n :], scale, points, edge_weight, None, 0
    )
    activated = source.new_empty(neighbors.source.numel(), source.size(1) - 1)
    gates = gates._replace(record=see(gates, neighbors, activated))
    products = activated @ weight[:, 1:].T
    directions = gates._replace(source_product=products, bias=bias, time=time, out_dim=n)
    return _ByEdges(activated, weight, gates, directions)


def aggregate_by_edges(inputs: Inputs, neighbors: Neighbors, rectify: bool) -> tuple[Tensor, Tensor]:
    """:func:`aggregate` with ReLU of the relative features."""
    return aggregate(_by_edges(inputs, neighbors).directions, neighbors, by_edges=True)


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
    activated, weight, gates, directions = _by_edges(inputs, neighbors)
    aggregate(directions, neighbors, by_edges=True)
    pull = _begin(directions, neighbors, by_edges=True)
    shared, products = pull.shared(), torch.empty_like(directions.source_product)
    rows = _Rows(products, products, products, products)
    by_edge_weight = _pull_products_of(directions, neighbors, outputs, grads, pull, rows, shared)
    of_directions, by_products = _sum_shared(shared, pull), products[:, : K * n]
    by_activated = (by_products @ weight[: K * n, 1:]).mul_(activated > 0)
    pull = pull._replace(shape=_shape(gates, by_edges=True))
    shared, to_target = pull.shared(), _gradient_rows(gates.target, gates.target_product, pull.by_target)
    to_source = _pull_nodes(gates, neighbors, pull, to_target, by_activated, points_too, shared)
    of_edges = _sum_shared(shared, pull)
    by_gate = torch.zeros_like(weight[K * n :])
    for rows, points in ((to_source, gates.source), (to_target, gates.target)):
        rows.node[:, 1:].addmm_(rows.product, weight[K * n :, 1:])
        by_gate[:, 1:].addmm_(rows.product.T, points[:, 1:])
    by_gate[:, 0] = of_edges.time
    by_weight = torch.cat([of_directions.time[: K * n, None], by_products.T @ activated], dim=1)
    return [
        to_source.node,
        to_target.node,
        by_weight.view(K, n, coordinates),
        of_directions.bias[: K * n].reshape(K, n),
        by_gate[:K],
        of_edges.bias[:K].clone(),
        of_edges.scale * gates.scale,
        of_edges.points.clone() if points_too else weight.new_empty(0),
        weight.new_empty(0) if inputs.edge_weight is None else by_edge_weight,
    ]


def aggregate(inputs: EdgeInputs, neighbors: Neighbors, by_edges: bool = False) -> tuple[Tensor, Tensor]:
    """Aggregated points (T, n+1) and their masses for unit total weight (T,); fills the records of the edges."""
    targets, n = inputs.target.size(0), inputs.out_dim
    out, mass = inputs.target.new_empty(targets, n + 1), inputs.target.new_empty(targets)
    if targets == 0:
        return out, mass
    by, shape = _by_target(neighbors), _shape(inputs, by_edges)
    hub_sums = inputs.target.new_empty(by.slots, n + 4)
    given = [*_products(inputs), _or_source(inputs, inputs.weight), by.chunks, by.other, _record(inputs)]
    flags = {"WEIGHTED": inputs.weight is not None, **_product_tile(shape["KP"], shape["NP"], by.usual)}
    _launch_forward((by.chunks.size(0), 1), [*given, out, mass, hub_sums], **shape, **flags)
    if by.hubs.size(0):
        constants = {"n": n, "NP": _power_of_two(n)}
        _launch_finish_hubs((by.hubs.size(0), 1), [by.hubs, hub_sums, out, mass], **constants)
    return out, mass


def see(inputs: EdgeInputs, neighbors: Neighbors, activated: Tensor | None = None) -> Tensor:
    """Records of the edges, in the order by target; what :func:`aggregate` finds of them is still open."""
    edges, shape = neighbors.source.numel(), _shape(inputs, activated is not None)
    record = inputs.source.new_empty(edges, shape["R"])
    assert_inside(neighbors)
    if edges:
        tensors = [inputs.source, inputs.target, *_products(inputs), inputs.scale, inputs.points]
        found = [record, _or_source(inputs, activated)]
        tile = _edge_tile(shape["MP"], EDGES_A_TILE)
        programs = -(-edges // tile["B"]), 1
        _launch_see(programs, [*tensors, neighbors.source, neighbors.target, *found], edges, **shape, **tile)
    return record


class _Pull(NamedTuple):
    """A backward pass: its constants, the edges in both orders, and room for what it finds of edges and means."""

    shape: dict[str, int | bool]
    by_target: _Work
    by_source: _Work
    found: Tensor
    pulled: Tensor
    grad_mean: Tensor

    @property
    def programs(self) -> tuple[int, int]:
        """Number of programs of the walk over targets and of that over sources."""
        # Sums of wide layers are long, and their programs have several warps each.
        most = PROGRAMS // _product_tile(self.shape["KP"], self.shape["NP"], self.by_target.usual)["num_warps"]
        return min(most, self.by_target.chunks.size(0)), min(most, self.by_source.chunks.size(0))

    def shared(self) -> Tensor:
        """Room for the sums of each program for what all edges share."""
        rows = self.grad_mean.new_empty(max(*self.programs, 1), self.shape["S"])
        return rows if 0 < self.programs[0] == self.programs[1] else rows.zero_()


class _Shared(NamedTuple):
    """Gradients of what all edges share."""

    time: Tensor
    scale: Tensor
    points: Tensor
    bias: Tensor


def _begin(inputs: EdgeInputs, neighbors: Neighbors, by_edges: bool = False) -> _Pull:
    shape, edges = _shape(inputs, by_edges), neighbors.source.numel()
    found, pulled = (inputs.source.new_empty(edges, shape[width]) for width in "DQ")
    grad_mean = inputs.target.new_empty(inputs.target.size(0), inputs.out_dim + 1)
    return _Pull(shape, _by_target(neighbors), _by_source(neighbors), found, pulled, grad_mean)


def gradients(
    inputs: EdgeInputs,
    neighbors: Neighbors,
    outputs: tuple[Tensor, Tensor],
    grads: tuple[Tensor, Tensor | None],
    points_too: bool,
) -> EdgeGradients:
    """Gradients of :func:`aggregate`, given its outputs and theirs, and the records that it has filled."""
    pull = _begin(inputs, neighbors)
    shared = pull.shared()
    to_target = _gradient_rows(inputs.target, inputs.target_product, pull.by_target)
    by_weight = _pull_products_of(inputs, neighbors, outputs, grads, pull, to_target, shared)
    to_source = _pull_nodes(inputs, neighbors, pull, to_target, None, points_too, shared)
    found = _sum_shared(shared, pull)
    return EdgeGradients(
        source=to_source.node,
        target=to_target.node,
        source_product=to_source.product,
        target_product=to_target.product,
        bias=found.bias,
        time=found.time,
        scale=found.scale,
        points=found.points.clone() if points_too else shared.new_empty(0),
        weight=shared.new_empty(0) if inputs.weight is None else by_weight,
    )


def _pull_products_of(
    inputs: EdgeInputs,
    neighbors: Neighbors,
    outputs: tuple[Tensor, Tensor],
    grads: tuple[Tensor, Tensor | None],
    pull: _Pull,
    rows: _Rows,
    shared: Tensor,
) -> Tensor:
    """Walk over the targets: gradients of means, products and, returned, weights."""
    by, shape = pull.by_target, pull.shape
    by_weight = _or_source(inputs, None if inputs.weight is None else torch.empty_like(inputs.weight))
    if pull.programs[0]:
        given = [*_products(inputs), *_given(inputs, neighbors, outputs, grads), pull.grad_mean]
        walk = [by.chunks, by.other, _record(inputs), pull.found, pull.pulled]
        flags = {"WEIGHTED": inputs.weight is not None, "MASS": grads[1] is not None}
        tile = _product_tile(shape["KP"], shape["NP"], by.usual)
        tensors = [*given, *walk, rows.product, rows.hub_product, by_weight, shared]
        _launch_pull_products((pull.programs[0], 1), tensors, by.chunks.size(0), **shape, **flags, **tile)
    return by_weight


def _pull_nodes(
    inputs: EdgeInputs,
    neighbors: Neighbors,
    pull: _Pull,
    to_target: _Rows,
    by_activated: Tensor | None,
    points_too: bool,
    shared: Tensor,
) -> _Rows:
    """Walks over the targets, then over the sources: gradients of nodes, and of the sources' products."""
    shape, products, (targets, sources) = pull.shape, _products(inputs), pull.programs
    by_activated = _or_source(inputs, by_activated)
    to_source = _gradient_rows(inputs.source, inputs.source_product, pull.by_source)
    ends = [inputs.source, inputs.target]
    if targets:
        by = pull.by_target
        walk = [by.chunks, by.other, _record(inputs), pull.found, pull.pulled, by_activated]
        tensors = [*ends, products[1], inputs.time, inputs.scale, inputs.points, *walk, *to_target, shared]
        flags = {"POINTS": points_too, **_edge_tile(shape["MP"], by.usual)}
        _launch_pull_edges((targets, 1), tensors, by.chunks.size(0), **shape, **flags)
        _add_gradients_of_hubs(by, to_target)
    if sources:
        by = pull.by_source
        walk = [by.chunks, by.other, neighbors.by_source, pull.pulled, by_activated]
        tensors = [*ends, *products, inputs.points, pull.grad_mean, *walk, *to_source, shared]
        tile = _product_tile(shape["KP"], max(shape["NP"], shape["MP"]), by.usual)
        _launch_pull_sources((sources, 1), tensors, by.chunks.size(0), **shape, **tile)
        _add_gradients_of_hubs(by, to_source)
    return to_source


def _sum_shared(shared: Tensor, pull: _Pull) -> _Shared:
    m, K, P = (cast(int, pull.shape[name]) for name in "mKP")
    time, scale, points, bias = shared.sum(0).split([P, K, K * (m + 1), P])
    return _Shared(time, scale, points.view(K, m + 1), bias)


def _given(
    inputs: EdgeInputs, neighbors: Neighbors, outputs: tuple[Tensor, Tensor], grads: tuple[Tensor, Tensor | None]
) -> list[Tensor]:
    """Weights, outputs, their gradients, and what the weights of a target add up to."""
    grad_out, grad_mass = (outputs[1] if grad is None else grad.contiguous() for grad in grads)
    pointer, weight = neighbors.target_pointer, _or_source(inputs, inputs.weight)
    total = weight if inputs.weight is None else torch.segment_reduce(inputs.weight, "sum", offsets=pointer)
    return [weight, *outputs, grad_out, grad_mass, total, pointer]


def _products(inputs: EdgeInputs) -> list[Tensor]:
    return [
        _or_source(inputs, value) for value in (inputs.source_product, inputs.target_product, inputs.bias, inputs.time)
    ]


def _record(inputs: EdgeInputs) -> Tensor:
    return cast(Tensor, inputs.record)  # `see` has made it


def _or_source(inputs: EdgeInputs, value: Tensor | None) -> Tensor:
    """Kernels take a tensor where there is none, and do not read it."""
    return inputs.source if value is None else value


def _shape(inputs: EdgeInputs, by_edges: bool = False) -> dict[str, int | bool]:
    K, P = inputs.scale.numel(), inputs.bias.numel()
    form = inputs.target_product is not None, by_edges
    return _constants(inputs.source.size(1) - 1, inputs.out_dim, K, P, *form)


@lru_cache(maxsize=64)
def _constants(m: int, n: int, K: int, P: int, relative: bool, by_edges: bool) -> dict[str, int | bool]:
    """Constants all kernels are compiled for: sizes, widths of records, and the next powers of two."""
    records = {"R": _of_four(4 * K + SEEN.value), "D": _of_four(2 * K + 2), "Q": _of_four(4 * K + PULLED.value)}
    powers = {"KP": _power_of_two(K), "NP": _power_of_two(n), "MP": _power_of_two(m)}
    form = {"RELATIVE": relative, "EDGES": by_edges}
    return {"m": m, "n": n, "K": K, "P": P, **records, "S": 2 * P + K * (m + 2), **powers, **form}


@lru_cache(maxsize=64)
def _product_tile(KP: int, width: int, usual: int) -> dict[str, int]:
    """Edges of a tile of products, no longer than the usual neighborhood, and the warps that share it."""
    B = max(1, min(TILE // (KP * width), usual))
    return {"B": B, "num_warps": max(1, min(8, B * KP * width // TILE_PER_WARP))}


@lru_cache(maxsize=64)
def _edge_tile(width: int, usual: int) -> dict[str, int]:
    return {"B": max(1, min(EDGES_A_TILE, 256 // width, usual)), "num_warps": max(1, min(4, width // TILE_PER_WARP))}


def _of_four(size: int) -> int:
    return (size + 3) // 4 * 4


_launch_pack, _launch_unpack = Launcher(_pack), Launcher(_unpack)
_launch_see, _launch_forward, _launch_finish_hubs = Launcher(_see), Launcher(_forward), Launcher(_finish_hubs)
_launch_pull_products, _launch_pull_edges = Launcher(_pull_products), Launcher(_pull_edges)
_launch_pull_sources = Launcher(_pull_sources)
