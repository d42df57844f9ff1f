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
from hkconv.ops.edges import EdgeGradients, EdgeInputs, Inputs, Packed
from hkconv.ops.neighbors import Neighbors

# Elements of the largest tile, and how many of them a warp takes: what keeps a backward program within its registers.
TILE, TILE_PER_WARP = 512, 512

# Warps that share the work of a backward pass: enough for every multiprocessor of a large GPU to hold many.
WARPS = 8448


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
def _points(pointer, index, m: tl.constexpr, column, valid):
    """Spatial parts of points as a tile (edges, m)."""
    inside = valid[:, None] & (column < m)[None, :]
    return tl.load(pointer + index.to(tl.int64)[:, None] * (m + 1) + 1 + column[None, :], mask=inside, other=0)


@triton.jit
def _kernel_points(pointer, K: tl.constexpr, m: tl.constexpr, kernel, column):
    inside = (kernel < K)[:, None] & (column < m)[None, :]
    return tl.load(pointer + kernel[:, None] * (m + 1) + 1 + column[None, :], mask=inside, other=0)


@triton.jit
def _directions(pointer, index, K: tl.constexpr, n: tl.constexpr, P: tl.constexpr, kernel, column, valid):
    """Directions out of rows of products as a tile (edges, K, n)."""
    inside = valid[:, None, None] & (kernel < K)[None, :, None] & (column < n)[None, None, :]
    place = kernel[None, :, None] * n + column[None, None, :]
    return tl.load(pointer + index.to(tl.int64)[:, None, None] * P + place, mask=inside, other=0)


@triton.jit
def _gates(pointer, index, K: tl.constexpr, n: tl.constexpr, P: tl.constexpr, kernel, valid):
    """Gates out of rows of products as a tile (edges, K)."""
    inside = valid[:, None] & (kernel < K)[None, :]
    return tl.load(pointer + index.to(tl.int64)[:, None] * P + K * n + kernel[None, :], mask=inside, other=0)


@triton.jit
def _store_products(pointer, direction, gate, K: tl.constexpr, n: tl.constexpr, P: tl.constexpr, kernel, column):
    """A row of products, with zeros in the room behind it."""
    inside = (kernel < K)[:, None] & (column < n)[None, :]
    tl.store(pointer + kernel[:, None] * n + column[None, :], direction, mask=inside)
    tl.store(pointer + K * n + kernel, gate, mask=kernel < K)
    room = K * (n + 1) + tl.arange(0, 4)
    tl.store(pointer + room, tl.zeros([4], direction.dtype), mask=room < P)


@triton.jit
def _transform(pu, px, gu, gx, wt, vt, u_time, delta, excess, scale, RELATIVE: tl.constexpr):
    """Directions (edges, K, n), their norms, openings of the gates and lengths (edges, K)."""
    if RELATIVE:
        reach, stretch = 1 + delta, 1 + excess
        direction = pu * (1 / reach)[:, None, None] - px * (stretch / reach)[:, None, None] + wt
        gate = gu - stretch[:, None] * gx + reach[:, None] * vt
    else:
        direction = pu * (1 / u_time)[:, None, None]
        gate = gu
    opening = _sigmoid(gate)
    return direction, tl.sqrt(tl.sum(direction * direction, 2)), opening, scale[None, :] * opening


