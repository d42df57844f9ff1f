r"""HKConv on CUDA: Triton kernels, one program a chunk of one node's edges, with tiles (edges, kernel points, n).

The mathematics is that of ``ops/native/block.hpp``; only the loops are others. Nodes with many edges are split into
chunks (:func:`hkconv.ops.chunks.chunks_of`), whose sums go to a buffer of their own and are then added in order. Sums
for what all edges share are kept by each program over all its chunks. There are no atomics: the same input gives the
same bits.

In Triton's interpreter (``TRITON_INTERPRET=1``) the same functions take CPU tensors.
"""

from functools import lru_cache
from typing import NamedTuple, cast

import torch
import triton
import triton.language as tl
from torch import Tensor

from hkconv.ops.backends import Launcher
from hkconv.ops.chunks import chunks_of, slots_for, usual_degree
from hkconv.ops.fused import EdgeGradients, EdgeInputs, Inputs
from hkconv.ops.identity_cache import IdentityCache
from hkconv.ops.neighbors import Neighbors

# Elements of the largest tile, and how many of them a warp takes: what keeps a backward program within its registers.
TILE, TILE_PER_WARP = 512, 512

# Edges of a tile of points, at most.
EDGES_A_TILE = 8

# Programs that share the chunks of a backward pass, each with sums of its own for what all edges share.
PROGRAMS = 4224


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
def _relate(u, x, u_time, x_time):
    """δ, c - 1 and u_t - x_t of each edge, as ``relate_lanes`` of ``ops/native/block.hpp``."""
    shorter_is_u = u_time < x_time
    gap = tl.where(shorter_is_u[:, None], u - x, x - u)
    shorter = tl.where(shorter_is_u[:, None], u, x)
    square, along = tl.sum(gap * gap, 1), tl.sum(shorter * gap, 1)
    shorter_time = tl.where(shorter_is_u, u_time, x_time)
    product = (shorter_time - 1) * (shorter_time + 1) - along
    together = square == 0
    across = shorter - (along / tl.where(together, 1, square))[:, None] * gap
    facing = square / (1 + u_time * x_time + tl.maximum(product, -1)) * (1 + tl.sum(across * across, 1))
    delta = tl.where(together, 0, tl.where(product > -1, facing, u_time * x_time - product - 1))
    time_gap = (2 * along - square) / (u_time + x_time)
    time_gap = tl.where(shorter_is_u, time_gap, -time_gap)
    return delta, (time_gap + delta) / (1 + x_time), time_gap


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
def _square_of_far_sum(direction, norm, length, level, share, space):
    """Lorentz squares (edges,) of sums far out; as ``square_of_far_sum`` of ``ops/native/by_edges.hpp``."""
    far, rest = tl.sum(share * length, 1), tl.sum(share / (level + length), 1)
    mean = space / tl.where(far > 0, far, 1)[:, None]
    gap = direction / tl.where(norm > 0, norm, 1)[:, :, None] - mean[:, None, :]
    spread = tl.sum(share * length * tl.sum(gap * gap, 2), 1)
    return rest * (2 * far + rest) + far * spread


@triton.jit
def _message(direction, norm, length, share):
    """Spatial parts (edges, n), times and masses (edges,) of the centroids over the kernel points."""
    length = tl.where(norm > 0, length, 0)
    level = tl.sqrt(1 + length * length)
    part = share * length / tl.where(norm > 0, norm, 1)
    space = tl.sum(part[:, :, None] * direction, 1)
    time = tl.sum(share * level, 1)
    square = time * time - tl.sum(space * space, 1)
    lost = 32 * square < time * time  # CANCELS of ops/native/block.hpp
    if tl.max(lost.to(tl.int32), 0) > 0:
        square = tl.where(lost, _square_of_far_sum(direction, norm, length, level, share, space), square)
    mass = tl.sqrt(square)
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
    _store_directions(pointer, direction, K, n, kernel, column)
    _store_gates(pointer, gate, K, n, P, kernel)


@triton.jit
def _store_directions(pointer, direction, K: tl.constexpr, n: tl.constexpr, kernel, column):
    inside = (kernel < K)[:, None] & (column < n)[None, :]
    tl.store(pointer + kernel[:, None] * n + column[None, :], direction, mask=inside)


@triton.jit
def _store_gates(pointer, gate, K: tl.constexpr, n: tl.constexpr, P: tl.constexpr, kernel):
    tl.store(pointer + K * n + kernel, gate, mask=kernel < K)
    room = K * (n + 1) + tl.arange(0, 4)
    tl.store(pointer + room, tl.zeros([4], gate.dtype), mask=room < P)


@triton.jit
def _store_point(pointer, space, m: tl.constexpr, column):
    """The gradient of a point, zero for its time, which follows from the space."""
    tl.store(pointer, 0.0)
    tl.store(pointer + 1 + column, space, mask=column < m)


@triton.jit
def _transform(pu, px, b, wt, gu, gx, bg, vt, u_time, delta, c_minus_1, scale, RELATIVE: tl.constexpr):
    """Directions (edges, K, n), their norms, openings of the gates and lengths (edges, K).

    Relative ones by the difference of products that cancels least; see ``relative_row`` of
    ``ops/native/by_nodes.hpp``.
    """
    if RELATIVE:
        reach = 1 + delta
        held = tl.where(c_minus_1 > -0.5, 1.0, 0.0).to(delta.dtype)
        rest = tl.where(c_minus_1 > -0.5, c_minus_1, 1 + c_minus_1)
        apart = delta > 0  # a point and itself have the same products, but for their rounding
        gap = tl.where(apart[:, None, None], pu - held[:, None, None] * px, 0)
        direction = (gap + b) * (1 / reach)[:, None, None] + (wt - px * (rest / reach)[:, None, None])
        gap = tl.where(apart[:, None], gu - held[:, None] * gx, 0)
        gate = (gap + bg) + (reach[:, None] * vt - rest[:, None] * gx)
    else:
        direction = (pu + b) * (1 / u_time)[:, None, None]
        gate = gu + bg
    opening = _sigmoid(gate)
    return direction, tl.sqrt(tl.sum(direction * direction, 2)), opening, scale[None, :] * opening


@triton.jit
def _per_length(space, length):
    """Directions (rows, n) of sums of weighted points, zero for none."""
    return space / tl.where(length > 0, length, 1)[:, None]


@triton.jit
def _away(direction, mean):
    """Squared gaps (rows,) between directions and a mean one."""
    gap = direction - mean
    return tl.sum(gap * gap, 1)


@triton.jit
def _join(space, far, rest, spread, point, point_time, w):
    """Let weighted points join the sums of their lanes; see ``Total`` of ``ops/native/block.hpp``."""
    length = tl.sqrt(tl.sum(point * point, 1))
    more = w * length
    share_before = far / tl.where(far + more > 0, far + more, 1)
    spread += share_before * more * _away(_per_length(point, length), _per_length(space, far))
    return space + w[:, None] * point, far + more, rest + w / (point_time + length), spread


