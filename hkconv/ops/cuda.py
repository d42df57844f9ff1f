r"""HKConv on CUDA: Triton kernels, one program a chunk of one node's edges, with tiles (edges, kernel points, n).

The mathematics is that of ``ops/native/block.hpp``; only the loops are others. Nodes with many edges are split into
chunks (:func:`hkconv.ops.chunks.chunks_of`), whose sums go to a buffer of their own and are then added in order. Sums
for what all edges share are kept by each program over all its chunks. There are no atomics: the same input gives the
same bits.

In Triton's interpreter (``TRITON_INTERPRET=1``) the same functions take CPU tensors.
"""

from functools import lru_cache
from typing import NamedTuple

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
def _relate(u, x, u_time, x_time):
    """δ, c - 1 and u_t - x_t of each edge; see geometry.relative, of which this is the literal form."""
    d = u - x
    unit = tl.maximum(u_time, x_time)
    step = d / unit[:, None]
    # The root of a number too small for full precision is 0 on a GPU: it is the root that must not divide.
    length = tl.sqrt(tl.sum(step * step, 1))
    along = step / tl.where(length > 0, length, 1)[:, None]
    shorter = tl.where((u_time < x_time)[:, None], u, x)
    across = shorter - tl.sum(shorter * along, 1)[:, None] * along
    product = tl.sum(u * x, 1)
    facing = product > -1
    reach = length * (unit / tl.sqrt(1 + u_time * x_time + tl.maximum(product, -1)))
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
    inside = (kernel < K)[:, None] & (column < n)[None, :]
    tl.store(pointer + kernel[:, None] * n + column[None, :], direction, mask=inside)
    tl.store(pointer + K * n + kernel, gate, mask=kernel < K)
    room = K * (n + 1) + tl.arange(0, 4)
    tl.store(pointer + room, tl.zeros([4], direction.dtype), mask=room < P)


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
def _forward(
    source, target, source_product, target_product, bias, time_weight, scale, points, weight,
    chunks, other, out, mass, hub_sums,
    m: tl.constexpr, n: tl.constexpr, K: tl.constexpr, P: tl.constexpr,
    RELATIVE: tl.constexpr, WEIGHTED: tl.constexpr, B: tl.constexpr, KP: tl.constexpr, NP: tl.constexpr,
    MP: tl.constexpr,
):  # fmt: skip
    """The centroid of a target's edges, or the sums over a chunk of a hub's (as ``_finish_hubs`` adds them)."""
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
    far = tl.zeros([B], p.dtype)
    rest = tl.zeros([B], p.dtype)
    spread = tl.zeros([B], p.dtype)
    total = tl.zeros([B], p.dtype)
    for start in range(first, last, B):
        e = start + tl.arange(0, B)
        valid = e < last
        index = tl.load(other + e, mask=valid, other=0)
        u = _points(source, index, m, i, valid)
        u_time = _time(u)
        delta, c_minus_1, _ = _relate(u, x, u_time, x_time + tl.zeros([B], p.dtype))
        feature = (u - x) - c_minus_1[:, None] * x
        _, share, _, _ = _correlate(feature, 1 / (1 + delta), p, p_time, k < K, K)
        pu = _directions(source_product, index, K, n, P, k, j, valid)
        gu = _gates(source_product, index, K, n, P, k, valid)
        direction, norm, _, length = _transform(
            pu, px, b, wt, gu, gx, bg, vt, u_time, delta, c_minus_1, lengths, RELATIVE
        )
        message, message_time, _ = _message(direction, norm, length, share)
        w = tl.load(weight + e, mask=valid, other=0) if WEIGHTED else tl.where(valid, 1.0, 0.0).to(p.dtype)
        message = tl.where(valid[:, None], message, 0)
        space, far, rest, spread = _join(space, far, rest, spread, message, tl.where(valid, message_time, 1), w)
        total += w
    all_space, all_far, all_rest, all_spread = _together(space, far, rest, spread)
    all_total = tl.sum(total, 0)
    if slot < 0:
        _store_centroid(out, mass, node, all_space, all_far, all_rest, all_spread, all_total, n, j)
    else:
        row = hub_sums + slot.to(tl.int64) * (n + 4)
        tl.store(row + j, all_space, mask=j < n)
        tl.store(row + n, all_far)
        tl.store(row + n + 1, all_rest)
        tl.store(row + n + 2, all_spread)
        tl.store(row + n + 3, all_total)


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