@triton.jit
def _forward(
    source, target, source_product, target_product, bias, time_weight, scale, points, weight,
    chunks, other, sums, hub_sums,
    m: tl.constexpr, n: tl.constexpr, K: tl.constexpr, P: tl.constexpr,
    RELATIVE: tl.constexpr, WEIGHTED: tl.constexpr, B: tl.constexpr, KP: tl.constexpr, NP: tl.constexpr,
    MP: tl.constexpr,
):  # fmt: skip
    """Sums over a chunk of a target's edges: weighted messages, their times, weights."""
    chunk = chunks + tl.program_id(0) * 4
    node = tl.load(chunk)
    if node < 0:
        return
    first, last, slot = tl.load(chunk + 1), tl.load(chunk + 2), tl.load(chunk + 3)
    k, j, i = tl.arange(0, KP), tl.arange(0, NP), tl.arange(0, MP)
    one = tl.zeros([1], tl.int32)
    yes = one == 0
    p = _kernel_points(points, K, m, k, i)
    p_time = _time(p)
    lengths = tl.load(scale + k, mask=k < K, other=0)
    b, bg = _directions(bias, one, K, n, P, k, j, yes), _gates(bias, one, K, n, P, k, yes)
    x = _points(target, one + node, m, i, yes)
    x_time = _time(x)
    px, gx, wt, vt = 0.0, 0.0, 0.0, 0.0
    if RELATIVE:
        px, gx = (
            _directions(target_product, one + node, K, n, P, k, j, yes),
            _gates(target_product, one + node, K, n, P, k, yes),
        )
        wt, vt = _directions(time_weight, one, K, n, P, k, j, yes), _gates(time_weight, one, K, n, P, k, yes)
    space = tl.zeros([B, NP], p.dtype)
    time = tl.zeros([B], p.dtype)
    total = tl.zeros([B], p.dtype)
    for start in range(first, last, B):
        e = start + tl.arange(0, B)
        valid = e < last
        index = tl.load(other + e, mask=valid, other=0)
        u = _points(source, index, m, i, valid)
        u_time = _time(u)
        delta, excess, _ = _look(u, x, u_time, x_time + tl.zeros([B], p.dtype))
        feature = (u - x) - excess[:, None] * x
        _, share, _, _ = _correlate(feature, 1 / (1 + delta), p, p_time, k < K, K)
        pu = _directions(source_product, index, K, n, P, k, j, valid) + b
        gu = _gates(source_product, index, K, n, P, k, valid) + bg
        direction, norm, _, length = _transform(pu, px, gu, gx, wt, vt, u_time, delta, excess, lengths, RELATIVE)
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
    hub = hubs + tl.program_id(0) * 3
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
    space = space / unit_mass[:, None]
    to = out + node.to(tl.int64) * (n + 1)
    tl.store(mass + node, unit_mass, mask=valid)
    tl.store(to, _time(space), mask=valid)
    tl.store(to[:, None] + 1 + j[None, :], space, mask=inside)


