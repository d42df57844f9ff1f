r"""HKConv on CUDA: Triton kernels, one program a chunk of one node's edges, with tiles (edges, kernel points, n).

The mathematics is that of :mod:`hkconv.ops.cpu`; only the loops are others. Nodes with many edges are split into chunks
(:func:`hkconv.ops.chunks.chunks_of`), whose sums go to a buffer of their own and are then added in order. Sums for what
all edges share are kept by each program over all its chunks. There are no atomics: the same input gives the same bits.

In Triton's interpreter (``TRITON_INTERPRET=1``) the same functions take CPU tensors.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from hkconv.ops.chunks import chunks_of, slots_for, usual_degree
from hkconv.ops.edges import EdgeInputs
from hkconv.ops.neighbors import Neighbors

# Elements of the largest tile, and how many of them a warp takes: what keeps a backward program within its registers.
TILE = 2048
TILE_PER_WARP = 512

# Programs that share the work of a backward pass: enough for every multiprocessor of a large GPU to hold several.
PROGRAMS = 1056


@triton.jit
def _sigmoid(x):
    return 1 / (1 + tl.exp(-x))


@triton.jit
def _arcosh1p(delta, root):
    """log(1 + y) by Kahan's form, y = δ + sqrt(δ(δ+2))."""
    y = delta + root
    w = 1 + y
    return tl.where(w == 1, y, tl.log(w) * (y / tl.where(w == 1, 1, w - 1)))


@triton.jit
def _time(space):
    return tl.sqrt(1 + tl.sum(space * space, 1))


@triton.jit
def _look(u, x, u_time, x_time):
    """δ, c - 1 and u_t - x_t of each edge; see geometry.relative, of which this is the literal form."""
    d = u - x
    unit = tl.maximum(u_time, x_time)
    step = d / unit[:, None]
    square = tl.sum(step * step, 1)
    length = tl.sqrt(tl.where(square > 0, square, 1))
    along = step / length[:, None]
    shorter = tl.where((u_time < x_time)[:, None], u, x)
    across = shorter - tl.sum(shorter * along, 1)[:, None] * along
    product = tl.sum(u * x, 1)
    facing = product > -1
    reach = tl.where(square > 0, length, 0) * (unit / tl.sqrt(1 + u_time * x_time + tl.where(facing, product, 0)))
    turn = reach[:, None] * across
    delta = tl.where(facing, reach * reach + tl.sum(turn * turn, 1), u_time * x_time - product - 1)
    gap = tl.sum(d * ((u + x) / (u_time + x_time)[:, None]), 1)
    return delta, (gap + delta) / (1 + x_time), gap


@triton.jit
def _correlate(feature, unit, points, p_time, is_kernel, K):
    """Klein gaps to the kernel points (edges, K, m), shares (edges, K), p_t dν/dδ (edges, K) and Σν (edges,)."""
    klein_gap = (feature * unit[:, None])[:, None, :] - (points / p_time[:, None])[None, :, :]
    time_gap = unit[:, None] - 1 / p_time[None, :]
    near = tl.sum(klein_gap * klein_gap, 2) + time_gap * time_gap
    delta = near * (0.5 * p_time[None, :] / unit[:, None])
    root = tl.sqrt(delta) * tl.sqrt(delta + 2)
    distance = tl.where(is_kernel[None, :], _arcosh1p(delta, root), 0)
    slope = tl.where(root > 0, p_time[None, :] / tl.where(root > 0, root, 1), 0)
    total = tl.sum(distance, 1)
    share = tl.where((total > 0)[:, None], distance / tl.where(total > 0, total, 1)[:, None], 1 / K)
    return klein_gap, tl.where(is_kernel[None, :], share, 0), slope, total


@triton.jit
def _message(direction, norm, length, share):
    """Spatial parts (edges, n), times and masses (edges,) of the centroids over the kernel points."""
    part = share * length / tl.where(norm > 0, norm, 1)
    level = tl.where(norm > 0, tl.sqrt(1 + length * length), 1)
    space = tl.sum(part[:, :, None] * direction, 1)
    time = tl.sum(share * level, 1)
    mass = tl.sqrt(time * time - tl.sum(space * space, 1))
    space = space / mass[:, None]
    return space, tl.sqrt(1 + tl.sum(space * space, 1)), mass