@triton.jit(do_not_specialize=["count"])
def _backward(
    source, target, source_product, target_product, bias, time_weight, scale, points, weight,
    out, mass, grad_out, grad_mass, total_weight, pointer, grad_mean, chunks, other, place,
    grad_node, grad_product, hub_node, hub_product, grad_weight, shared,
    count, m: tl.constexpr, n: tl.constexpr, K: tl.constexpr, P: tl.constexpr,
    RELATIVE: tl.constexpr, WEIGHTED: tl.constexpr, B: tl.constexpr, KP: tl.constexpr, NP: tl.constexpr,
    MP: tl.constexpr, TO_SOURCE: tl.constexpr, POINTS: tl.constexpr, MASS: tl.constexpr,
):  # fmt: skip
    """Gradients of targets, of their means, of weights and of what all edges share; then (``TO_SOURCE``) of sources."""
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
    by_bias = tl.zeros([KP, NP], p.dtype)
    by_gate_bias = tl.zeros([KP], p.dtype)
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
        mean_time, mean_space, level = 0.0, 0.0, 0.0
        if not TO_SOURCE:
            some = tl.maximum(node, 0)
            if WEIGHTED:
                sum_of_weights = tl.load(total_weight + some)
            else:
                sum_of_weights = (tl.load(pointer + some + 1) - tl.load(pointer + some)).to(p.dtype)
            mean_time, mean_space, level = _spread(out, mass, grad_out, grad_mass, some, sum_of_weights, n, j, MASS)
            # For the walk over the sources; all chunks of a hub write the same.
            row = grad_mean + some.to(tl.int64) * (n + 1)
            tl.store(row + one, mean_time + tl.zeros([1], p.dtype), mask=exists)
            tl.store(row + 1 + j, mean_space, mask=(j < n) & exists)
        by_node = tl.zeros([B, MP], p.dtype)
        by_own_direction = tl.zeros([B, KP, NP], p.dtype)
        by_own_gate = tl.zeros([B, KP], p.dtype)
        for start in range(first, last, B):
            e = start + tl.arange(0, B)
            valid = e < last
            ends = tl.load(other + e, mask=valid, other=0)
            everywhere = tl.zeros([B, MP], p.dtype)
            px, gx = 0.0, 0.0
            if TO_SOURCE:
                u, x = own + everywhere, _points(target, ends, m, i, valid)
                pu, gu = own_product + tl.zeros([B, KP, NP], p.dtype), own_gate + tl.zeros([B, KP], p.dtype)
                if RELATIVE:
                    px = _directions(target_product, ends, K, n, P, k, j, valid)
                    gx = _gates(target_product, ends, K, n, P, k, valid)
                grad_space = _points(grad_mean, ends, n, j, valid)
                grad_time = tl.load(grad_mean + ends.to(tl.int64) * (n + 1), mask=valid, other=0)
            else:
                grad_space = mean_space[None, :] + tl.zeros([B, NP], p.dtype)  # type: ignore[index]  # a row here
                grad_time = mean_time + tl.zeros([B], p.dtype)
                u, x = _points(source, ends, m, i, valid), own + everywhere
                pu = _directions(source_product, ends, K, n, P, k, j, valid)
                gu = _gates(source_product, ends, K, n, P, k, valid)
                px, gx = own_product, own_gate
            u_time, x_time = _time(u), _time(x)
            delta, c_minus_1, gap = _relate(u, x, u_time, x_time)
            unit = 1 / (1 + delta)
            feature = (u - x) - c_minus_1[:, None] * x
            klein_gap, share, slope, total = _correlate(feature, unit, p, p_time, k < K, K)
            direction, norm, opening, length = _transform(
                pu, px, b, wt, gu, gx, bg, vt, u_time, delta, c_minus_1, lengths, RELATIVE
            )
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
            by_stretch = -tl.sum(by_feature * x, 1)
            by_reach = tl.zeros([B], p.dtype)
            if RELATIVE:
                by_stretch -= unit * tl.sum(tl.sum(by_direction * px, 2), 1) + tl.sum(by_gate * gx, 1)
                by_reach = unit * tl.sum(tl.sum(by_direction * wt, 2), 1) + tl.sum(by_gate * vt, 1)
            by_gap = by_stretch / (1 + x_time)
            by_delta = by_reach + by_gap
            stretch = 1 + c_minus_1
            if TO_SOURCE:
                radial = (by_gap - by_delta * gap) / u_time
                to_node = by_feature + radial[:, None] * u + by_delta[:, None] * (u - x)
                to_direction = unit if RELATIVE else 1 / u_time
                to_gate = tl.zeros([B], p.dtype) + 1
            else:
                radial = (by_delta * gap - by_gap - by_gap * c_minus_1) / x_time
                to_node = radial[:, None] * x - stretch[:, None] * by_feature - by_delta[:, None] * (u - x)
                to_direction = -stretch * unit
                to_gate = -stretch
                if WEIGHTED:
                    tl.store(grad_weight + e, along + level, mask=valid)
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
        own_direction, own_gate = tl.sum(by_own_direction, 0), tl.sum(by_own_gate, 0)
        by_bias += own_direction
        by_gate_bias += own_gate
        if node >= 0:
            at = tl.where(slot < 0, node, slot).to(tl.int64)
            row = (grad_node if slot < 0 else hub_node) + at * (m + 1)
            tl.store(row, 0.0)
            tl.store(row + 1 + i, tl.sum(by_node, 0), mask=i < m)
            if TO_SOURCE or RELATIVE:
                row = (grad_product if slot < 0 else hub_product) + at * P
                _store_products(row, own_direction, own_gate, K, n, P, k, j)
    mine = shared + tl.program_id(0).to(tl.int64) * (2 * P + K * (m + 2))
    if TO_SOURCE:
        _store_products(mine + P + K * (m + 2), by_bias, by_gate_bias, K, n, P, k, j)
    else:
        _store_products(mine, tl.sum(by_wt, 0), tl.sum(by_vt, 0), K, n, P, k, j)
        tl.store(mine + P + k, tl.sum(by_scale, 0), mask=k < K)
        if POINTS:
            inside = (k < K)[:, None] & (i < m)[None, :]
            to = mine + P + K + k[:, None] * (m + 1) + 1 + i[None, :]
            tl.store(to, tl.sum(by_points, 0), mask=inside)
            tl.store(mine + P + K + k * (m + 1), tl.zeros([KP], p.dtype), mask=k < K)


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
    source, target_by_source, by_source, by_target_chunks, by_source_chunks,
    edges, sources, targets, target_chunks, source_chunks, LOOK: tl.constexpr,
):  # fmt: skip
    """Assert that no index of a structure leads out of memory: kernels follow it blindly."""
    e = tl.program_id(0) * LOOK + tl.arange(0, LOOK)
    u = tl.load(source + e, mask=e < edges, other=0)
    x = tl.load(target_by_source + e, mask=e < edges, other=0)
    place = tl.load(by_source + e, mask=e < edges, other=0)
    tl.device_assert((u >= 0) & ((u < sources) | (e >= edges)), "hkconv: no source of this graph")
    tl.device_assert((x >= 0) & ((x < targets) | (e >= edges)), "hkconv: no target of this graph")
    tl.device_assert((place >= 0) & ((place < edges) | (e >= edges)), "hkconv: no edge of this graph")
    _assert_chunks(by_target_chunks, e, target_chunks, targets, edges)
    _assert_chunks(by_source_chunks, e, source_chunks, sources, edges)


