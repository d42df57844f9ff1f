r"""Triton kernels of HKConv, which :mod:`hkconv.ops.cuda` calls one after the other.

The mathematics is that of ``ops/native/block.hpp``. What an edge needs by itself, its boost, its distances to the
kernel points and the openings of its gates, is found for several edges of a program at once and kept in a record. Then
one warp takes the K rows of products of an edge after the other, which is all that is as wide as K n.
"""

import triton
import triton.language as tl

from hkconv.ops.cuda_parts import _arcosh1p, _points, _relate, _sigmoid, _time
from hkconv.ops.cuda_walks import _chunk

# Columns of the record of an edge, behind K shares, K lengths, K squared Klein distances to the kernel points and K
# inverse norms of directions: what these are made with (see `_direction`), the sum of the distances, the boost, and the
# mass of the message. Norms and mass are the forward pass's, the rest is `_see`'s.
UNIT, GAP, REST, HELD, TOTAL, DELTA, STRETCH, TIME_GAP, TIME, MESSAGE_MASS, SEEN = (tl.constexpr(i) for i in range(11))

# Columns of the record that the walk over the sources reads, behind K shares/norms of directions, K turns of these, K
# gradients of gates and K of squared distances to kernel points: the first four of a record of `_see`, then these.
ALONG, FACTOR, RADIAL, BY_DELTA, SOURCE_STRETCH, SOURCE_UNIT, PULLED = (tl.constexpr(i) for i in range(4, 11))


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
    # Where less is far out, the last term is nothing beside the first, and the inverse may not be finite.
    gap = tl.fma(direction, inverse, -space * (1 / tl.where(all_far > 1e-30, all_far, 1)))
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
def _read_edges(
    source_product, other, seen, e, valid, px, b, wt, k, j, n: tl.constexpr, K: tl.constexpr, P: tl.constexpr,
    R: tl.constexpr, RELATIVE: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    """Rows of records, directions (edges, K, n), and shares and lengths (edges, K, 1) of the edges into a target."""
    row = e.to(tl.int64)
    of_product = row if EDGES else tl.load(other + e, mask=valid, other=0)
    pu = _directions(source_product, of_product, K, n, P, k, j, valid)
    direction = _direction(pu, px, b, wt, seen, row, R, 4 * K, valid, RELATIVE, EDGES)
    return row, direction, _of_kernels(seen, row, R, 0, k, K, valid), _of_kernels(seen, row, R, K, k, K, valid)


@triton.jit
def _forward(
    source_product, target_product, bias, time_weight, weight, chunks, other, seen, out, mass, hub_sums,
    m: tl.constexpr, n: tl.constexpr, K: tl.constexpr, P: tl.constexpr, R: tl.constexpr, D: tl.constexpr,
    Q: tl.constexpr, S: tl.constexpr, KP: tl.constexpr, NP: tl.constexpr, MP: tl.constexpr,
    RELATIVE: tl.constexpr, EDGES: tl.constexpr, WEIGHTED: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """The centroid of a target's messages, or the sums over a chunk of a hub's (as ``_finish_hubs`` adds them)."""
    node, first, last, slot = _chunk(chunks, tl.program_id(0))
    if node < 0:
        return
    k, j, lane = tl.arange(0, KP), tl.arange(0, NP), tl.arange(0, B)
    px, b, wt = _products_of_node(target_product, bias, time_weight, node, K, n, P, k, j, RELATIVE, EDGES)
    dtype: tl.constexpr = bias.dtype.element_ty
    spaces = tl.zeros([B, 1, NP], dtype)
    fars, rests, totals = tl.zeros([B, 1, 1], dtype), tl.zeros([B, 1, 1], dtype), tl.zeros([B, 1, 1], dtype)
    spreads = tl.zeros([B, 1, 1], dtype)
    for start in range(first, last, B):
        e = start + lane
        valid = e < last
        row, direction, share, length = _read_edges(
            source_product, other, seen, e, valid, px, b, wt, k, j, n, K, P, R, RELATIVE, EDGES
        )
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
    by_wt = tl.zeros([B, KP, NP], bias.dtype.element_ty)
    by_bias = tl.zeros([B, KP, NP], by_wt.dtype)
    for item in range(tl.program_id(0), count, tl.num_programs(0)):
        node, first, last, slot = _chunk(chunks, item)
        px, b, wt = _products_of_node(target_product, bias, time_weight, node, K, n, P, k, j, RELATIVE, EDGES)
        some = tl.maximum(node, 0)
        if WEIGHTED:
            sum_of_weights = tl.load(total_weight + some)
        else:
            sum_of_weights = (tl.load(pointer + some + 1) - tl.load(pointer + some)).to(by_wt.dtype)
        mean_time, mean_space, level_of_mean = _spread(out, mass, grad_out, grad_mass, some, sum_of_weights, n, j, MASS)
        # For the walk over the sources, which reads the space alone; all chunks of a hub write the same.
        tl.store(grad_mean + some.to(tl.int64) * (n + 1) + 1 + j, mean_space, mask=(j < n) & (node >= 0))
        mean_space = mean_space[None, None, :]
        by_own = tl.zeros([B, KP, NP], by_wt.dtype)
        for start in range(first, last, B):
            e = start + lane
            valid = e < last
            row, direction, share, length = _read_edges(
                source_product, other, seen, e, valid, px, b, wt, k, j, n, K, P, R, RELATIVE, EDGES
            )
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
        node, first, last, slot = _chunk(chunks, item)
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
    p = _kernel_points(points, K, m, k, i)
    b = 0.0 if EDGES else _directions(bias, one, K, n, P, k, j, yes)
    wt = _directions(time_weight, one, K, n, P, k, j, yes) if RELATIVE and not EDGES else 0.0
    by_bias, by_gate_bias = tl.zeros([KP, NP], p.dtype), tl.zeros([KP], p.dtype)
    for item in range(tl.program_id(0), count, tl.num_programs(0)):
        node, first, last, slot = _chunk(chunks, item)
        exists = (one + node) >= 0
        u = _points(source, one + node, m, i, exists)
        pu = 0.0 if EDGES else _directions(source_product, one + node, K, n, P, k, j, exists)
        by_node = tl.zeros([B, MP], p.dtype)
        by_own, by_gate = tl.zeros([B, KP, NP], p.dtype), tl.zeros([B, KP], p.dtype)
        for start in range(first, last, B):
            e = start + lane
            valid = e < last
            ends = tl.load(other + e, mask=valid, other=0)
            row = tl.load(place + e, mask=valid, other=0).to(tl.int64)
            if not EDGES:
                px = _directions(target_product, ends, K, n, P, k, j, valid) if RELATIVE else 0.0
                direction = _direction(pu, px, b, wt, pulled, row, Q, 4 * K, valid, RELATIVE, False)
                part, turn = _columns(pulled, row, Q, 0, k, K, valid), _columns(pulled, row, Q, K, k, K, valid)
                message = tl.sum(part[:, :, None] * direction, 1)
                along = _column(pulled, row, Q, 4 * K + ALONG, valid)[:, None]
                by_space = _points(grad_mean, ends, n, j, valid) + along * message
                by_space = (_column(pulled, row, Q, 4 * K + FACTOR, valid)[:, None] * by_space)[:, None, :]
                by_direction = tl.fma(part[:, :, None], by_space, -turn[:, :, None] * direction)
                by_own += _of_edges(pulled, row, Q, 4 * K + UNIT, valid) * by_direction
            by_gate += _columns(pulled, row, Q, 2 * K, k, K, valid)
            x = _points(target, ends, m, i, valid)
            stretch = _column(pulled, row, Q, 4 * K + SOURCE_STRETCH, valid)[:, None]
            unit = _column(pulled, row, Q, 4 * K + SOURCE_UNIT, valid)[:, None]
            klein = ((u - x) - stretch * x) * unit
            near = _columns(pulled, row, Q, 3 * K, k, K, valid)
            by_feature = tl.sum(near[:, :, None] * (klein[:, None, :] - p[None, :, :]), 1)
            if EDGES:
                inside = valid[:, None] & (i < m)[None, :]
                by_feature += unit * tl.load(by_activated + row[:, None] * m + i[None, :], mask=inside, other=0)
            radial = _column(pulled, row, Q, 4 * K + RADIAL, valid)[:, None]
            by_delta = _column(pulled, row, Q, 4 * K + BY_DELTA, valid)[:, None]
            by_node += by_feature + radial * u + by_delta * (u - x)
        own_direction, own_gate = tl.sum(by_own, 0), tl.sum(by_gate, 0)
        by_bias += own_direction
        by_gate_bias += own_gate
        if node >= 0:
            at = tl.where(slot < 0, node, slot).to(tl.int64)
            _store_point((grad_node if slot < 0 else hub_node) + at * (m + 1), tl.sum(by_node, 0), m, i)
            own = (grad_product if slot < 0 else hub_product) + at * P
            if not EDGES:
                _store_directions(own, own_direction, K, n, k, j)
            _store_gates(own, own_gate, K, n, P, k)
    mine = shared + tl.program_id(0).to(tl.int64) * S + P + K * (m + 2)
    if not EDGES:
        _store_directions(mine, by_bias, K, n, k, j)
    _store_gates(mine, by_gate_bias, K, n, P, k)


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