@triton.jit
def _rows2(pointer, index, width, column, valid):
    """Rows of a matrix as a tile (edges, width)."""
    inside = valid[:, None] & (column < width)[None, :]
    return tl.load(pointer + index.to(tl.int64)[:, None] * width + column[None, :], mask=inside, other=0)


@triton.jit
def _rows3(pointer, index, K, n, kernel, column, valid):
    """Rows of a tensor (nodes, K, n) as a tile (edges, K, n)."""
    inside = valid[:, None, None] & (kernel < K)[None, :, None] & (column < n)[None, None, :]
    place = index.to(tl.int64)[:, None, None] * (K * n) + kernel[None, :, None] * n + column[None, None, :]
    return tl.load(pointer + place, mask=inside, other=0)


@triton.jit
def _matrix(pointer, rows, width, row, column):
    inside = (row < rows)[:, None] & (column < width)[None, :]
    return tl.load(pointer + row[:, None] * width + column[None, :], mask=inside, other=0)


@triton.jit
def _store_matrix(pointer, value, rows, width, row, column):
    inside = (row < rows)[:, None] & (column < width)[None, :]
    tl.store(pointer + row[:, None] * width + column[None, :], value, mask=inside)


@triton.jit
def _transform(pu, px, gu, gx, wt, vt, delta, excess, scale, RELATIVE: tl.constexpr):
    """Directions (edges, K, n), their norms, openings of the gates and lengths (edges, K)."""
    if RELATIVE:
        reach, stretch = 1 + delta, 1 + excess
        direction = pu * (1 / reach)[:, None, None] - px * (stretch / reach)[:, None, None] + wt
        gate = gu - stretch[:, None] * gx + reach[:, None] * vt
    else:
        direction = pu
        gate = gu
    opening = _sigmoid(gate)
    return direction, tl.sqrt(tl.sum(direction * direction, 2)), opening, scale[None, :] * opening


@triton.jit
def _forward(
    source, target, source_direction, target_direction, source_gate, target_gate, time_direction, time_gate,
    scale, points, weight, chunks, other, sums, hub_sums, m, n, K,
    RELATIVE: tl.constexpr, WEIGHTED: tl.constexpr, B: tl.constexpr, KP: tl.constexpr, NP: tl.constexpr,
    MP: tl.constexpr,
):  # fmt: skip
    """Sums over a chunk of a target's edges: weighted messages, their times, weights."""
    chunk = chunks + tl.program_id(0).to(tl.int64) * 4
    node = tl.load(chunk)
    if node < 0:
        return
    first, last, slot = tl.load(chunk + 1), tl.load(chunk + 2), tl.load(chunk + 3)
    k, j, i = tl.arange(0, KP), tl.arange(0, NP), tl.arange(0, MP)
    one = tl.zeros([1], tl.int32) + node
    yes = one >= 0
    p = _matrix(points, K, m, k, i)
    p_time = _time(p)
    lengths = tl.load(scale + k, mask=k < K, other=0)
    x = _rows2(target, one, m, i, yes)
    x_time = _time(x)
    px, gx, wt, vt = 0.0, 0.0, 0.0, 0.0
    if RELATIVE:
        px = _rows3(target_direction, one, K, n, k, j, yes)
        gx = _rows2(target_gate, one, K, k, yes)
        wt = _matrix(time_direction, K, n, k, j)[None, :, :]
        vt = tl.load(time_gate + k, mask=k < K, other=0)[None, :]
    space = tl.zeros([B, NP], p.dtype)
    time = tl.zeros([B], p.dtype)
    total = tl.zeros([B], p.dtype)
    for start in range(first, last, B):
        e = start + tl.arange(0, B)
        valid = e < last
        index = tl.load(other + e, mask=valid, other=0)
        u = _rows2(source, index, m, i, valid)
        delta, excess, _ = _look(u, x, _time(u), x_time + tl.zeros([B], p.dtype))
        feature = (u - x) - excess[:, None] * x
        _, share, _, _ = _correlate(feature, 1 / (1 + delta), p, p_time, k < K, K)
        pu = _rows3(source_direction, index, K, n, k, j, valid)
        gu = _rows2(source_gate, index, K, k, valid)
        direction, norm, _, length = _transform(pu, px, gu, gx, wt, vt, delta, excess, lengths, RELATIVE)
        message, message_time, _ = _message(direction, norm, length, share)
        w = tl.load(weight + e, mask=valid, other=0) if WEIGHTED else tl.where(valid, 1.0, 0.0).to(p.dtype)
        space += tl.where(valid[:, None], w[:, None] * message, 0)
        time += tl.where(valid, w * message_time, 0)
        total += w
    row = sums + node.to(tl.int64) * (n + 2) if slot < 0 else hub_sums + slot.to(tl.int64) * (n + 2)
    tl.store(row + j, tl.sum(space, 0), mask=j < n)
    tl.store(row + n, tl.sum(time, 0))
    tl.store(row + n + 1, tl.sum(total, 0))