def assert_inside(neighbors: Neighbors) -> None:
    """Assert on the device, without waiting for it, that a structure is one of its graph; once, until it is changed."""
    chunks = neighbors.target_chunks, neighbors.source_chunks
    tensors = [neighbors.source, neighbors.target_by_source, neighbors.by_source, *chunks]
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
    weight, bias, gate_weight, gate_bias, log_scale, packed, packed_bias, time, scale,
    K: tl.constexpr, n: tl.constexpr, width: tl.constexpr, P: tl.constexpr,
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
    """False: products are always taken over nodes."""
    return False


def pack(inputs: Inputs) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """HLinear's parameters side by side: weight, bias, time, scale; rows of products start at multiples of 16 bytes."""
    K, n, width = inputs.weight.shape
    P = (K * (n + 1) + 3) // 4 * 4
    new = inputs.weight.new_empty
    packed = new(P, width), new(P), new(P), new(K)
    given = [inputs.weight if value is None else value.contiguous() for value in inputs[2:7]]
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


def aggregate(inputs: EdgeInputs, neighbors: Neighbors) -> tuple[Tensor, Tensor]:
    """Aggregated points (T, n+1) and their masses for unit total weight (T,)."""
    targets, n = inputs.target.size(0), inputs.out_dim
    out, mass = inputs.target.new_empty(targets, n + 1), inputs.target.new_empty(targets)
    if targets == 0:
        return out, mass
    assert_inside(neighbors)
    by = _by_target(neighbors)
    hub_sums = inputs.target.new_empty(by.slots, n + 4)
    tensors = [*_pointers(inputs), by.chunks, by.other, out, mass, hub_sums]
    _launch_forward((by.chunks.size(0), 1), tensors, **_options(inputs, by))
    if by.hubs.size(0):
        constants = {"n": n, "NP": _power_of_two(n)}
        _launch_finish_hubs((by.hubs.size(0), 1), [by.hubs, hub_sums, out, mass], **constants)
    return out, mass