@triton.jit
def _together(space, far, rest, spread):
    """The sums of all lanes."""
    all_space, all_far = tl.sum(space, 0), tl.sum(far, 0)
    mean = all_space / tl.where(all_far > 0, all_far, 1)
    spread += far * _away(_per_length(space, far), mean[None, :])
    return all_space, all_far, tl.sum(rest, 0), tl.sum(spread, 0)


@triton.jit
def _store_centroid(out, mass, node, space, far, rest, spread, total, n: tl.constexpr, j):
    """From weighted sums, in the terms of ``Total`` of ``ops/native/block.hpp``, to the centroid of a node.

    It is the origin with unit mass where there was no edge.
    """
    empty = total == 0
    total = tl.where(empty, 1, total)
    far, rest, spread, space = far / total, rest / total, spread / total, space / total
    unit_mass = tl.where(empty, 1, tl.sqrt(rest * (2 * far + rest) + far * spread))
    space = space / unit_mass
    row = out + node.to(tl.int64) * (n + 1)
    tl.store(mass + node, unit_mass)
    tl.store(row, tl.sqrt(1 + tl.sum(space * space, 0)))
    tl.store(row + 1 + j, space, mask=j < n)


@triton.jit
def _columns(pointer, row, width: tl.constexpr, first: tl.constexpr, column, used: tl.constexpr, valid):
    """Columns of rows of a record as a tile (edges, columns)."""
    place = row[:, None] * width + first + column[None, :]
    return tl.load(pointer + place, mask=valid[:, None] & (column < used)[None, :], other=0)


@triton.jit
def _column(pointer, row, width: tl.constexpr, place: tl.constexpr, valid):
    return tl.load(pointer + row * width + place, mask=valid, other=0)


@triton.jit
def _store_columns(pointer, row, width: tl.constexpr, first: tl.constexpr, column, used: tl.constexpr, valid, value):
    place = row[:, None] * width + first + column[None, :]
    tl.store(pointer + place, value, mask=valid[:, None] & (column < used)[None, :])


# Columns of the record of an edge, behind K shares, K lengths, K squared Klein distances to the kernel points and K
# inverse norms of directions: what these are made with (see `_direction`), the sum of the distances, the boost, and the
# mass of the message. Norms and mass are the forward pass's, the rest is `_see`'s.
UNIT, GAP, REST, HELD, TOTAL, DELTA, STRETCH, TIME_GAP, TIME, MESSAGE_MASS, SEEN = (tl.constexpr(i) for i in range(11))


@triton.jit
def _store_of_kernels(pointer, row, width: tl.constexpr, first: tl.constexpr, column, used: tl.constexpr, valid, value):
    """Store a tile (edges, K, 1)."""
    place = row[:, None] * width + first + column[None, :]
    tl.store((pointer + place)[:, :, None], value, mask=(valid[:, None] & (column < used)[None, :])[:, :, None])


@triton.jit
def _excess(seen, row, R: tl.constexpr, points, reach, m: tl.constexpr, K: tl.constexpr, k, valid):
    """Excesses between features and kernel points (edges, K), and the times of these (K,)."""
    time = tl.load(points + k * (m + 1), mask=k < K, other=1)
    time_gap = (1 / reach)[:, None] - (1 / time)[None, :]
    near = _columns(seen, row, R, 2 * K, k, K, valid) + time_gap * time_gap
    return near * (0.5 * time)[None, :] * reach[:, None], time