@triton.jit
def _combine(hubs, hub_sums, sums, width, BLOCK: tl.constexpr):
    """Add the sums of a hub's chunks, in order."""
    hub = hubs + tl.program_id(0).to(tl.int64) * 3
    node = tl.load(hub)
    if node < 0:
        return
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], sums.dtype.element_ty)
    for slot in range(tl.load(hub + 1), tl.load(hub + 2)):
        total += tl.load(hub_sums + slot * width + column, mask=column < width, other=0)
    tl.store(sums + node.to(tl.int64) * width + column, total, mask=column < width)


@triton.jit
def _finish(sums, out, mass, targets, n, B: tl.constexpr, NP: tl.constexpr):
    """From weighted sums to centroids; the origin with unit mass where there was no edge."""
    node = tl.program_id(0) * B + tl.arange(0, B)
    j = tl.arange(0, NP)
    valid = node < targets
    row = sums + node.to(tl.int64) * (n + 2)
    inside = valid[:, None] & (j < n)[None, :]
    total = tl.load(row + n + 1, mask=valid, other=0)
    empty = total == 0
    total = tl.where(empty, 1, total)
    time = tl.load(row + n, mask=valid, other=1) / total
    space = tl.load(row[:, None] + j[None, :], mask=inside, other=0) / total[:, None]
    unit_mass = tl.where(empty, 1, tl.sqrt(time * time - tl.sum(space * space, 1)))
    tl.store(mass + node, unit_mass, mask=valid)
    tl.store(out + node.to(tl.int64)[:, None] * n + j[None, :], space / unit_mass[:, None], mask=inside)


@triton.jit
def _spread(
    pointer, total, out, mass, grad_out, grad_mass, grad_mean, level, targets, n,
    WEIGHTED: tl.constexpr, B: tl.constexpr, NP: tl.constexpr,
):  # fmt: skip
    """From gradients of aggregated points to those of their weighted means; see ``spread`` in :mod:`hkconv.ops.cpu`."""
    node = tl.program_id(0) * B + tl.arange(0, B)
    j = tl.arange(0, NP)
    valid = node < targets
    place = node.to(tl.int64)[:, None] * n + j[None, :]
    inside = valid[:, None] & (j < n)[None, :]
    point = tl.load(out + place, mask=inside, other=0)
    gradient = tl.load(grad_out + place, mask=inside, other=0)
    unit_mass = tl.load(mass + node, mask=valid, other=1)
    if WEIGHTED:
        sum_of_weights = tl.load(total + node, mask=valid, other=0)
    else:
        degree = tl.load(pointer + node + 1, mask=valid, other=0) - tl.load(pointer + node, mask=valid, other=0)
        sum_of_weights = degree.to(point.dtype)
    scale = tl.where(sum_of_weights > 0, 1 / tl.where(sum_of_weights > 0, sum_of_weights, 1), 0)
    along = tl.sum(point * gradient, 1)
    by_mass = tl.load(grad_mass + node, mask=valid, other=0) - along / unit_mass
    space = scale[:, None] * (gradient / unit_mass[:, None] - by_mass[:, None] * point)
    row = grad_mean + node.to(tl.int64) * (n + 1)
    tl.store(row, scale * by_mass * tl.sqrt(1 + tl.sum(point * point, 1)), mask=valid)
    tl.store(row[:, None] + 1 + j[None, :], space, mask=inside)
    if WEIGHTED:
        tl.store(level + node, -scale * (by_mass * unit_mass + along), mask=valid)