def gradients(
    inputs: EdgeInputs,
    neighbors: Neighbors,
    outputs: tuple[Tensor, Tensor],
    grads: tuple[Tensor, Tensor | None],
    points_too: bool,
) -> EdgeGradients:
    """Gradients of :func:`aggregate`, given its outputs and theirs."""
    m, _, K, P = _sizes(inputs)
    by_target, by_source = _by_target(neighbors), _by_source(neighbors)
    new = inputs.source.new_empty
    grad_weight = inputs.source if inputs.weight is None else torch.empty_like(inputs.weight)
    programs = [_programs(by, _options(inputs, by)) for by in (by_target, by_source)]
    shared = new(max(*programs, 1), 2 * P + K * (m + 2))
    if programs[0] != programs[1] or programs[0] == 0:
        shared.zero_()
    given = _given(inputs, neighbors, outputs, grads)
    to_target = _gradient_rows(inputs.target, inputs.target_product, by_target)
    to_source = _gradient_rows(inputs.source, inputs.source_product, by_source)
    for by, rows in ((by_target, to_target), (by_source, to_source)):
        if by.chunks.size(0) == 0:
            continue
        flags = {"TO_SOURCE": by is by_source, "POINTS": points_too, "MASS": grads[1] is not None}
        options = {**_options(inputs, by), **flags}
        tensors = [*given, by.chunks, by.other, neighbors.by_source, *rows, grad_weight, shared]
        _launch_backward((_programs(by, options), 1), tensors, by.chunks.size(0), **options)
        _add_gradients_of_hubs(by, rows)
    by_time, by_scale, by_points, by_bias = shared.sum(0).split([P, K, K * (m + 1), P])
    return EdgeGradients(
        source=to_source.node,
        target=to_target.node,
        source_product=to_source.product,
        target_product=to_target.product,
        bias=by_bias,
        time=by_time,
        scale=by_scale,
        points=by_points.view(K, m + 1).clone() if points_too else new(0),
        weight=new(0) if inputs.weight is None else grad_weight,
    )