@triton.jit(do_not_specialize=["edges"])
def _see(
    source, target, source_product, target_product, bias, time_weight, scale, points, source_of, target_of, seen,
    activated,
    edges, m: tl.constexpr, n: tl.constexpr, K: tl.constexpr, P: tl.constexpr, R: tl.constexpr, D: tl.constexpr,
    Q: tl.constexpr, S: tl.constexpr, KP: tl.constexpr, NP: tl.constexpr, MP: tl.constexpr,
    RELATIVE: tl.constexpr, EDGES: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Shares, lengths and the boost of each edge, by itself; with EDGES the features after ReLU, and n = 0."""
    e = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    valid = e < edges
    k, i = tl.arange(0, KP), tl.arange(0, MP)
    here, there = tl.load(source_of + e, mask=valid, other=0), tl.load(target_of + e, mask=valid, other=0)
    u, x = _points(source, here, m, i, valid), _points(target, there, m, i, valid)
    u_time, x_time = _time(u), _time(x)
    delta, c_minus_1, time_gap = _relate(u, x, u_time, x_time)
    unit = 1 / (1 + delta)
    klein = ((u - x) - c_minus_1[:, None] * x) * unit[:, None]
    record, to = seen + e * R, seen + e * R + 4 * K
    if EDGES:
        place, inside = e[:, None] * m + i[None, :], valid[:, None] & (i < m)[None, :]
        tl.store(activated + place, tl.maximum(klein, 0), mask=inside)
    for kernel in range(K):
        gap = klein - tl.load(points + kernel * (m + 1) + 1 + i, mask=i < m, other=0)[None, :]
        tl.store(record + 2 * K + kernel, tl.sum(gap * gap, 1), mask=valid)
    tl.store(to + DELTA, delta, mask=valid)
    tl.store(to + STRETCH, c_minus_1, mask=valid)
    tl.store(to + TIME_GAP, time_gap, mask=valid)
    tl.store(to + TIME, u_time, mask=valid)
    # Read again, each number by one thread: above, all that share a row hold its sums.
    tl.debug_barrier()
    delta, c_minus_1 = tl.load(to + DELTA, mask=valid, other=0), tl.load(to + STRETCH, mask=valid, other=0)
    reach, unit = 1 + delta, 1 / (1 + delta)
    excess, _ = _excess(seen, e, R, points, reach, m, K, k, valid)
    distance = tl.where((k < K)[None, :], _arcosh1p(excess, tl.sqrt(excess) * tl.sqrt(excess + 2)), 0)
    total = tl.sum(distance, 1)
    share = tl.where((total > 0)[:, None], distance / tl.where(total > 0, total, 1)[:, None], 1 / K)
    gate = _gates(source_product, here, K, n, P, k, valid)
    bg = tl.load(bias + K * n + k, mask=k < K, other=0)
    if RELATIVE:
        held = tl.where(c_minus_1 > -0.5, 1.0, 0.0).to(delta.dtype)
        rest = tl.where(c_minus_1 > -0.5, c_minus_1, 1 + c_minus_1)
        apart = delta > 0  # a point and itself have the same products, but for their rounding
        gx = _gates(target_product, there, K, n, P, k, valid)
        vt = tl.load(time_weight + K * n + k, mask=k < K, other=0)
        gap = tl.where(apart[:, None], gate - held[:, None] * gx, 0)
        gate = (gap + bg[None, :]) + (reach[:, None] * vt[None, :] - rest[:, None] * gx)
        tl.store(to + GAP, tl.where(apart, unit, 0), mask=valid)
        tl.store(to + REST, rest * unit, mask=valid)
        tl.store(to + HELD, held, mask=valid)
    else:
        gate += bg[None, :]
        unit = 1 / tl.load(to + TIME, mask=valid, other=1)
    length = tl.load(scale + k, mask=k < K, other=0)[None, :] * _sigmoid(gate)
    _store_columns(seen, e, R, 0, k, K, valid, share)
    _store_columns(seen, e, R, K, k, K, valid, length)
    tl.store(to + UNIT, unit, mask=valid)
    tl.store(to + TOTAL, total, mask=valid)


# Tiles of products have three axes (edges, K, n) throughout, with 1 where there is no such axis: tiles of fewer would
# be laid out otherwise over the threads, and be moved between them at each step.
@triton.jit
def _of_edges(pointer, row, width: tl.constexpr, place: tl.constexpr, valid):
    """A column of a record as a tile (edges, 1, 1)."""
    return _column(pointer, row, width, place, valid)[:, None, None]


@triton.jit
def _of_kernels(pointer, row, width: tl.constexpr, first: tl.constexpr, k, K: tl.constexpr, valid):
    """K columns of a record as a tile (edges, K, 1)."""
    return _columns(pointer, row, width, first, k, K, valid)[:, :, None]


@triton.jit
def _space_of(pointer, index, n: tl.constexpr, column, valid):
    """Spatial parts of points as a tile (edges, 1, n)."""
    inside = valid[:, None, None] & (column < n)[None, None, :]
    place = index.to(tl.int64)[:, None, None] * (n + 1) + 1 + column[None, None, :]
    return tl.load(pointer + place, mask=inside, other=0)


@triton.jit
def _row_of(pointer, row, width: tl.constexpr, column, valid):
    """Rows of a matrix as a tile (edges, 1, width)."""
    inside = valid[:, None, None] & (column < width)[None, None, :]
    return tl.load(pointer + row[:, None, None] * width + column[None, None, :], mask=inside, other=0)


@triton.jit
def _all(tile):
    """Sums over K and n, (edges, 1, 1): first over K, which are in one thread."""
    return tl.sum(tl.sum(tile, 1, keep_dims=True), 2, keep_dims=True)


@triton.jit
def _direction(
    pu, px, b, wt, record, row, R: tl.constexpr, first: tl.constexpr, valid, RELATIVE: tl.constexpr, EDGES: tl.constexpr
):
    """Directions (edges, K, n) of the relative features, by the difference of products that cancels least.

    See ``relative_row`` of ``ops/native/by_nodes.hpp``.
    """
    unit = _of_edges(record, row, R, first + UNIT, valid)
    if EDGES:
        return pu + tl.fma(b, unit, wt)
    if RELATIVE:
        gap = tl.fma(px, -_of_edges(record, row, R, first + HELD, valid), pu)
        rest = tl.fma(px, -_of_edges(record, row, R, first + REST, valid), wt)
        return tl.fma(gap, _of_edges(record, row, R, first + GAP, valid), tl.fma(b, unit, rest))
    return (pu + b) * unit


@triton.jit
def _mass(space, far, all_far, rest, direction, inverse, valid):
    """The mass (edges, 1, 1) of a sum of directions of certain lengths, 1 where there is no edge.

    That of ``square_of_far_sum`` of ``ops/native/by_edges.hpp``, which cancels nowhere.
    """
    gap = tl.fma(direction, inverse, -space * (1 / tl.where(all_far > 0, all_far, 1)))
    square = rest * (2 * all_far + rest) + all_far * _all(far * (gap * gap))
    return tl.sqrt(tl.where(valid[:, None, None], square, 1))


@triton.jit
def _products_of_node(
    product, bias, time_weight, node, K: tl.constexpr, n: tl.constexpr, P: tl.constexpr, k, j,
    RELATIVE: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    """Rows (1, K, n) that all edges of a target share: its own product, biases and the weights of time."""
    one = tl.zeros([1], tl.int32)
    yes = one == 0
    b = _directions(bias, one, K, n, P, k, j, yes)
    px, wt = 0.0, 0.0
    if RELATIVE:
        if not EDGES:
            px = _directions(product, one + node, K, n, P, k, j, (one + node) >= 0)
        wt = _directions(time_weight, one, K, n, P, k, j, yes)
    return px, b, wt


@triton.jit
def _forward(
    source_product, target_product, bias, time_weight, weight, chunks, other, seen, out, mass, hub_sums,
    m: tl.constexpr, n: tl.constexpr, K: tl.constexpr, P: tl.constexpr, R: tl.constexpr, D: tl.constexpr,
    Q: tl.constexpr, S: tl.constexpr, KP: tl.constexpr, NP: tl.constexpr, MP: tl.constexpr,
    RELATIVE: tl.constexpr, EDGES: tl.constexpr, WEIGHTED: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """The centroid of a target's messages, or the sums over a chunk of a hub's (as ``_finish_hubs`` adds them)."""
    chunk = chunks + tl.program_id(0) * 4
    node = tl.load(chunk)
    if node < 0:
        return
    first, last, slot = tl.load(chunk + 1), tl.load(chunk + 2), tl.load(chunk + 3)
    k, j, lane = tl.arange(0, KP), tl.arange(0, NP), tl.arange(0, B)
    px, b, wt = _products_of_node(target_product, bias, time_weight, node, K, n, P, k, j, RELATIVE, EDGES)
    dtype: tl.constexpr = bias.dtype.element_ty
    spaces = tl.zeros([B, 1, NP], dtype)
    fars, rests, totals = tl.zeros([B, 1, 1], dtype), tl.zeros([B, 1, 1], dtype), tl.zeros([B, 1, 1], dtype)
    spreads = tl.zeros([B, 1, 1], dtype)
    for start in range(first, last, B):
        e = start + lane
        valid, row = e < last, e.to(tl.int64)
        of_product = row if EDGES else tl.load(other + e, mask=valid, other=0)
        pu = _directions(source_product, of_product, K, n, P, k, j, valid)
        direction = _direction(pu, px, b, wt, seen, row, R, 4 * K, valid, RELATIVE, EDGES)
        share, length = _of_kernels(seen, row, R, 0, k, K, valid), _of_kernels(seen, row, R, K, k, K, valid)
        norm = tl.sqrt(tl.sum(direction * direction, 2, keep_dims=True))
        inverse = tl.where(norm > 0, 1 / tl.where(norm > 0, norm, 1), 0)
        length = tl.where(norm > 0, length, 0)
        space = tl.sum((share * length * inverse) * direction, 1, keep_dims=True)
        all_far = tl.sum(share * length, 1, keep_dims=True)
        rest = tl.sum(share / (tl.sqrt(1 + length * length) + length), 1, keep_dims=True)
        message_mass = _mass(space, share * length, all_far, rest, direction, inverse, valid)
        far, time = tl.sqrt(tl.sum(space * space, 2, keep_dims=True)), all_far + rest
        _store_of_kernels(seen, row, R, 3 * K, k, K, valid, inverse)
        tl.store((seen + row * R + 4 * K + MESSAGE_MASS)[:, None, None], message_mass, mask=valid[:, None, None])
        w = tl.load(weight + e, mask=valid, other=0) if WEIGHTED else tl.where(valid, 1.0, 0.0).to(dtype)
        w = w[:, None, None]
        ratio = w / message_mass
        # Of all points so far: see `Total` of `ops/native/block.hpp`.
        more = ratio * far
        together = fars + more
        away = space / tl.where(far > 0, far, 1) - spaces / tl.where(fars > 0, fars, 1)
        share_before = fars / tl.where(together > 0, together, 1)
        spreads += share_before * more * tl.sum(away * away, 2, keep_dims=True)
        spaces += tl.where(w > 0, ratio * space, 0)
        fars = together
        rests += w * (message_mass / tl.where(time > 0, time + far, 1))
        totals += w
    # The sums of all lanes.
    far = tl.sum(fars, 0, keep_dims=True)
    mean = tl.sum(spaces, 0, keep_dims=True) / tl.where(far > 0, far, 1)
    away = spaces / tl.where(fars > 0, fars, 1) - mean
    spread = tl.sum(tl.sum(tl.sum(spreads + fars * tl.sum(away * away, 2, keep_dims=True), 2), 1), 0)
    space = tl.reshape(tl.sum(spaces, 0), [NP])
    rest, total = tl.sum(tl.sum(tl.sum(rests, 2), 1), 0), tl.sum(tl.sum(tl.sum(totals, 2), 1), 0)
    far = tl.sum(tl.sum(tl.sum(fars, 2), 1), 0)
    if slot < 0:
        _store_centroid(out, mass, node, space, far, rest, spread, total, n, j)
    else:
        row = hub_sums + slot.to(tl.int64) * (n + 4)
        tl.store(row + j, space, mask=j < n)
        tl.store(row + n, far)
        tl.store(row + n + 1, rest)
        tl.store(row + n + 2, spread)
        tl.store(row + n + 3, total)


@triton.jit
def _finish_hubs(hubs, hub_sums, out, mass, n: tl.constexpr, NP: tl.constexpr):
    """Add the sums of a hub's chunks, in order, and take the centroid."""
    hub = hubs + tl.program_id(0) * 3
    node = tl.load(hub)
    if node < 0:
        return
    first, last = tl.load(hub + 1).to(tl.int64), tl.load(hub + 2).to(tl.int64)
    j = tl.arange(0, NP)
    space = tl.zeros([NP], hub_sums.dtype.element_ty)
    zero = tl.sum(space, 0)
    far, rest, spread, total = zero, zero, zero, zero
    for slot in range(first, last):
        row = hub_sums + slot * (n + 4)
        space += tl.load(row + j, mask=j < n, other=0)
        far += tl.load(row + n)
        rest += tl.load(row + n + 1)
        spread += tl.load(row + n + 2)
        total += tl.load(row + n + 3)
    mean = space / tl.where(far > 0, far, 1)
    for slot in range(first, last):
        row = hub_sums + slot * (n + 4)
        part, part_far = tl.load(row + j, mask=j < n, other=0), tl.load(row + n)
        gap = part / tl.where(part_far > 0, part_far, 1) - mean
        spread += part_far * tl.sum(gap * gap, 0)
    _store_centroid(out, mass, node, space, far, rest, spread, total, n, j)


@triton.jit
def _add_chunks(hubs, hub_sums, sums, width: tl.constexpr, BLOCK: tl.constexpr):
    """Add the rows of a hub's chunks, in order."""
    hub = hubs + tl.program_id(0) * 3
    node = tl.load(hub)
    if node < 0:
        return
    first, last = tl.load(hub + 1).to(tl.int64), tl.load(hub + 2).to(tl.int64)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        total = tl.zeros([BLOCK], sums.dtype.element_ty)
        for slot in range(first, last):
            total += tl.load(hub_sums + slot * width + column, mask=column < width, other=0)
        tl.store(sums + node.to(tl.int64) * width + column, total, mask=column < width)


@triton.jit
def _add_hubs(
    hubs, hub_node, grad_node, hub_product, grad_product,
    node_width: tl.constexpr, product_width: tl.constexpr, PRODUCT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add the gradients of the chunks of hubs."""
    if tl.program_id(1) == 0:
        _add_chunks(hubs, hub_node, grad_node, node_width, BLOCK)
    elif PRODUCT:
        _add_chunks(hubs, hub_product, grad_product, product_width, BLOCK)


@triton.jit
def _spread(out, mass, grad_out, grad_mass, node, total, n: tl.constexpr, column, MASS: tl.constexpr):
    """From the gradient of an aggregated point to that of its weighted mean; ``spread`` of ``ops/native/block.hpp``.

    Returns its time, its space, and what does not depend on the edge in the gradient of the weights.
    """
    row = node.to(tl.int64) * (n + 1)
    inside = column < n
    point = tl.load(out + row + 1 + column, mask=inside, other=0)
    time = tl.load(out + row)
    gradient = tl.load(grad_out + row + 1 + column, mask=inside, other=0)
    gradient += (tl.load(grad_out + row) / time) * point
    unit_mass = tl.load(mass + node)
    scale = tl.where(total > 0, 1 / tl.where(total > 0, total, 1), 0)
    along = tl.sum(point * gradient, 0)
    by_mass = -along / unit_mass
    if MASS:
        by_mass += tl.load(grad_mass + node)
    space = scale * (gradient / unit_mass - by_mass * point)
    return scale * by_mass * time, space, -scale * (by_mass * unit_mass + along)


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


# Columns of the record that the walk over the sources reads, behind K shares/norms of directions, K turns of these, K
# gradients of gates and K of squared distances to kernel points: the first four of a record of `_see`, then these.
ALONG, FACTOR, RADIAL, BY_DELTA, SOURCE_STRETCH, SOURCE_UNIT, PULLED = (tl.constexpr(i) for i in range(4, 11))


@triton.jit(do_not_specialize=["count"])
def _pull_products(
    source_product, target_product, bias, time_weight, weight, out, mass, grad_out, grad_mass, total_weight, pointer,
    grad_mean, chunks, other, seen, found, pulled, grad_product, hub_product, grad_weight, shared,
    count, m: tl.constexpr, n: tl.constexpr, K: tl.constexpr, P: tl.constexpr, R: tl.constexpr, D: tl.constexpr,
    Q: tl.constexpr, S: tl.constexpr, KP: tl.constexpr, NP: tl.constexpr, MP: tl.constexpr,
    RELATIVE: tl.constexpr, EDGES: tl.constexpr, WEIGHTED: tl.constexpr, MASS: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Gradients of the directions of targets, of means, of weights and of the weights of time; records of edges."""
    k, j, lane = tl.arange(0, KP), tl.arange(0, NP), tl.arange(0, B)
    one = tl.zeros([1], tl.int32)
    by_wt = tl.zeros([B, KP, NP], bias.dtype.element_ty)
    by_bias = tl.zeros([B, KP, NP], by_wt.dtype)
    for item in range(tl.program_id(0), count, tl.num_programs(0)):
        chunk = chunks + item * 4
        node = tl.load(chunk)
        first, last, slot = tl.load(chunk + 1), tl.load(chunk + 2), tl.load(chunk + 3)
        px, b, wt = _products_of_node(target_product, bias, time_weight, node, K, n, P, k, j, RELATIVE, EDGES)
        some = tl.maximum(node, 0)
        if WEIGHTED:
            sum_of_weights = tl.load(total_weight + some)
        else:
            sum_of_weights = (tl.load(pointer + some + 1) - tl.load(pointer + some)).to(by_wt.dtype)
        mean_time, mean_space, level_of_mean = _spread(out, mass, grad_out, grad_mass, some, sum_of_weights, n, j, MASS)
        # For the walk over the sources; all chunks of a hub write the same.
        exists = (one + node) >= 0
        mean = grad_mean + some.to(tl.int64) * (n + 1)
        tl.store(mean + one, mean_time + tl.zeros([1], by_wt.dtype), mask=exists)
        tl.store(mean + 1 + j, mean_space, mask=(j < n) & exists)
        mean_space = mean_space[None, None, :]
        by_own = tl.zeros([B, KP, NP], by_wt.dtype)
        for start in range(first, last, B):
            e = start + lane
            valid, row = e < last, e.to(tl.int64)
            of_product = row if EDGES else tl.load(other + e, mask=valid, other=0)
            pu = _directions(source_product, of_product, K, n, P, k, j, valid)
            direction = _direction(pu, px, b, wt, seen, row, R, 4 * K, valid, RELATIVE, EDGES)
            share, length = _of_kernels(seen, row, R, 0, k, K, valid), _of_kernels(seen, row, R, K, k, K, valid)
            inverse = _of_kernels(seen, row, R, 3 * K, k, K, valid)
            length = tl.where(inverse > 0, length, 0)
            level, part = tl.sqrt(1 + length * length), share * length * inverse
            space, time = tl.sum(part * direction, 1, keep_dims=True), tl.sum(share * level, 1, keep_dims=True)
            w = tl.load(weight + e, mask=valid, other=0) if WEIGHTED else tl.where(valid, 1.0, 0.0).to(by_wt.dtype)
            to_mean = 1 / tl.where(valid, _column(seen, row, R, 4 * K + MESSAGE_MASS, valid), 1)[:, None, None]
            message, message_time, factor = space * to_mean, time * to_mean, w[:, None, None] * to_mean
            along = mean_time * message_time + tl.sum(mean_space * message, 2, keep_dims=True)
            by_space, by_time = factor * (mean_space + along * message), factor * (mean_time - along * message_time)
            slope = tl.sum(by_space * direction, 2, keep_dims=True) * inverse
            by_share = by_time * level + length * slope
            by_length = tl.where(length > 0, share * (slope + by_time * length / level), 0)
            turn = part * slope * inverse
            by_direction = tl.fma(part, by_space, -turn * direction)
            _store_of_kernels(pulled, row, Q, 0, k, K, valid, part)
            _store_of_kernels(pulled, row, Q, K, k, K, valid, turn)
            _store_of_kernels(found, row, D, 0, k, K, valid, by_share)
            _store_of_kernels(found, row, D, K, k, K, valid, by_length)
            to = pulled + row * Q + 4 * K
            unit = _column(seen, row, R, 4 * K + UNIT, valid)
            tl.store(to + UNIT, unit, mask=valid)
            exists_edge = valid[:, None, None]
            tl.store((to + ALONG)[:, None, None], along * to_mean, mask=exists_edge)
            tl.store((to + FACTOR)[:, None, None], factor, mask=exists_edge)
            if WEIGHTED:
                tl.store((grad_weight + e)[:, None, None], along + level_of_mean, mask=exists_edge)
            if EDGES:
                inside = valid[:, None, None] & (k < K)[None, :, None] & (j < n)[None, None, :]
                place = row[:, None, None] * P + k[None, :, None] * n + j[None, None, :]
                tl.store(grad_product + place, by_direction, mask=inside)
                tl.store((found + row * D + 2 * K + 1)[:, None, None], _all(by_direction * wt), mask=exists_edge)
                by_bias += unit[:, None, None] * by_direction
                by_wt += by_direction
            elif RELATIVE:
                rest, held = _column(seen, row, R, 4 * K + REST, valid), _column(seen, row, R, 4 * K + HELD, valid)
                tl.store(to + GAP, _column(seen, row, R, 4 * K + GAP, valid), mask=valid)
                tl.store(to + REST, rest, mask=valid)
                tl.store(to + HELD, held, mask=valid)
                products = (found + row * D + 2 * K)[:, None, None]
                tl.store(products, _all(by_direction * px), mask=exists_edge)
                tl.store(products + 1, _all(by_direction * wt), mask=exists_edge)
                by_own -= tl.fma(held, unit, rest)[:, None, None] * by_direction
                by_wt += by_direction
        if RELATIVE and (not EDGES) and node >= 0:
            own = (grad_product if slot < 0 else hub_product) + tl.where(slot < 0, node, slot).to(tl.int64) * P
            _store_directions(own, tl.sum(by_own, 0), K, n, k, j)
    mine = shared + tl.program_id(0).to(tl.int64) * S
    if RELATIVE:
        _store_directions(mine, tl.sum(by_wt, 0), K, n, k, j)
    if EDGES:
        _store_directions(mine + P + K * (m + 2), tl.sum(by_bias, 0), K, n, k, j)


@triton.jit(do_not_specialize=["count"])
def _pull_edges(
    source, target, target_product, time_weight, scale, points, chunks, other, seen, found, pulled, by_activated,
    grad_node, hub_node, grad_product, hub_product, shared,
    count, m: tl.constexpr, n: tl.constexpr, K: tl.constexpr, P: tl.constexpr, R: tl.constexpr, D: tl.constexpr,
    Q: tl.constexpr, S: tl.constexpr, KP: tl.constexpr, NP: tl.constexpr, MP: tl.constexpr,
    RELATIVE: tl.constexpr, EDGES: tl.constexpr, POINTS: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Gradients of targets, their gates, and what all edges share; in the records, those of gates and boosts."""
    k, i, lane = tl.arange(0, KP), tl.arange(0, MP), tl.arange(0, B)
    one = tl.zeros([1], tl.int32)
    yes = one == 0
    lengths = tl.load(scale + k, mask=k < K, other=0)
    dtype: tl.constexpr = scale.dtype.element_ty
    vt = _gates(time_weight, one, K, n, P, k, yes) if RELATIVE else 0.0
    by_vt, by_scale = tl.zeros([B, KP], dtype), tl.zeros([B, KP], dtype)
    by_points = tl.zeros([KP, MP], dtype)
    for item in range(tl.program_id(0), count, tl.num_programs(0)):
        chunk = chunks + item * 4
        node = tl.load(chunk)
        first, last, slot = tl.load(chunk + 1), tl.load(chunk + 2), tl.load(chunk + 3)
        exists = (one + node) >= 0
        x = _points(target, one + node, m, i, exists) + tl.zeros([B, MP], dtype)
        x_time = _time(x)
        gx = _gates(target_product, one + node, K, n, P, k, exists) if RELATIVE else 0.0
        by_node, by_own_gate = tl.zeros([B, MP], dtype), tl.zeros([B, KP], dtype)
        for start in range(first, last, B):
            e = start + lane
            valid, row = e < last, e.to(tl.int64)
            boost, to = seen + row * R + 4 * K, pulled + row * Q + 4 * K
            reach = 1 + tl.load(boost + DELTA, mask=valid, other=0)
            excess, times = _excess(seen, row, R, points, reach, m, K, k, valid)
            root = tl.sqrt(excess) * tl.sqrt(excess + 2)
            slope = tl.where(root > 0, times[None, :] / tl.where(root > 0, root, 1), 0)
            share, length = _columns(seen, row, R, 0, k, K, valid), _columns(seen, row, R, K, k, K, valid)
            by_share, by_length = _columns(found, row, D, 0, k, K, valid), _columns(found, row, D, K, k, K, valid)
            total = tl.load(boost + TOTAL, mask=valid, other=0)
            by_distance = by_share - tl.sum(share * by_share, 1)[:, None]
            near = tl.where((total > 0)[:, None], by_distance / tl.where(total > 0, total, 1)[:, None] * slope, 0)
            opening = length / tl.where(lengths > 0, lengths, 1)[None, :]
            by_gate = by_length * length * (1 - opening)
            _store_columns(pulled, row, Q, 2 * K, k, K, valid, by_gate)
            _store_columns(pulled, row, Q, 3 * K, k, K, valid, near)
            by_scale += by_length * opening
            by_vt += by_gate * reach[:, None]
            by_stretch, by_reach = tl.zeros([B], dtype), tl.zeros([B], dtype)
            stretch = tl.load(boost + STRETCH, mask=valid, other=0)
            if RELATIVE:
                along_target = 0.0 if EDGES else tl.load(found + row * D + 2 * K, mask=valid, other=0)
                along_time = tl.load(found + row * D + 2 * K + 1, mask=valid, other=0)
                by_stretch = -(along_target / reach + tl.sum(by_gate * gx, 1))
                by_reach = along_time / reach + tl.sum(by_gate * vt, 1)
                by_own_gate -= (1 + stretch)[:, None] * by_gate
            tl.debug_barrier()  # what follows reads K gradients one by one
            u = _points(source, tl.load(other + e, mask=valid, other=0), m, i, valid)
            klein = ((u - x) - stretch[:, None] * x) * (1 / reach)[:, None]
            by_feature = tl.zeros([B, MP], dtype)
            if EDGES:
                place = row[:, None] * m + i[None, :]
                by_feature = tl.load(by_activated + place, mask=valid[:, None] & (i < m)[None, :], other=0)
                by_feature *= (1 / reach)[:, None]
            for kernel in range(K):
                point = tl.load(points + kernel * (m + 1) + 1 + i, mask=i < m, other=0)
                by_klein = _column(pulled, row, Q, 3 * K + kernel, valid)[:, None] * (klein - point[None, :])
                by_feature += by_klein
                if POINTS:
                    pull = tl.where(valid, reach, 0) / tl.load(points + kernel * (m + 1))
                    by_points -= tl.where((k == kernel)[:, None], tl.sum(pull[:, None] * by_klein, 0)[None, :], 0)
            by_gap = (by_stretch - tl.sum(by_feature * x, 1)) / (1 + x_time)
            by_delta = by_reach + by_gap
            gap, u_time = tl.load(boost + TIME_GAP, mask=valid, other=0), tl.load(boost + TIME, mask=valid, other=1)
            radial = (by_delta * gap - by_gap - by_gap * stretch) / x_time
            to_node = radial[:, None] * x - (1 + stretch)[:, None] * by_feature - by_delta[:, None] * (u - x)
            by_node += tl.where(valid[:, None], to_node, 0)
            tl.store(to + RADIAL, (by_gap - by_delta * gap) / u_time, mask=valid)
            tl.store(to + BY_DELTA, by_delta, mask=valid)
            tl.store(to + SOURCE_STRETCH, stretch, mask=valid)
            tl.store(to + SOURCE_UNIT, 1 / reach, mask=valid)
        if node >= 0:
            at = tl.where(slot < 0, node, slot).to(tl.int64)
            _store_point((grad_node if slot < 0 else hub_node) + at * (m + 1), tl.sum(by_node, 0), m, i)
            if RELATIVE:
                _store_gates((grad_product if slot < 0 else hub_product) + at * P, tl.sum(by_own_gate, 0), K, n, P, k)
    mine = shared + tl.program_id(0).to(tl.int64) * S
    _store_gates(mine, tl.sum(by_vt, 0), K, n, P, k)
    tl.store(mine + P + k, tl.sum(by_scale, 0), mask=k < K)
    if POINTS:
        to = mine + P + K + k[:, None] * (m + 1)
        tl.store(to + 1 + i[None, :], by_points, mask=(k < K)[:, None] & (i < m)[None, :])
        tl.store(mine + P + K + k * (m + 1), tl.zeros([KP], dtype), mask=k < K)


@triton.jit(do_not_specialize=["count"])
def _pull_sources(
    source, target, source_product, target_product, bias, time_weight, points, grad_mean, chunks, other, place, pulled,
    by_activated, grad_node, hub_node, grad_product, hub_product, shared,
    count, m: tl.constexpr, n: tl.constexpr, K: tl.constexpr, P: tl.constexpr, R: tl.constexpr, D: tl.constexpr,
    Q: tl.constexpr, S: tl.constexpr, KP: tl.constexpr, NP: tl.constexpr, MP: tl.constexpr,
    RELATIVE: tl.constexpr, EDGES: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Gradients of sources, their products and the biases, out of the records of their edges."""
    k, j, i, lane = tl.arange(0, KP), tl.arange(0, NP), tl.arange(0, MP), tl.arange(0, B)
    one = tl.zeros([1], tl.int32)
    yes = one == 0
    p = _kernel_points(points, K, m, k, i)[None, :, :]
    b = 0.0 if EDGES else _directions(bias, one, K, n, P, k, j, yes)
    wt = _directions(time_weight, one, K, n, P, k, j, yes) if RELATIVE and not EDGES else 0.0
    by_bias, by_gate_bias = tl.zeros([KP, NP], p.dtype), tl.zeros([KP], p.dtype)
    for item in range(tl.program_id(0), count, tl.num_programs(0)):
        chunk = chunks + item * 4
        node = tl.load(chunk)
        first, last, slot = tl.load(chunk + 1), tl.load(chunk + 2), tl.load(chunk + 3)
        exists = (one + node) >= 0
        u = _space_of(source, one + node, m, i, exists)
        pu = 0.0 if EDGES else _directions(source_product, one + node, K, n, P, k, j, exists)
        by_node = tl.zeros([B, 1, MP], p.dtype)
        by_own, by_gate = tl.zeros([B, KP, NP], p.dtype), tl.zeros([B, KP], p.dtype)
        for start in range(first, last, B):
            e = start + lane
            valid = e < last
            ends = tl.load(other + e, mask=valid, other=0)
            row = tl.load(place + e, mask=valid, other=0).to(tl.int64)
            if not EDGES:
                px = _directions(target_product, ends, K, n, P, k, j, valid) if RELATIVE else 0.0
                direction = _direction(pu, px, b, wt, pulled, row, Q, 4 * K, valid, RELATIVE, False)
                part, turn = _of_kernels(pulled, row, Q, 0, k, K, valid), _of_kernels(pulled, row, Q, K, k, K, valid)
                message = tl.sum(part * direction, 1, keep_dims=True)
                along = _of_edges(pulled, row, Q, 4 * K + ALONG, valid)
                by_space = _space_of(grad_mean, ends, n, j, valid) + along * message
                by_space = _of_edges(pulled, row, Q, 4 * K + FACTOR, valid) * by_space
                by_direction = tl.fma(part, by_space, -turn * direction)
                by_own += _of_edges(pulled, row, Q, 4 * K + UNIT, valid) * by_direction
            by_gate += _columns(pulled, row, Q, 2 * K, k, K, valid)
            x = _space_of(target, ends, m, i, valid)
            stretch = _of_edges(pulled, row, Q, 4 * K + SOURCE_STRETCH, valid)
            klein = ((u - x) - stretch * x) * _of_edges(pulled, row, Q, 4 * K + SOURCE_UNIT, valid)
            by_feature = tl.sum(_of_kernels(pulled, row, Q, 3 * K, k, K, valid) * (klein - p), 1, keep_dims=True)
            if EDGES:
                from_activated = _row_of(by_activated, row, m, i, valid)
                by_feature += _of_edges(pulled, row, Q, 4 * K + SOURCE_UNIT, valid) * from_activated
            radial = _of_edges(pulled, row, Q, 4 * K + RADIAL, valid)
            by_delta = _of_edges(pulled, row, Q, 4 * K + BY_DELTA, valid)
            by_node += by_feature + radial * u + by_delta * (u - x)
        own_direction, own_gate = tl.sum(by_own, 0), tl.sum(by_gate, 0)
        by_bias += own_direction
        by_gate_bias += own_gate
        if node >= 0:
            at = tl.where(slot < 0, node, slot).to(tl.int64)
            to_node = tl.reshape(tl.sum(by_node, 0), [MP])
            _store_point((grad_node if slot < 0 else hub_node) + at * (m + 1), to_node, m, i)
            own = (grad_product if slot < 0 else hub_product) + at * P
            if not EDGES:
                _store_directions(own, own_direction, K, n, k, j)
            _store_gates(own, own_gate, K, n, P, k)
    mine = shared + tl.program_id(0).to(tl.int64) * S + P + K * (m + 2)
    if not EDGES:
        _store_directions(mine, by_bias, K, n, k, j)
    _store_gates(mine, by_gate_bias, K, n, P, k)


# Entries of a structure that a program looks through before kernels follow it.
LOOK = 1024
_asserted = IdentityCache()


@triton.jit(debug=True)
def _assert_chunks(chunks, row, rows, nodes, edges):
    inside = row < rows
    node = tl.load(chunks + row * 4, mask=inside, other=-1)
    first, last = (
        tl.load(chunks + row * 4 + 1, mask=inside, other=0),
        tl.load(chunks + row * 4 + 2, mask=inside, other=0),
    )
    used = (node >= 0) & (node < nodes) & (first >= 0) & (last <= edges)
    tl.device_assert(used | ((node == -1) & (last <= first)), "hkconv: no chunk of this graph")


@triton.jit(debug=True, do_not_specialize=["edges", "sources", "targets", "target_chunks", "source_chunks"])
def _assert_inside(
    source, target, target_by_source, by_source, by_target_chunks, by_source_chunks,
    edges, sources, targets, target_chunks, source_chunks, LOOK: tl.constexpr,
):  # fmt: skip
    """Assert that no index of a structure leads out of memory: kernels follow it blindly."""
    e = tl.program_id(0) * LOOK + tl.arange(0, LOOK)
    u = tl.load(source + e, mask=e < edges, other=0)
    x = tl.load(target_by_source + e, mask=e < edges, other=0)
    y = tl.load(target + e, mask=e < edges, other=0)
    place = tl.load(by_source + e, mask=e < edges, other=0)
    tl.device_assert((u >= 0) & ((u < sources) | (e >= edges)), "hkconv: no source of this graph")
    tl.device_assert((x >= 0) & ((x < targets) | (e >= edges)), "hkconv: no target of this graph")
    tl.device_assert((y >= 0) & ((y < targets) | (e >= edges)), "hkconv: no target of this graph")
    tl.device_assert((place >= 0) & ((place < edges) | (e >= edges)), "hkconv: no edge of this graph")
    _assert_chunks(by_target_chunks, e, target_chunks, targets, edges)
    _assert_chunks(by_source_chunks, e, source_chunks, sources, edges)


def assert_inside(neighbors: Neighbors) -> None:
    """Assert on the device, without waiting for it, that a structure is one of its graph; once, until it is changed."""
    chunks = neighbors.target_chunks, neighbors.source_chunks
    ends = neighbors.source, neighbors.target, neighbors.target_by_source
    tensors = [*ends, neighbors.by_source, *chunks]
    state = (neighbors.size, *((part.data_ptr(), 0 if part.is_inference() else part._version) for part in tensors))
    _asserted.get(neighbors.source, state, lambda: _look_through(tensors, neighbors.size))


def _look_through(tensors: list[Tensor], size: tuple[int, int]) -> None:
    numbers = tensors[0].numel(), *size, *(rows.size(0) for rows in tensors[-2:])
    if programs := -(-max(numbers[0], *numbers[3:]) // LOOK):
        _launch_assert_inside((programs, 1), tensors, *numbers, LOOK=LOOK)


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
    return _work(neighbors.source_pointer, neighbors.source_chunks, neighbors.source_hubs, neighbors.target_by_source)


def _work(pointer: Tensor, chunks: Tensor, hubs: Tensor, other: Tensor) -> _Work:
    nodes, edges = pointer.numel() - 1, other.numel()
    if pointer.device.type == "cpu":  # the interpreter: CPU structures come without chunks
        chunks, hubs = chunks_of(pointer, edges)
    slots = slots_for(nodes, edges) if hubs.size(0) else 0
    return _Work(chunks, hubs, other, slots, usual_degree(nodes, edges))


@triton.jit
def _pack(
    weight, bias, gate_weight, gate_bias, log_scale, points, packed, packed_bias, time, scale, klein,
    K: tl.constexpr, n: tl.constexpr, width: tl.constexpr, P: tl.constexpr,
    BIAS: tl.constexpr, GATE_BIAS: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Parameters side by side, and zeros in the room behind them; kernel points in Klein coordinates, with times."""
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
    for kernel in range(tl.program_id(0), K, tl.num_programs(0)):
        space = tl.load(points + kernel * width + column, mask=(column > 0) & (column < width), other=0)
        p_time = tl.sqrt(1 + tl.sum(space * space, 0))
        tl.store(klein + kernel * width + column, tl.where(column == 0, p_time, space / p_time), mask=column < width)


@triton.jit
def _unpack(
    by_packed, by_time, by_packed_bias, by_scale, scale,
    by_weight, by_bias, by_gate_weight, by_gate_bias, by_log_scale,
    K: tl.constexpr, n: tl.constexpr, width: tl.constexpr,
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


def multiplies_edges(inputs: Inputs, relative: bool, rectify: bool) -> bool:
    """True where an activation of the relative feature takes its products from nodes to edges."""
    return relative and rectify


def pack(inputs: Inputs) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """HLinear's parameters side by side: weight, bias, time, scale; rows of products start at multiples of 16 bytes.

    And the kernel points, in Klein coordinates behind their times.
    """
    K, n, width = inputs.weight.shape
    P = (K * (n + 1) + 3) // 4 * 4
    new = inputs.weight.new_empty
    packed = new(P, width), new(P), new(P), new(K), new(K, width)
    given = [inputs.weight if value is None else value.contiguous() for value in inputs[2:8]]
    absent = {"BIAS": inputs.bias is not None, "GATE_BIAS": inputs.gate_bias is not None}
    _launch_pack(_parameter_rows(P, width), [*given, *packed], K=K, n=n, width=width, P=P, **absent, **_tile(width))
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
    """What ReLU needs: features after it, ``(E, m)``, packed weights, and what edges read for gates and directions."""

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
        of_edges.points if points_too else weight.new_empty(0),
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
    by_target: "_Work"
    by_source: "_Work"
    found: Tensor
    pulled: Tensor
    grad_mean: Tensor

    @property
    def programs(self) -> tuple[int, int]:
        """Number of programs of the walk over targets and of that over sources."""
        of_targets, of_sources = (min(PROGRAMS, by.chunks.size(0)) for by in (self.by_target, self.by_source))
        return of_targets, of_sources

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
        points=found.points if points_too else shared.new_empty(0),
        weight=shared.new_empty(0) if inputs.weight is None else by_weight,
    )


def _pull_products_of(
    inputs: EdgeInputs,
    neighbors: Neighbors,
    outputs: tuple[Tensor, Tensor],
    grads: tuple[Tensor, Tensor | None],
    pull: _Pull,
    rows: "_Rows",
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
    to_target: "_Rows",
    by_activated: Tensor | None,
    points_too: bool,
    shared: Tensor,
) -> "_Rows":
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
    return _Shared(time, scale, points.view(K, m + 1).clone(), bias)


def _given(
    inputs: EdgeInputs, neighbors: Neighbors, outputs: tuple[Tensor, Tensor], grads: tuple[Tensor, Tensor | None]
) -> list[Tensor]:
    """Weights, outputs, their gradients, and what the weights of a target add up to."""
    grad_out, grad_mass = (outputs[1] if grad is None else grad.contiguous() for grad in grads)
    pointer, weight = neighbors.target_pointer, _or_source(inputs, inputs.weight)
    total = weight if inputs.weight is None else torch.segment_reduce(inputs.weight, "sum", offsets=pointer)
    return [weight, *outputs, grad_out, grad_mass, total, pointer]


class _Rows(NamedTuple):
    """Gradients of nodes and of their products, and room for those of the chunks of hubs."""

    node: Tensor
    hub_node: Tensor
    product: Tensor
    hub_product: Tensor


def _gradient_rows(node: Tensor, product: Tensor | None, by: _Work) -> _Rows:
    product = node.new_empty(0, 0) if product is None else product
    rooms = ((torch.empty_like(value), value.new_empty(by.slots, value.size(1))) for value in (node, product))
    return _Rows(*next(rooms), *next(rooms))


def _add_gradients_of_hubs(by: _Work, rows: _Rows) -> None:
    if by.hubs.size(0) == 0:
        return
    widths = {"node_width": rows.node.size(1), "product_width": rows.product.size(1)}
    block = min(1024, _power_of_two(max(widths.values())))
    tensors = [by.hubs, rows.hub_node, rows.node, rows.hub_product, rows.product]
    _launch_add_hubs((by.hubs.size(0), 2), tensors, **widths, PRODUCT=rows.product.numel() > 0, BLOCK=block)


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
    return {"B": max(1, min(EDGES_A_TILE, 256 // width, usual)), "num_warps": max(1, min(4, width // TILE))}


def _of_four(size: int) -> int:
    return (size + 3) // 4 * 4


def _power_of_two(size: int) -> int:
    """The next power of two; Triton's own takes ten times as long."""
    return 1 << (size - 1).bit_length()


_launch_assert_inside = Launcher(_assert_inside)
_launch_pack, _launch_unpack = Launcher(_pack), Launcher(_unpack)
_launch_forward, _launch_finish_hubs = Launcher(_forward), Launcher(_finish_hubs)
_launch_see, _launch_pull_products, _launch_pull_edges = Launcher(_see), Launcher(_pull_products), Launcher(_pull_edges)
_launch_pull_sources, _launch_add_hubs = Launcher(_pull_sources), Launcher(_add_hubs)