@triton.jit
def _backward_message(direction, norm, opening, length, share, grad_space, grad_time, w):
    """Gradients of directions (edges, K, n), of lengths, gates, shares (edges, K), and the slope along the weight."""
    message, time, mass = _message(direction, norm, length, share)
    along = grad_time * time + tl.sum(grad_space * message, 1)
    factor = w / mass
    by_space = factor[:, None] * (grad_space + along[:, None] * message)
    by_time = factor * (grad_time - along * time)
    safe = tl.where(norm > 0, norm, 1)
    slope = tl.sum(by_space[:, None, :] * direction, 2) / safe
    level = tl.where(norm > 0, tl.sqrt(1 + length * length), 1)
    by_share = by_time[:, None] * level + length * slope
    by_length = tl.where(norm > 0, share * (slope + by_time[:, None] * length / level), 0)
    part = tl.where(norm > 0, share * length / safe, 0)
    by_direction = part[:, :, None] * by_space[:, None, :] - (part * slope / safe)[:, :, None] * direction
    return by_direction, by_length, by_length * length * (1 - opening), by_share, along


@triton.jit
def _backward(
    source, target, source_direction, target_direction, source_gate, target_gate, time_direction, time_gate,
    scale, points, weight, grad_mean, level, chunks, other, place,
    grad_node, grad_direction, grad_gate, hub_node, hub_direction, hub_gate, grad_weight, shared,
    count, m, n, K,
    TO_SOURCE: tl.constexpr, RELATIVE: tl.constexpr, WEIGHTED: tl.constexpr, POINTS: tl.constexpr,
    B: tl.constexpr, KP: tl.constexpr, NP: tl.constexpr, MP: tl.constexpr,
):  # fmt: skip
    """Gradients of sources (``TO_SOURCE``), or of targets, of weights and of what all edges share."""
    k, j, i = tl.arange(0, KP), tl.arange(0, NP), tl.arange(0, MP)
    p = _matrix(points, K, m, k, i)
    p_time = _time(p)
    lengths = tl.load(scale + k, mask=k < K, other=0)
    wt, vt = 0.0, 0.0
    if RELATIVE:
        wt = _matrix(time_direction, K, n, k, j)[None, :, :]
        vt = tl.load(time_gate + k, mask=k < K, other=0)[None, :]
    by_wt = tl.zeros([B, KP, NP], p.dtype)
    by_vt = tl.zeros([B, KP], p.dtype)
    by_scale = tl.zeros([B, KP], p.dtype)
    by_points = tl.zeros([B, KP, MP], p.dtype)
    for item in range(tl.program_id(0), count, tl.num_programs(0)):
        chunk = chunks + item * 4
        node = tl.load(chunk)
        first, last, slot = tl.load(chunk + 1), tl.load(chunk + 2), tl.load(chunk + 3)
        by_node = tl.zeros([B, MP], p.dtype)
        by_own_direction = tl.zeros([B, KP, NP], p.dtype)
        by_own_gate = tl.zeros([B, KP], p.dtype)
        for start in range(first, last, B):
            e = start + tl.arange(0, B)
            valid = e < last
            ends = tl.load(other + e, mask=valid, other=0)
            own = tl.zeros([B], tl.int32) + node
            u_index, x_index = (own, ends) if TO_SOURCE else (ends, own)
            u = _rows2(source, u_index, m, i, valid)
            x = _rows2(target, x_index, m, i, valid)
            u_time, x_time = _time(u), _time(x)
            delta, excess, gap = _look(u, x, u_time, x_time)
            unit = 1 / (1 + delta)
            feature = (u - x) - excess[:, None] * x
            klein_gap, share, slope, total = _correlate(feature, unit, p, p_time, k < K, K)
            px, gx = 0.0, 0.0
            if RELATIVE:
                px = _rows3(target_direction, x_index, K, n, k, j, valid)
                gx = _rows2(target_gate, x_index, K, k, valid)
            pu = _rows3(source_direction, u_index, K, n, k, j, valid)
            gu = _rows2(source_gate, u_index, K, k, valid)
            direction, norm, opening, length = _transform(pu, px, gu, gx, wt, vt, delta, excess, lengths, RELATIVE)
            grad_space = _rows2(grad_mean + 1, x_index, n + 1, j, valid & (x_index >= 0))
            grad_space = tl.where((j < n)[None, :], grad_space, 0)
            grad_time = tl.load(grad_mean + x_index.to(tl.int64) * (n + 1), mask=valid, other=0)
            if WEIGHTED:
                if TO_SOURCE:
                    w = tl.load(weight + tl.load(place + e, mask=valid, other=0), mask=valid, other=0)
                else:
                    w = tl.load(weight + e, mask=valid, other=0)
            else:
                w = tl.zeros([B], p.dtype) + 1
            by_direction, by_length, by_gate, by_share, along = _backward_message(
                direction, norm, opening, length, share, grad_space, grad_time, w
            )
            by_distance = by_share - tl.sum(share * by_share, 1)[:, None]
            near = tl.where((total > 0)[:, None], by_distance / tl.where(total > 0, total, 1)[:, None] * slope, 0)
            near = tl.where((k < K)[None, :], near, 0)
            by_feature = tl.sum(near[:, :, None] * klein_gap, 1)
            by_excess = -tl.sum(by_feature * x, 1)
            by_reach = tl.zeros([B], p.dtype)
            if RELATIVE:
                by_excess -= unit * tl.sum(tl.sum(by_direction * px, 2), 1) + tl.sum(by_gate * gx, 1)
                by_reach = unit * tl.sum(tl.sum(by_direction * wt, 2), 1) + tl.sum(by_gate * vt, 1)
            by_gap = by_excess / (1 + x_time)
            by_delta = by_reach + by_gap
            if TO_SOURCE:
                radial = (by_gap - by_delta * gap) / u_time
                to_node = by_feature + radial[:, None] * u + by_delta[:, None] * (u - x)
                to_direction = unit if RELATIVE else tl.zeros([B], p.dtype) + 1
                to_gate = tl.zeros([B], p.dtype) + 1
            else:
                radial = (by_delta * gap - by_gap - by_gap * excess) / x_time
                to_node = radial[:, None] * x - (1 + excess)[:, None] * by_feature - by_delta[:, None] * (u - x)
                to_direction = -(1 + excess) * unit
                to_gate = -(1 + excess)
                if WEIGHTED:
                    tl.store(grad_weight + e, along + tl.load(level + node), mask=valid)
                by_scale += tl.where(valid[:, None], by_length * opening, 0)
                if RELATIVE:
                    by_wt += tl.where(valid[:, None, None], by_direction, 0)
                    by_vt += tl.where(valid[:, None], by_gate * (1 + delta)[:, None], 0)
                if POINTS:
                    pull = near * ((1 + delta)[:, None] / p_time[None, :])
                    by_points -= tl.where(valid[:, None, None], pull[:, :, None] * klein_gap, 0)
            by_node += tl.where(valid[:, None], to_node, 0)
            if TO_SOURCE or RELATIVE:
                by_own_direction += tl.where(valid[:, None, None], to_direction[:, None, None] * by_direction, 0)
                by_own_gate += tl.where(valid[:, None], to_gate[:, None] * by_gate, 0)
        if node >= 0:
            at = tl.where(slot < 0, node, slot).to(tl.int64)
            to_node_row = (grad_node if slot < 0 else hub_node) + at * m
            tl.store(to_node_row + i, tl.sum(by_node, 0), mask=i < m)
            if TO_SOURCE or RELATIVE:
                to_row = (grad_direction if slot < 0 else hub_direction) + at * (K * n)
                _store_matrix(to_row, tl.sum(by_own_direction, 0), K, n, k, j)
                to_gate_row = (grad_gate if slot < 0 else hub_gate) + at * K
                tl.store(to_gate_row + k, tl.sum(by_own_gate, 0), mask=k < K)
    if not TO_SOURCE:
        mine = shared + tl.program_id(0).to(tl.int64) * (K * (n + m + 2))
        tl.store(mine + k, tl.sum(by_scale, 0), mask=k < K)
        if RELATIVE:
            tl.store(mine + K + k, tl.sum(by_vt, 0), mask=k < K)
            _store_matrix(mine + 2 * K, tl.sum(by_wt, 0), K, n, k, j)
        if POINTS:
            _store_matrix(mine + (2 + n) * K, tl.sum(by_points, 0), K, m, k, i)