@triton.jit
def _spread(
    pointer, total, out, mass, grad_out, grad_mass, grad_mean, level, targets, n,
    WEIGHTED: tl.constexpr, B: tl.constexpr, NP: tl.constexpr,
):  # fmt: skip
    """From gradients of aggregated points to those of their weighted means; ``_spread`` of :mod:`hkconv.ops.cpu`."""
    node = tl.program_id(0) * B + tl.arange(0, B)
    j = tl.arange(0, NP)
    valid = node < targets
    row = node.to(tl.int64) * (n + 1)
    inside = valid[:, None] & (j < n)[None, :]
    space = row[:, None] + 1 + j[None, :]
    point = tl.load(out + space, mask=inside, other=0)
    time = tl.load(out + row, mask=valid, other=1)
    gradient = tl.load(grad_out + space, mask=inside, other=0)
    gradient += (tl.load(grad_out + row, mask=valid, other=0) / time)[:, None] * point
    unit_mass = tl.load(mass + node, mask=valid, other=1)
    if WEIGHTED:
        sum_of_weights = tl.load(total + node, mask=valid, other=0)
    else:
        degree = tl.load(pointer + node + 1, mask=valid, other=0) - tl.load(pointer + node, mask=valid, other=0)
        sum_of_weights = degree.to(point.dtype)
    scale = tl.where(sum_of_weights > 0, 1 / tl.where(sum_of_weights > 0, sum_of_weights, 1), 0)
    along = tl.sum(point * gradient, 1)
    by_mass = tl.load(grad_mass + node, mask=valid, other=0) - along / unit_mass
    by_space = scale[:, None] * (gradient / unit_mass[:, None] - by_mass[:, None] * point)
    tl.store(grad_mean + row, scale * by_mass * time, mask=valid)
    tl.store(grad_mean + space, by_space, mask=inside)
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
    source, target, source_product, target_product, bias, time_weight, scale, points, weight,
    grad_mean, level, chunks, other, place,
    grad_node, grad_product, hub_node, hub_product, grad_weight, shared,
    count, m: tl.constexpr, n: tl.constexpr, K: tl.constexpr, P: tl.constexpr,
    TO_SOURCE: tl.constexpr, RELATIVE: tl.constexpr, WEIGHTED: tl.constexpr, POINTS: tl.constexpr,
    B: tl.constexpr, KP: tl.constexpr, NP: tl.constexpr, MP: tl.constexpr,
):  # fmt: skip
    """Gradients of sources (``TO_SOURCE``), or of targets, of weights and of what all edges share."""
    k, j, i = tl.arange(0, KP), tl.arange(0, NP), tl.arange(0, MP)
    one = tl.zeros([1], tl.int32)
    yes = one == 0
    p = _kernel_points(points, K, m, k, i)
    p_time = _time(p)
    lengths = tl.load(scale + k, mask=k < K, other=0)
    b, bg = _directions(bias, one, K, n, P, k, j, yes), _gates(bias, one, K, n, P, k, yes)
    wt, vt = 0.0, 0.0
    if RELATIVE:
        wt, vt = _directions(time_weight, one, K, n, P, k, j, yes), _gates(time_weight, one, K, n, P, k, yes)
    by_wt = tl.zeros([B, KP, NP], p.dtype)
    by_vt = tl.zeros([B, KP], p.dtype)
    by_scale = tl.zeros([B, KP], p.dtype)
    by_points = tl.zeros([B, KP, MP], p.dtype)
    for item in range(tl.program_id(0), count, tl.num_programs(0)):
        chunk = chunks + item * 4
        node = tl.load(chunk)
        first, last, slot = tl.load(chunk + 1), tl.load(chunk + 2), tl.load(chunk + 3)
        exists = (one + node) >= 0
        # The row of the node itself is the same for all edges of the chunk.
        own = _points(source if TO_SOURCE else target, one + node, m, i, exists)
        own_product, own_gate = 0.0, 0.0
        if TO_SOURCE or RELATIVE:
            product = source_product if TO_SOURCE else target_product
            own_product = _directions(product, one + node, K, n, P, k, j, exists)
            own_gate = _gates(product, one + node, K, n, P, k, exists)
        by_node = tl.zeros([B, MP], p.dtype)
        by_own_direction = tl.zeros([B, KP, NP], p.dtype)
        by_own_gate = tl.zeros([B, KP], p.dtype)
        for start in range(first, last, B):
            e = start + tl.arange(0, B)
            valid = e < last
            ends = tl.load(other + e, mask=valid, other=0)
            nodes = tl.zeros([B], tl.int32) + node
            everywhere = tl.zeros([B, MP], p.dtype)
            px, gx = 0.0, 0.0
            if TO_SOURCE:
                x_index = ends
                u, x = own + everywhere, _points(target, ends, m, i, valid)
                pu, gu = own_product + b + tl.zeros([B, KP, NP], p.dtype), own_gate + bg + tl.zeros([B, KP], p.dtype)
                if RELATIVE:
                    px = _directions(target_product, ends, K, n, P, k, j, valid)
                    gx = _gates(target_product, ends, K, n, P, k, valid)
            else:
                x_index = nodes
                u, x = _points(source, ends, m, i, valid), own + everywhere
                pu = _directions(source_product, ends, K, n, P, k, j, valid) + b
                gu = _gates(source_product, ends, K, n, P, k, valid) + bg
                px, gx = own_product, own_gate
            u_time, x_time = _time(u), _time(x)
            delta, excess, gap = _look(u, x, u_time, x_time)
            unit = 1 / (1 + delta)
            feature = (u - x) - excess[:, None] * x
            klein_gap, share, slope, total = _correlate(feature, unit, p, p_time, k < K, K)
            direction, norm, opening, length = _transform(
                pu, px, gu, gx, wt, vt, u_time, delta, excess, lengths, RELATIVE
            )
            grad_space = _points(grad_mean, x_index, n, j, valid)
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
            stretch = 1 + excess
            if TO_SOURCE:
                radial = (by_gap - by_delta * gap) / u_time
                to_node = by_feature + radial[:, None] * u + by_delta[:, None] * (u - x)
                to_direction = unit if RELATIVE else 1 / u_time
                to_gate = tl.zeros([B], p.dtype) + 1
            else:
                radial = (by_delta * gap - by_gap - by_gap * excess) / x_time
                to_node = radial[:, None] * x - stretch[:, None] * by_feature - by_delta[:, None] * (u - x)
                to_direction = -stretch * unit
                to_gate = -stretch
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
            row = (grad_node if slot < 0 else hub_node) + at * (m + 1)
            tl.store(row, 0.0)
            tl.store(row + 1 + i, tl.sum(by_node, 0), mask=i < m)
            if TO_SOURCE or RELATIVE:
                row = (grad_product if slot < 0 else hub_product) + at * P
                _store_products(row, tl.sum(by_own_direction, 0), tl.sum(by_own_gate, 0), K, n, P, k, j)
    if not TO_SOURCE:
        mine = shared + tl.program_id(0).to(tl.int64) * (P + K * (m + 2))
        if RELATIVE:
            _store_products(mine, tl.sum(by_wt, 0), tl.sum(by_vt, 0), K, n, P, k, j)
        tl.store(mine + P + k, tl.sum(by_scale, 0), mask=k < K)
        if POINTS:
            inside = (k < K)[:, None] & (i < m)[None, :]
            to = mine + P + K + k[:, None] * (m + 1) + 1 + i[None, :]
            tl.store(to, tl.sum(by_points, 0), mask=inside)


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