def _given(
    inputs: EdgeInputs, neighbors: Neighbors, outputs: tuple[Tensor, Tensor], grads: tuple[Tensor, Tensor | None]
) -> list[Tensor]:
    """Inputs of a backward pass, and room for the gradients of the means."""
    grad_out, grad_mass = (outputs[1] if grad is None else grad.contiguous() for grad in grads)
    pointer, total = neighbors.target_pointer, inputs.source
    if inputs.weight is not None:
        total = torch.segment_reduce(inputs.weight, "sum", offsets=pointer)
    grad_mean = torch.empty_like(outputs[0])
    return [*_pointers(inputs), *outputs, grad_out, grad_mass, total, pointer, grad_mean]


class _Rows(NamedTuple):
    """Gradients of nodes and of their products, and room for those of the chunks of hubs."""

    node: Tensor
    product: Tensor
    hub_node: Tensor
    hub_product: Tensor


def _gradient_rows(node: Tensor, product: Tensor | None, by: _Work) -> _Rows:
    product = node.new_empty(0, 0) if product is None else product
    hubs = (value.new_empty(by.slots, value.size(1)) for value in (node, product))
    return _Rows(torch.empty_like(node), torch.empty_like(product), *hubs)


def _add_gradients_of_hubs(by: _Work, rows: _Rows) -> None:
    if by.hubs.size(0) == 0:
        return
    widths = {"node_width": rows.node.size(1), "product_width": rows.product.size(1)}
    block = min(1024, _power_of_two(max(widths.values())))
    tensors = [by.hubs, rows.hub_node, rows.node, rows.hub_product, rows.product]
    _launch_add_hubs((by.hubs.size(0), 2), tensors, **widths, PRODUCT=rows.product.numel() > 0, BLOCK=block)


def _pointers(inputs: EdgeInputs) -> list[Tensor]:
    return [inputs.source if value is None else value for value in inputs[:-1]]


def _sizes(inputs: EdgeInputs) -> tuple[int, int, int, int]:
    return inputs.source.size(1) - 1, inputs.out_dim, inputs.scale.numel(), inputs.bias.numel()


def _options(inputs: EdgeInputs, by: _Work) -> dict[str, int | bool]:
    return _constants(*_sizes(inputs), inputs.target_product is not None, inputs.weight is not None, by.usual)


@lru_cache(maxsize=64)
def _constants(m: int, n: int, K: int, P: int, relative: bool, weighted: bool, usual: int) -> dict[str, int | bool]:
    """Constants the kernels are compiled for: tiles no longer than the usual neighborhood."""
    KP, NP, MP = (_power_of_two(size) for size in (K, n, m))
    edge = KP * max(NP, MP)
    B = max(1, min(TILE // edge, usual))
    sizes = {"m": m, "n": n, "K": K, "P": P, "B": B, "KP": KP, "NP": NP, "MP": MP}
    warps = max(1, min(8, B * edge // TILE_PER_WARP))
    return {"RELATIVE": relative, "WEIGHTED": weighted, **sizes, "num_warps": warps}


def _power_of_two(size: int) -> int:
    """The next power of two; Triton's own takes ten times as long."""
    return 1 << (size - 1).bit_length()


def _programs(by: _Work, options: dict[str, int | bool]) -> int:
    """Number of programs that share the chunks of a backward pass."""
    return min(WARPS // options["num_warps"], by.chunks.size(0))


_launch_assert_inside = Launcher(_assert_inside)
_launch_pack, _launch_unpack = Launcher(_pack), Launcher(_unpack)
_launch_forward, _launch_finish_hubs = Launcher(_forward), Launcher(_finish_hubs)
_launch_backward, _launch_add_hubs = Launcher(_backward), Launcher(_add_hubs)