class _Work(NamedTuple):
    """Chunks of the edges of one order, the nodes at their other ends, and what sizes follow from the graph's."""

    chunks: Tensor
    hubs: Tensor
    other: Tensor
    slots: int
    usual: int


def _by_target(neighbors: Neighbors) -> _Work:
    return _work(neighbors.target_pointer, neighbors.target_chunks, neighbors.target_hubs, neighbors.source)


def _by_source(neighbors: Neighbors) -> _Work:
    return _work(neighbors.source_pointer, neighbors.source_chunks, neighbors.source_hubs, neighbors.target)


def _work(pointer: Tensor, chunks: Tensor, hubs: Tensor, other: Tensor) -> _Work:
    nodes, edges = pointer.numel() - 1, other.numel()
    if pointer.device.type == "cpu":  # the interpreter: CPU structures come without chunks
        chunks, hubs = chunks_of(pointer, edges)
    return _Work(chunks, hubs, other, slots_for(nodes, edges), usual_degree(nodes, edges))


def hk_edges(inputs: EdgeInputs, neighbors: Neighbors) -> tuple[Tensor, Tensor]:
    """The operator's kernel for CUDA tensors, see :mod:`hkconv.ops.edges`."""
    targets, n = inputs.target.size(0), inputs.source_direction.size(2)
    out, mass = inputs.target.new_empty(targets, n), inputs.target.new_empty(targets)
    if targets == 0:
        return out, mass
    by_target = _by_target(neighbors)
    sums = inputs.target.new_empty(targets, n + 2)
    hub_sums = inputs.target.new_empty(by_target.slots, n + 2)
    options, warps = _shape(inputs, by_target)
    with _device_of(out):
        _forward[(by_target.chunks.size(0),)](
            *_pointers(inputs), by_target.chunks, by_target.other, sums, hub_sums, *_sizes(inputs), **options,
            num_warps=warps,
        )  # fmt: skip
        _add_hubs(by_target, (hub_sums, sums))
        rows = _rows_a_program(n)
        _finish[(triton.cdiv(targets, rows),)](sums, out, mass, targets, n, B=rows, NP=options["NP"])
    return out, mass