@triton.jit
def _pack(
    weight, bias, gate_weight, gate_bias, log_scale, packed, packed_bias, time, scale, K, n, width, P,
    BIAS: tl.constexpr, GATE_BIAS: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Parameters side by side, and zeros in the room behind them."""
    row, column = tl.program_id(0) * R + tl.arange(0, R), tl.arange(0, C)
    is_direction, is_gate = row < K * n, (row >= K * n) & (row < K * (n + 1))
    gate = row - K * n
    inside = (column < width)[None, :]
    values = tl.load(weight + row[:, None] * width + column[None, :], mask=is_direction[:, None] & inside, other=0)
    values += tl.load(gate_weight + gate[:, None] * width + column[None, :], mask=is_gate[:, None] & inside, other=0)
    tl.store(packed + row[:, None] * width + column[None, :], values, mask=(row < P)[:, None] & inside)
    tl.store(time + row, tl.sum(tl.where((column == 0)[None, :], values, 0), 1), mask=row < P)
    shift = tl.zeros([R], values.dtype)
    if BIAS:
        shift += tl.load(bias + row, mask=is_direction, other=0)
    if GATE_BIAS:
        shift += tl.load(gate_bias + gate, mask=is_gate, other=0)
    tl.store(packed_bias + row, shift, mask=row < P)
    tl.store(scale + gate, tl.exp(tl.load(log_scale + gate, mask=is_gate, other=0)), mask=is_gate)


@triton.jit
def _unpack(
    by_packed, by_time, by_packed_bias, by_scale, scale,
    by_weight, by_bias, by_gate_weight, by_gate_bias, by_log_scale, K, n, width,
    RELATIVE: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Gradients of the parameters out of those of the packed ones, with the column of time in its place."""
    row, column = tl.program_id(0) * R + tl.arange(0, R), tl.arange(0, C)
    is_direction, is_gate = row < K * n, (row >= K * n) & (row < K * (n + 1))
    gate = row - K * n
    used = row < K * (n + 1)
    inside = (column < width)[None, :]
    if RELATIVE:
        place = row[:, None] * (width - 1) + column[None, :] - 1
        values = tl.load(by_packed + place, mask=used[:, None] & inside & (column > 0)[None, :], other=0)
        values = tl.where((column == 0)[None, :], tl.load(by_time + row, mask=used, other=0)[:, None], values)
    else:
        values = tl.load(by_packed + row[:, None] * width + column[None, :], mask=used[:, None] & inside, other=0)
    tl.store(by_weight + row[:, None] * width + column[None, :], values, mask=is_direction[:, None] & inside)
    tl.store(by_gate_weight + gate[:, None] * width + column[None, :], values, mask=is_gate[:, None] & inside)
    shift = tl.load(by_packed_bias + row, mask=used, other=0)
    tl.store(by_bias + row, shift, mask=is_direction)
    tl.store(by_gate_bias + gate, shift, mask=is_gate)
    stretch = tl.load(by_scale + gate, mask=is_gate, other=0) * tl.load(scale + gate, mask=is_gate, other=0)
    tl.store(by_log_scale + gate, stretch, mask=is_gate)


def pack(inputs: Inputs) -> Packed:
    """HLinear's parameters side by side, in rows of products that start at multiples of 16 bytes."""
    K, n, width = inputs.weight.shape
    P = triton.cdiv(K * (n + 1), 4) * 4
    new = inputs.weight.new_empty
    packed = Packed(new(P, width), new(P), new(P), new(K))
    given = [inputs.weight if value is None else value.contiguous() for value in inputs[2:7]]
    with _device_of(packed.weight):
        _pack[_parameter_rows(P, width)](
            *given, *packed, K, n, width, P,
            BIAS=inputs.bias is not None, GATE_BIAS=inputs.gate_bias is not None, **_parameter_options(width),
        )  # fmt: skip
    return packed


def unpack(
    inputs: Inputs, packed: Packed, found: EdgeGradients, by_weight: Tensor, by_bias: Tensor, relative: bool
) -> dict[str, Tensor]:
    """Gradients of HLinear's parameters; ``by_weight`` lacks that of time if relative."""
    K, n, width = inputs.weight.shape
    new = inputs.weight.new_empty
    shapes = {"weight": (K, n, width), "bias": (K, n), "gate_weight": (K, width), "gate_bias": (K,), "log_scale": (K,)}
    unpacked = {name: new(shape) for name, shape in shapes.items()}
    with _device_of(by_weight):
        _unpack[_parameter_rows(K * (n + 1), width)](
            by_weight, found.time, by_bias, found.scale, packed.scale, *unpacked.values(), K, n, width,
            RELATIVE=relative, **_parameter_options(width),
        )  # fmt: skip
    return unpacked


def _parameter_rows(rows: int, width: int) -> tuple[int]:
    return (triton.cdiv(rows, _parameter_options(width)["R"]),)


def _parameter_options(width: int) -> dict[str, int]:
    columns = triton.next_power_of_2(width)
    return {"R": max(1, 1024 // columns), "C": columns}


def aggregate(inputs: EdgeInputs, neighbors: Neighbors) -> tuple[Tensor, Tensor]:
    """Aggregated points (T, n+1) and their masses for unit total weight (T,)."""
    targets, n = inputs.target.size(0), inputs.out_dim
    out, mass = inputs.target.new_empty(targets, n + 1), inputs.target.new_empty(targets)
    if targets == 0:
        return out, mass
    by_target = _by_target(neighbors)
    sums = inputs.target.new_empty(targets, n + 2)
    hub_sums = inputs.target.new_empty(by_target.slots, n + 2)
    with _device_of(out):
        _forward[(by_target.chunks.size(0),)](
            *_pointers(inputs), by_target.chunks, by_target.other, sums, hub_sums,
            **_options(inputs, by_target),
        )  # fmt: skip
        _add_hubs(by_target, (hub_sums, sums))
        _finish[_rows(targets, n)](sums, out, mass, targets, n, **_row_options(n))
    return out, mass


def gradients(
    inputs: EdgeInputs,
    neighbors: Neighbors,
    outputs: tuple[Tensor, Tensor],
    grads: tuple[Tensor, Tensor],
    points_too: bool,
) -> EdgeGradients:
    """Gradients of :func:`aggregate`, given its outputs and theirs."""
    m, _, K, P = _sizes(inputs)
    by_target, by_source = _by_target(neighbors), _by_source(neighbors)
    new = inputs.source.new_empty
    weighted = inputs.weight is not None
    grad_weight = torch.empty_like(inputs.weight) if weighted else new(0)
    target_options, source_options = _options(inputs, by_target), _options(inputs, by_source)
    shared = inputs.source.new_zeros(max(1, _programs(by_target, target_options)), P + K * (m + 2))
    to_target = _gradient_rows(inputs.target, inputs.target_product, by_target)
    to_source = _gradient_rows(inputs.source, inputs.source_product, by_source)
    with _device_of(inputs.source):
        grad_mean, level = _gradient_of_means(inputs, neighbors, outputs, grads)
        for by, rows, options in ((by_target, to_target, target_options), (by_source, to_source, source_options)):
            if by.chunks.size(0) == 0:
                continue
            _backward[(_programs(by, options),)](
                *_pointers(inputs), grad_mean, level, by.chunks, by.other, neighbors.place,
                *(sums for sums, _ in rows), *(hub for _, hub in rows), grad_weight, shared,
                by.chunks.size(0), TO_SOURCE=by is by_source, POINTS=points_too, **options,
            )  # fmt: skip
            _add_hubs(by, *((hub, sums) for sums, hub in rows if sums.numel()))
    by_time, by_scale, by_points = shared.sum(0).split([P, K, K * (m + 1)])
    return EdgeGradients(
        source=to_source[0][0],
        target=to_target[0][0],
        source_product=to_source[1][0],
        target_product=to_target[1][0],
        time=by_time,
        scale=by_scale,
        points=by_points.view(K, m + 1).clone() if points_too else new(0),
        weight=grad_weight,
    )


def _gradient_of_means(
    inputs: EdgeInputs, neighbors: Neighbors, outputs: tuple[Tensor, Tensor], grads: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    targets, n = inputs.target.size(0), inputs.out_dim
    weighted = inputs.weight is not None
    grad_mean = inputs.source.new_empty(targets, n + 1)
    level = inputs.source.new_empty(targets if weighted else 0)
    if targets:
        pointer = neighbors.target_pointer
        total = torch.segment_reduce(inputs.weight, "sum", offsets=pointer) if weighted else inputs.source
        given = (*outputs, *(grad.contiguous() for grad in grads))
        _spread[_rows(targets, n)](
            pointer, total, *given, grad_mean, level, targets, n, WEIGHTED=weighted, **_row_options(n)
        )
    return grad_mean, level


def _gradient_rows(node: Tensor, product: Tensor | None, by: _Work) -> list[tuple[Tensor, Tensor]]:
    """For each tensor of nodes its gradient, and room for the sums of the chunks of hubs."""
    return [
        (torch.empty_like(value), value.new_empty(by.slots, value.size(1)))
        if value is not None
        else (node.new_empty(0), node.new_empty(0))
        for value in (node, product)
    ]


def _add_hubs(by: _Work, *pairs: tuple[Tensor, Tensor]) -> None:
    if by.hubs.size(0) == 0:
        return
    for hub_sums, sums in pairs:
        width = sums.size(1)
        block = min(1024, triton.next_power_of_2(width))
        _combine[(by.hubs.size(0), triton.cdiv(width, block))](by.hubs, hub_sums, sums, width, BLOCK=block)


def _pointers(inputs: EdgeInputs) -> list[Tensor]:
    return [inputs.source if value is None else value for value in inputs[:-1]]


def _sizes(inputs: EdgeInputs) -> tuple[int, int, int, int]:
    return inputs.source.size(1) - 1, inputs.out_dim, inputs.scale.numel(), inputs.bias.numel()


def _options(inputs: EdgeInputs, by: _Work) -> dict[str, int | bool]:
    """What the kernels are compiled for: tiles no longer than the usual neighbourhood."""
    m, n, K, P = _sizes(inputs)
    KP, NP, MP = (triton.next_power_of_2(size) for size in (K, n, m))
    edge = KP * max(NP, MP)
    B = max(1, min(TILE // edge, by.usual))
    sizes = {"m": m, "n": n, "K": K, "P": P, "B": B, "KP": KP, "NP": NP, "MP": MP}
    warps = max(1, min(8, B * edge // TILE_PER_WARP))
    return {"RELATIVE": inputs.relative, "WEIGHTED": inputs.weight is not None, **sizes, "num_warps": warps}


def _programs(by: _Work, options: dict[str, int | bool]) -> int:
    """How many programs share the chunks of a backward pass."""
    return min(WARPS // options["num_warps"], by.chunks.size(0))


def _rows(targets: int, n: int) -> tuple[int]:
    return (triton.cdiv(targets, _row_options(n)["B"]),)


def _row_options(n: int) -> dict[str, int]:
    width = triton.next_power_of_2(n)
    return {"B": max(1, 1024 // width), "NP": width}


def _device_of(tensor: Tensor):
    return torch.cuda.device_of(tensor)