def hk_edges_backward(
    inputs: EdgeInputs,
    neighbors: Neighbors,
    out: Tensor,
    mass: Tensor,
    grad_out: Tensor,
    grad_mass: Tensor,
    points_too: bool,
) -> list[Tensor]:
    """Gradients of all inputs, an empty tensor where there is none."""
    targets, n = out.shape
    K, m = inputs.points.shape
    weighted = inputs.weight is not None
    new = inputs.source.new_empty
    grad_mean, level = new(targets, n + 1), new(targets if weighted else 0)
    total = torch.segment_reduce(inputs.weight, "sum", offsets=neighbors.target_pointer) if weighted else mass
    grad_weight = torch.empty_like(inputs.weight) if weighted else new(0)
    by_target, by_source = _by_target(neighbors), _by_source(neighbors)
    programs = max(1, min(PROGRAMS, by_target.chunks.size(0)))
    shared = inputs.source.new_zeros(programs, K * (n + m + 2))
    to_target = _gradient_rows(inputs.target, inputs.target_direction, inputs.target_gate, by_target)
    to_source = _gradient_rows(inputs.source, inputs.source_direction, inputs.source_gate, by_source)
    with _device_of(out):
        if targets:
            rows = _rows_a_program(n)
            _spread[(triton.cdiv(targets, rows),)](
                neighbors.target_pointer, total, out, mass, grad_out, grad_mass, grad_mean, level, targets, n,
                WEIGHTED=weighted, B=rows, NP=triton.next_power_of_2(n),
            )  # fmt: skip
        for by, rows, to_source_too in ((by_target, to_target, False), (by_source, to_source, True)):
            if by.chunks.size(0) == 0:
                continue
            options, warps = _shape(inputs, by)
            _backward[(max(1, min(PROGRAMS, by.chunks.size(0))),)](
                *_pointers(inputs), grad_mean, level, by.chunks, by.other, neighbors.place,
                *(sums for sums, _ in rows), *(hub for _, hub in rows), grad_weight, shared,
                by.chunks.size(0), *_sizes(inputs),
                TO_SOURCE=to_source_too, POINTS=points_too, **options, num_warps=warps,
            )  # fmt: skip
            _add_hubs(by, *((hub, sums) for sums, hub in rows if sums.numel()))
    by_scale, by_time_gate, by_time_direction, by_points = shared.sum(0).split([K, K, K * n, K * m])
    none = new(0)
    return [
        to_source[0][0],
        to_target[0][0],
        to_source[1][0],
        to_target[1][0],
        to_source[2][0],
        to_target[2][0],
        by_time_direction.view(K, n) if inputs.relative else none,
        by_time_gate if inputs.relative else none,
        by_scale,
        by_points.view(K, m) if points_too else none,
        grad_weight,
    ]


def _gradient_rows(
    node: Tensor, direction: Tensor | None, gate: Tensor | None, by: _Work
) -> list[tuple[Tensor, Tensor]]:
    """For each tensor of nodes its gradient, and room for the sums of the chunks of hubs."""
    return [
        (torch.empty_like(value), value.new_empty(by.slots, *value.shape[1:]))
        if value is not None
        else (node.new_empty(0), node.new_empty(0))
        for value in (node, direction, gate)
    ]


def _add_hubs(by: _Work, *pairs: tuple[Tensor, Tensor]) -> None:
    if by.hubs.size(0) == 0:
        return
    for hub_sums, sums in pairs:
        width = sums[0].numel()
        block = min(1024, triton.next_power_of_2(width))
        _combine[(by.hubs.size(0), triton.cdiv(width, block))](by.hubs, hub_sums, sums, width, BLOCK=block)


def _pointers(inputs: EdgeInputs) -> list[Tensor]:
    return [inputs.source if value is None else value.contiguous() for value in inputs]


def _sizes(inputs: EdgeInputs) -> tuple[int, int, int]:
    return inputs.source.size(1), inputs.source_direction.size(2), inputs.points.size(0)


def _shape(inputs: EdgeInputs, by: _Work) -> tuple[dict[str, int | bool], int]:
    """Tile sizes for these inputs, and the number of warps: tiles no longer than the usual neighbourhood."""
    m, n, K = _sizes(inputs)
    KP, NP, MP = (triton.next_power_of_2(size) for size in (K, n, m))
    edge = KP * max(NP, MP)
    B = max(1, min(TILE // edge, by.usual))
    options = {"RELATIVE": inputs.relative, "WEIGHTED": inputs.weight is not None, "B": B}
    return {**options, "KP": KP, "NP": NP, "MP": MP}, max(1, min(8, B * edge // TILE_PER_WARP))


def _rows_a_program(n: int) -> int:
    return max(1, 1024 // triton.next_power_of_2(n))


def _device_of(tensor: Tensor):
    return torch.cuda.device_of(tensor)
