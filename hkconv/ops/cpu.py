r"""HKConv on the CPU: Numba kernels that walk over the edges of a group of nodes and keep everything else in cache.

Forward and backward are written out per edge, on the hyperboloid of curvature -1 (:mod:`hkconv.ops.fused` brings other
curvatures there). With :math:`u` a source, :math:`x` a target and the node-wise products
:math:`P_u = W_s u_s`, :math:`P_x = W_s x_s` an edge needs

.. math::
    h_k   &= a (P_u + b) - a c P_x + w_t, \quad a = 1/t', \quad [t', z_s] = u \ominus x = [1 + \delta,\ u_s - c x_s] \\
    \nu_k &= \operatorname{arcosh}(1 + \tfrac{t' p_t}{2} (|a z_s - p_s/p_t|^2 + (a - 1/p_t)^2)) \\
    m     &= \mathrm{HCent}(\{\ell_k h_k/|h_k|\}_k, \nu), \quad \ell_k = \lambda_k \sigma(v_k \cdot z + b'_k).

The direction :math:`h_k` has no scale, so it is taken in units of :math:`t'`, and the excess between :math:`z` and a
kernel point is written in their Klein coordinates; both stay finite and accurate for all points that can be
represented.

Edges are taken in blocks, so that exponentials, logarithms, roots and quotients of all edges and kernel points of a
block are computed together, which is what the processor's vector units need. The kernels release the GIL and run in
plain threads, each on its own targets. Nothing is written by two threads: each has sums of its own for the gradients of
sources, which are then added in order; or, where nodes have too few edges for that to pay, a second walk gathers
them over the edges of each source. The division of the work depends on the graph and the number of threads alone, and
so do all bits of the result.
"""

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor

from hkconv.ops.edges import EdgeGradients, EdgeInputs, Inputs, Packed
from hkconv.ops.elementary import exp, log1p
from hkconv.ops.neighbors import Neighbors

# Sums may be reordered, which SIMD needs. NaN and infinity keep their meaning, and divisions stay divisions.
_MATH = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}
# Kernels are called from Python, parts by kernels: what Numba would add for other callers takes a fifth of compiling.
KERNEL = {**_MATH, "cache": True, "no_cfunc_wrapper": True}
PART = {**_MATH, "forceinline": True, "no_cfunc_wrapper": True, "no_cpython_wrapper": True}

# Edges taken together. Their directions should stay in the first-level cache.
BLOCK = 32

# More chunks than threads even out their loads. Few, because each holds its own sums for the parameters.
CHUNKS = 64

# Sums of its own for every source cost a thread about as much as this many edges a source.
WORTH_A_COPY = 3

# Where the square of a sum's time is so many times its Lorentz square, a difference would lose that much precision.
CANCELS = 32

# A call and handing it to another thread cost about 100 µs, about a hundredth of what so many products of edges take.
WORTH_A_THREAD = 1 << 19


class Group(NamedTuple):
    """Edges sorted by one of their ends: those of node ``i`` are ``pointer[i]`` to ``pointer[i + 1]``.

    ``place`` is where an edge stands in the order by targets, in which weights are kept; empty in that order itself.
    """

    pointer: np.ndarray
    other: np.ndarray
    place: np.ndarray


class Arrays(NamedTuple):
    """:class:`~hkconv.ops.fused.EdgeInputs` as Numba takes them, empty where there is None."""

    source: np.ndarray
    target: np.ndarray
    source_product: np.ndarray
    target_product: np.ndarray
    bias: np.ndarray
    time: np.ndarray
    scale: np.ndarray
    points: np.ndarray
    weight: np.ndarray


class Kernel(NamedTuple):
    """Kernel points in Klein coordinates ``(K, m)``, and their times, repeated for every edge of a block."""

    klein: np.ndarray
    time: np.ndarray


class Block(NamedTuple):
    """What the edges of a block compute on the way.

    ``ends`` are source and target; ``look`` holds δ, c - 1, u_t, u_t - x_t and x_t; all that follows is a row an edge,
    or an entry an edge and kernel point: first what the edge itself needs, then its gradients. ``to_source`` and
    ``to_target`` say what the two ends get of them: of the gradient of z_s, of the end's own coordinates, of the gap
    to the other end, of the gradient of h, of that of the gates.
    """

    ends: np.ndarray
    look: np.ndarray
    klein: np.ndarray
    direction: np.ndarray
    flat_direction: np.ndarray
    unit: np.ndarray
    near: np.ndarray
    square: np.ndarray
    gate: np.ndarray
    share: np.ndarray
    slope: np.ndarray
    opening: np.ndarray
    length: np.ndarray
    level: np.ndarray
    part: np.ndarray
    total: np.ndarray
    message: np.ndarray
    time: np.ndarray
    mass: np.ndarray
    message_grad: np.ndarray
    time_grad: np.ndarray
    dot: np.ndarray
    length_grad: np.ndarray
    gate_grad: np.ndarray
    near_grad: np.ndarray
    feature_grad: np.ndarray
    to_source: np.ndarray
    to_target: np.ndarray


class Given(NamedTuple):
    """The outputs and their gradients, from which a backward pass starts."""

    out: np.ndarray
    mass: np.ndarray
    grad_out: np.ndarray
    grad_mass: np.ndarray


class Sums(NamedTuple):
    """Where gradients go, empty for those that a walk leaves out: rows of nodes, and sums for what all edges share."""

    source: np.ndarray
    source_product: np.ndarray
    target: np.ndarray
    target_product: np.ndarray
    weight: np.ndarray
    time: np.ndarray
    scale: np.ndarray
    points: np.ndarray


@njit(**PART)
def _block(arrays):
    K, m = arrays.points.shape[0], arrays.points.shape[1] - 1
    n = arrays.bias.size // K - 1
    dtype = arrays.source.dtype
    direction = np.empty((BLOCK, K, n), dtype)
    by_kernel = np.empty((13, BLOCK * K), dtype)
    by_edge = np.empty((4, BLOCK), dtype)
    return Block(
        np.empty((2, BLOCK), np.int64),
        np.empty((5, BLOCK), np.float64),
        np.empty((BLOCK, m), dtype),
        direction,
        direction.reshape(BLOCK, K * n),
        by_kernel[0],
        by_kernel[1],
        by_kernel[2],
        by_kernel[3],
        by_kernel[4],
        by_kernel[5],
        by_kernel[6],
        by_kernel[7],
        by_kernel[8],
        by_kernel[9],
        by_edge[0],
        np.empty((BLOCK, n), dtype),
        by_edge[1],
        by_edge[2],
        np.empty((BLOCK, n), dtype),
        by_edge[3],
        by_kernel[10],
        by_kernel[11],
        by_kernel[12],
        np.empty(BLOCK * K, dtype),
        np.empty((BLOCK, m), dtype),
        np.empty((5, BLOCK), np.float64),
        np.empty((5, BLOCK), np.float64),
    )


@njit(**PART)
def _kernel(points):
    K, m = points.shape[0], points.shape[1] - 1
    klein = np.empty((K, m), points.dtype)
    time = np.empty(BLOCK * K, points.dtype)
    for k in range(K):
        exact = _time(points, k)
        for i in range(m):
            klein[k, i] = points[k, 1 + i] / exact
        for b in range(BLOCK):
            time[b * K + k] = exact
    return Kernel(klein, time)


@njit(**PART)
def _time(points, row):
    """The time of a point from its space, in double precision."""
    square = 1.0
    for i in range(1, points.shape[1]):
        square += np.float64(points[row, i]) * np.float64(points[row, i])
    return math.sqrt(square)


@njit(**PART)
def _look(source, u, target, x, block, b):
    """Fill ``klein`` with the Klein coordinates of u ⊖ x, and ``look``: the literal form of geometry.relative.

    In double precision, which costs little here and leaves room for the squares of far points.
    """
    m = block.klein.shape[1]
    square, product, gap, u_square, x_square, facing_u, facing_x = 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0
    for i in range(1, m + 1):
        ui, xi = np.float64(source[u, i]), np.float64(target[x, i])
        d = ui - xi
        square += d * d
        product += ui * xi
        u_square += ui * ui
        x_square += xi * xi
        gap += d * (ui + xi)
        facing_u += ui * d
        facing_x += xi * d
    u_time, x_time = math.sqrt(u_square), math.sqrt(x_square)
    gap /= u_time + x_time
    if square == 0.0:
        delta = 0.0
    elif product > -1.0:
        shorter_is_u = u_time < x_time
        part = (facing_u if shorter_is_u else facing_x) / square
        from_u, from_x = (1.0 - part, part) if shorter_is_u else (-part, 1.0 + part)
        across = 0.0
        for i in range(1, m + 1):
            rest = from_u * np.float64(source[u, i]) + from_x * np.float64(target[x, i])
            across += rest * rest
        delta = square / (1.0 + u_time * x_time + product) * (1.0 + across)
    else:
        delta = u_time * x_time - product - 1.0
    excess = (gap + delta) / (1.0 + x_time)
    unit = 1.0 / (1.0 + delta)
    for i in range(m):
        ui, xi = np.float64(source[u, i + 1]), np.float64(target[x, i + 1])
        block.klein[b, i] = ((ui - xi) - excess * xi) * unit
    block.look[0, b], block.look[1, b], block.look[2, b], block.look[3, b] = delta, excess, u_time, gap
    block.look[4, b] = x_time


# Most functions below see few arrays each: only then does the compiler find out that these do not overlap in a harmful
# way, and use the vector units.


@njit(**PART)
def _reach(arrays, kernel, count, relative, block):
    """For each edge of the block what its two ends give: ``near``, directions, their squares and gates."""
    K = kernel.klein.shape[0]
    for b in range(count):
        _look(arrays.source, block.ends[0, b], arrays.target, block.ends[1, b], block, b)
        unit = 1.0 / (1.0 + block.look[0, b])
        for k in range(K):
            block.unit[b * K + k] = unit
    if relative:
        _relative_directions(
            count, block.ends, block.look, arrays.source_product, arrays.target_product, arrays.bias, arrays.time,
            block.flat_direction, block.gate,
        )  # fmt: skip
    else:
        _own_directions(
            count, block.ends, block.look, arrays.source_product, arrays.bias, block.flat_direction, block.gate
        )
    _squares(count, block.direction, block.square)
    _nears(count, block.klein, kernel.klein, block.near)


@njit(**PART)
def _relative_directions(count, ends, look, source_product, target_product, bias, time, direction, gate):
    length = direction.shape[1]
    K = bias.size - length
    cast = direction.dtype.type
    for b in range(count):
        u, x = ends[0, b], ends[1, b]
        unit, from_target = cast(1.0 / (1.0 + look[0, b])), cast((1.0 + look[1, b]) / (1.0 + look[0, b]))
        for i in range(length):
            direction[b, i] = unit * (source_product[u, i] + bias[i]) - from_target * target_product[x, i] + time[i]
        stretch, reach = cast(1.0 + look[1, b]), cast(1.0 + look[0, b])
        for k in range(K):
            i = length + k
            gate[b * K + k] = source_product[u, i] + bias[i] + (reach * time[i] - stretch * target_product[x, i])


@njit(**PART)
def _own_directions(count, ends, look, source_product, bias, direction, gate):
    length = direction.shape[1]
    K = bias.size - length
    for b in range(count):
        u = ends[0, b]
        inverse = direction.dtype.type(1.0 / look[2, b])
        for i in range(length):
            direction[b, i] = inverse * (source_product[u, i] + bias[i])
        for k in range(K):
            gate[b * K + k] = source_product[u, length + k] + bias[length + k]


@njit(**PART)
def _squares(count, direction, square):
    _, K, n = direction.shape
    for b in range(count):
        for k in range(K):
            total = direction.dtype.type(0)
            for j in range(n):
                total += direction[b, k, j] * direction[b, k, j]
            square[b * K + k] = total


@njit(**PART)
def _nears(count, klein, points, near):
    K, m = points.shape
    for b in range(count):
        for k in range(K):
            total = klein.dtype.type(0)
            for i in range(m):
                gap = klein[b, i] - points[k, i]
                total += gap * gap
            near[b * K + k] = total


@njit(**PART)
def _evaluate(scales, kernel, count, block):
    """For all edges and kernel points of a block at once: distances ν, lengths ℓ, their times, and ℓ/|h|."""
    cast = block.near.dtype.type
    zero, one, half, two = cast(0), cast(1), cast(0.5), cast(2)
    for i in range(count):
        time, unit = kernel.time[i], block.unit[i]
        gap = unit - one / time
        delta = (block.near[i] + gap * gap) * (half * time / unit)
        root = math.sqrt(delta) * math.sqrt(delta + two)
        block.share[i] = log1p(delta + root)
        block.slope[i] = time / root if root > zero else zero
        opening = one / (one + exp(-block.gate[i]))
        norm = math.sqrt(block.square[i])
        length = scales[i] * opening if norm > zero else zero
        block.opening[i] = opening
        block.length[i] = length
        block.level[i] = math.sqrt(one + length * length)
        block.part[i] = length / norm if norm > zero else zero


@njit(**PART)
def _average(count, block):
    """Messages, their times and masses: the centroids over the kernel points."""
    K = block.direction.shape[1]
    cast = block.near.dtype.type
    zero, one = cast(0), cast(1)
    for b in range(count):
        total = zero
        for k in range(K):
            total += block.share[b * K + k]
        block.total[b] = total
        time = zero
        for k in range(K):
            share = block.share[b * K + k] / total if total > zero else one / cast(K)
            block.share[b * K + k] = share
            time += share * block.level[b * K + k]
        block.time[b] = time
    _sum_directions(count, block.share, block.part, block.direction, block.message)
    _normalize(count, block)


@njit(**PART)
def _sum_directions(count, shares, parts, direction, message):
    _, K, n = direction.shape
    for b in range(count):
        for j in range(n):
            message[b, j] = 0
        for k in range(K):
            part = shares[b * K + k] * parts[b * K + k]
            for j in range(n):
                message[b, j] += part * direction[b, k, j]


@njit(**PART)
def _normalize(count, block):
    """Divide sums by their Lorentz norms, which become the masses."""
    message, times = block.message, block.time
    cast = message.dtype.type
    one = cast(1)
    for b in range(count):
        square = cast(0)
        for j in range(message.shape[1]):
            square += message[b, j] * message[b, j]
        mass_square = times[b] * times[b] - square
        if cast(CANCELS) * mass_square < times[b] * times[b]:
            mass_square = _square_of_far_sum(b, block)
        mass = math.sqrt(mass_square)
        inverse = one / mass
        for j in range(message.shape[1]):
            message[b, j] *= inverse
        block.mass[b] = mass
        times[b] = math.sqrt(one + square * inverse * inverse)


@njit(**PART)
def _square_of_far_sum(b, block):
    r"""-<s, s> of s = Σ_k ν_k x_k as a sum of non-negative terms, for points far out that lie close together.

    With lengths l_k = |x_k,s|, unit directions d_k, f = Σ ν_k l_k, r = Σ ν_k (t_k - l_k) = Σ ν_k / (t_k + l_k) and the
    mean direction d = Σ ν_k l_k d_k / f, it is r (2f + r) + f Σ_k ν_k l_k |d_k - d|².
    """
    _, K, n = block.direction.shape
    cast = block.message.dtype.type
    far, rest, spread = cast(0), cast(0), cast(0)
    for k in range(b * K, b * K + K):
        far += block.share[k] * block.length[k]
        rest += block.share[k] / (block.level[k] + block.length[k])
    to_mean = cast(1) / far if far > cast(0) else cast(0)
    for k in range(K):
        length = block.length[b * K + k]
        to_unit = block.part[b * K + k] / length if length > cast(0) else cast(0)
        square = cast(0)
        for j in range(n):
            gap = to_unit * block.direction[b, k, j] - to_mean * block.message[b, j]
            square += gap * gap
        spread += block.share[b * K + k] * length * square
    return rest * (far + far + rest) + far * spread


@njit(**PART)
def _forward_block(arrays, scales, kernel, count, relative, block):
    _reach(arrays, kernel, count, relative, block)
    _evaluate(scales, kernel, count * kernel.klein.shape[0], block)
    _average(count, block)


@njit(**PART)
def _repeated(scale):
    K = scale.size
    scales = np.empty(BLOCK * K, scale.dtype)
    for i in range(scales.size):
        scales[i] = scale[i % K]
    return scales


@njit(**PART)
def _total_weight(weight, group, node):
    first, last = group.pointer[node], group.pointer[node + 1]
    total = float(last - first)
    if weight.size:
        total = 0.0
        for e in range(first, last):
            total += weight[e]
    return total


@njit(**PART)
def _fill(group, node, start, count, own, ends):
    """Both ends of the edges ``start`` to ``start + count``; a block may hold the edges of several nodes."""
    for b in range(count):
        while start + b >= group.pointer[node + 1]:
            node += 1
        ends[own, b], ends[1 - own, b] = node, group.other[start + b]
    return node


@njit(**KERNEL)
def forward(first, last, by_target, arrays, relative, out, mass):
    """Aggregate at the targets ``first`` to ``last``: points, time first, and the masses for unit total weight."""
    kernel, scales, block = _kernel(arrays.points), _repeated(arrays.scale), _block(arrays)
    n = out.shape[1] - 1
    sums = np.zeros((last - first, n + 3), np.float64)
    node, end = first, by_target.pointer[last]
    for start in range(by_target.pointer[first], end, BLOCK):
        count = min(BLOCK, end - start)
        node = _fill(by_target, node, start, count, 1, block.ends)
        _forward_block(arrays, scales, kernel, count, relative, block)
        for b in range(count):
            weight = arrays.weight[start + b] if arrays.weight.size else 1.0
            block.to_target[0, b] = weight
        _add_messages(sums, count, first, block.ends, block.to_target, block.message)
    for x in range(first, last):
        _project(x, sums[x - first], _total_weight(arrays.weight, by_target, x), out, mass)


@njit(**PART)
def _add_messages(sums, count, first, ends, factor, message):
    for b in range(count):
        _join(sums[ends[1, b] - first], np.float64(factor[0, b]), message[b])


@njit(**PART)
def _join(total, weight, space):
    """Let a weighted point join others, in the terms of :func:`_square_of_far_sum`: f, r, the spread, and the sum.

    The spread grows by f g/(f + g) |d - d'|² where a point of weighted length g and direction d' joins others.
    """
    square = 0.0
    for j in range(space.size):
        square += np.float64(space[j]) * np.float64(space[j])
    length = math.sqrt(square)
    far, more = total[0], weight * length
    if far > 0.0 and more > 0.0:
        to_mean, to_unit, away = 1.0 / far, 1.0 / length, 0.0
        for j in range(space.size):
            gap = to_unit * space[j] - to_mean * total[3 + j]
            away += gap * gap
        total[2] += far / (far + more) * more * away
    total[0] += more
    total[1] += weight / (math.sqrt(1.0 + square) + length)
    for j in range(space.size):
        total[3 + j] += weight * space[j]


@njit(**PART)
def _project(x, total, weight, out, mass):
    """The centroid out of the sum of weighted points; the origin, with unit mass, out of none."""
    far, rest, spread = total[0], total[1], total[2]
    norm = math.sqrt(rest * (far + far + rest) + far * spread) if weight > 0.0 else 1.0
    mass[x] = norm / weight if weight > 0.0 else 1.0
    square = 0.0
    for j in range(1, out.shape[1]):
        value = total[2 + j] / norm
        out[x, j] = value
        square += value * value
    out[x, 0] = math.sqrt(1.0 + square)


@njit(**PART)
def _spread(first, last, by_target, weight, given, grad_mean, grad_weight):
    """From gradients of the aggregated points to those of their weighted means, one row a target, time first.

    With mean = mass · out and out = mean/mass, mass² = mean_t² - |mean_s|²; each divided by the sum of the weights.
    ``grad_weight`` gets what does not depend on the edge: the part of the normalisation.
    """
    out, mass, grad_out, grad_mass = given.out, given.mass, given.grad_out, given.grad_mass
    n = out.shape[1] - 1
    for x in range(first, last):
        total = _total_weight(weight, by_target, x)
        scale = 1.0 / total if total > 0.0 else 0.0
        time = np.float64(out[x, 0])
        by_time = grad_out[x, 0] / time
        along = 0.0
        for j in range(1, n + 1):
            along += out[x, j] * (grad_out[x, j] + by_time * out[x, j])
        by_mass = grad_mass[x] - along / mass[x]
        grad_mean[x, 0] = scale * by_mass * time
        for j in range(1, n + 1):
            grad_mean[x, j] = scale * ((grad_out[x, j] + by_time * out[x, j]) / mass[x] - by_mass * out[x, j])
        if weight.size:
            level = -scale * (by_mass * mass[x] + along)
            for e in range(by_target.pointer[x], by_target.pointer[x + 1]):
                grad_weight[e] = level


@njit(**PART)
def _pull(arrays, group, by_source, start, count, grad_mean, block):
    """Gradients of the messages' sums, and their products with the directions; ``time`` becomes the slope by weight."""
    _, K, n = block.direction.shape
    cast = block.near.dtype.type
    for b in range(count):
        x = block.ends[1, b]
        weight = cast(1)
        if arrays.weight.size:
            weight = arrays.weight[group.place[start + b] if by_source else start + b]
        along = grad_mean[x, 0] * block.time[b]
        for j in range(n):
            along += grad_mean[x, 1 + j] * block.message[b, j]
        factor = weight / block.mass[b]
        for j in range(n):
            block.message_grad[b, j] = factor * (grad_mean[x, 1 + j] + along * block.message[b, j])
        block.time_grad[b] = factor * (grad_mean[x, 0] - along * block.time[b])
        block.time[b] = along
        for k in range(K):
            dot = cast(0)
            for j in range(n):
                dot += block.message_grad[b, j] * block.direction[b, k, j]
            block.dot[b * K + k] = dot
            block.unit[b * K + k] = block.time_grad[b]


@njit(**PART)
def _differentiate(count, block):
    """For all edges and kernel points of a block at once: gradients of lengths and gates; ``near_grad`` of shares.

    Afterwards ``part`` and ``near`` are the coefficients of message_grad and of -h in the gradient of h.
    """
    zero, one = block.near.dtype.type(0), block.near.dtype.type(1)
    dots, squares, time_grads, levels = block.dot, block.square, block.unit, block.level
    lengths, shares, openings, parts = block.length, block.share, block.opening, block.part
    for i in range(count):
        square = squares[i] if squares[i] > zero else one  # h = 0 has length 0, and its gradient vanishes
        slope = dots[i] / math.sqrt(square)
        block.near_grad[i] = time_grads[i] * levels[i] + lengths[i] * slope
        slope = shares[i] * (slope + time_grads[i] * lengths[i] / levels[i])
        block.length_grad[i] = slope if squares[i] > zero else zero
        block.gate_grad[i] = slope * lengths[i] * (one - openings[i])
        part = shares[i] * parts[i]
        parts[i] = part
        block.near[i] = part * dots[i] / square


@njit(**PART)
def _to_features(count, points, klein, share, slope, total, near_grad, feature_grad):
    """From gradients of the shares to those of the excesses to the kernel points, times p_t, and to those of z_s."""
    K, m = points.shape
    zero = klein.dtype.type(0)
    for b in range(count):
        mean = zero
        for k in range(K):
            mean += share[b * K + k] * near_grad[b * K + k]
        for i in range(m):
            feature_grad[b, i] = zero
        for k in range(K):
            near = (near_grad[b * K + k] - mean) / total[b] * slope[b * K + k] if total[b] > zero else zero
            near_grad[b * K + k] = near
            for i in range(m):
                feature_grad[b, i] += near * (klein[b, i] - points[k, i])


@njit(**PART)
def _to_directions(count, parts, backs, message_grad, direction):
    """Put the gradients of the directions into their place."""
    _, K, n = direction.shape
    for b in range(count):
        for k in range(K):
            part, back = parts[b * K + k], backs[b * K + k]
            for j in range(n):
                direction[b, k, j] = part * message_grad[b, j] - back * direction[b, k, j]


@njit(**PART)
def _dot_rows(a, i, b, j, length):
    total = a.dtype.type(0)
    for place in range(length):
        total += a[i, place] * b[j, place]
    return total


@njit(**PART)
def _dot_row(a, i, b, length):
    total = a.dtype.type(0)
    for place in range(length):
        total += a[i, place] * b[place]
    return total


@njit(**PART)
def _factors(arrays, count, relative, block):
    """How an edge's gradients of z_s, h and its gates act on its two ends: see ``to_source`` in Block.

    ∂/∂u_s of δ is D - (u_t - x_t) u_s/u_t, of u_t it is u_s/u_t: written so that nothing large cancels.
    """
    _, K, n = block.direction.shape
    to_source, to_target = block.to_source, block.to_target
    for b in range(count):
        x = block.ends[1, b]
        by_excess, by_reach = 0.0, 0.0
        for i in range(block.feature_grad.shape[1]):
            by_excess -= block.feature_grad[b, i] * arrays.target[x, 1 + i]
        delta, excess, u_time, gap = block.look[0, b], block.look[1, b], block.look[2, b], block.look[3, b]
        x_time, stretch = block.look[4, b], 1.0 + excess
        unit = 1.0 / (1.0 + delta)
        if relative:
            by_excess -= unit * _dot_rows(block.flat_direction, b, arrays.target_product, x, K * n)
            by_reach += unit * _dot_row(block.flat_direction, b, arrays.time, K * n)
            for k in range(K):
                by_excess -= block.gate_grad[b * K + k] * arrays.target_product[x, K * n + k]
                by_reach += block.gate_grad[b * K + k] * arrays.time[K * n + k]
        by_gap = by_excess / (1.0 + x_time)
        by_delta = by_reach + by_gap
        to_source[0, b], to_source[1, b], to_source[2, b] = 1.0, (by_gap - by_delta * gap) / u_time, by_delta
        to_source[3, b], to_source[4, b] = unit if relative else 1.0 / u_time, 1.0
        radial = (by_delta * gap - by_gap - by_gap * excess) / x_time
        to_target[0, b], to_target[1, b], to_target[2, b] = -stretch, radial, by_delta
        to_target[3, b], to_target[4, b] = -stretch * unit, -stretch


@njit(**PART)
def _add_points(total, count, own, nodes, other, ends, feature_grad, factor):
    """Add an edge's gradient to the space of its node: of its own coordinates, and of the gap to the other end."""
    for b in range(count):
        along_feature, along_own, along_gap = factor[0, b], factor[1, b], factor[2, b]
        node, end = nodes[b], ends[b]
        for i in range(feature_grad.shape[1]):
            here, there = np.float64(own[node, 1 + i]), np.float64(other[end, 1 + i])
            total[node, 1 + i] += along_feature * feature_grad[b, i] + along_own * here + along_gap * (here - there)


@njit(**PART)
def _add_products(total, count, nodes, direction_grad, gate_grad, factor):
    length = direction_grad.shape[1]
    K = total.shape[1] - length
    for b in range(count):
        node, along = nodes[b], total.dtype.type(factor[3, b])
        for i in range(length):
            total[node, i] += along * direction_grad[b, i]
        for k in range(K):
            total[node, length + k] += factor[4, b] * gate_grad[b * K + k]


@njit(**PART)
def _add_times(total, count, direction_grad, gate_grad, delta):
    length = direction_grad.shape[1]
    K = total.size - length
    for b in range(count):
        for i in range(length):
            total[i] += direction_grad[b, i]
        for k in range(K):
            total[length + k] += (1.0 + delta[b]) * gate_grad[b * K + k]


@njit(**PART)
def _add_scales(total, count, length_grad, opening):
    K = total.size
    for b in range(count):
        for k in range(K):
            total[k] += length_grad[b * K + k] * opening[b * K + k]


@njit(**PART)
def _add_kernel_points(total, count, near_grad, delta, kernel, klein):
    K, m = kernel.klein.shape
    for b in range(count):
        for k in range(K):
            factor = near_grad[b * K + k] * (1.0 + delta[b]) / kernel.time[k]
            for i in range(m):
                total[k, 1 + i] -= factor * (klein[b, i] - kernel.klein[k, i])


@njit(**PART)
def _add_shared(sums, count, relative, kernel, block):
    _add_scales(sums.scale, count, block.length_grad, block.opening)
    if relative:
        _add_times(sums.time, count, block.flat_direction, block.gate_grad, block.look[0])
    if sums.points.size:
        _add_kernel_points(sums.points, count, block.near_grad, block.look[0], kernel, block.klein)


@njit(**KERNEL)
def backward(first, last, group, by_source, arrays, relative, given, grad_mean, sums):
    """Gradients that come from the edges of the nodes ``first`` to ``last`` of one order of the edges.

    By target, which comes first, also those of the means, of the edges' weights and of what all edges share.
    """
    if not by_source:
        _spread(first, last, group, arrays.weight, given, grad_mean, sums.weight)
    kernel, scales, block = _kernel(arrays.points), _repeated(arrays.scale), _block(arrays)
    K = kernel.klein.shape[0]
    sources, targets = block.ends[0], block.ends[1]
    node, end = first, group.pointer[last]
    for start in range(group.pointer[first], end, BLOCK):
        count = min(BLOCK, end - start)
        node = _fill(group, node, start, count, 0 if by_source else 1, block.ends)
        _forward_block(arrays, scales, kernel, count, relative, block)
        _pull(arrays, group, by_source, start, count, grad_mean, block)
        _differentiate(count * K, block)
        _to_features(
            count, kernel.klein, block.klein, block.share, block.slope, block.total, block.near_grad, block.feature_grad
        )
        _to_directions(count, block.part, block.near, block.message_grad, block.direction)
        _factors(arrays, count, relative, block)
        if sums.source.size:
            _add_points(
                sums.source, count, arrays.source, sources, arrays.target, targets, block.feature_grad, block.to_source
            )
            _add_products(sums.source_product, count, sources, block.flat_direction, block.gate_grad, block.to_source)
        if not by_source:
            _add_points(
                sums.target, count, arrays.target, targets, arrays.source, sources, block.feature_grad, block.to_target
            )
            if relative:
                _add_products(
                    sums.target_product, count, targets, block.flat_direction, block.gate_grad, block.to_target
                )
            _add_shared(sums, count, relative, kernel, block)
            if arrays.weight.size:
                for b in range(count):
                    sums.weight[start + b] += block.time[b]


def pack(inputs: Inputs) -> Packed:
    """HLinear's parameters side by side."""
    K, n, _ = inputs.weight.shape
    bias = inputs.weight.new_zeros(K * n) if inputs.bias is None else inputs.bias.flatten()
    gate_bias = inputs.weight.new_zeros(K) if inputs.gate_bias is None else inputs.gate_bias
    weight = torch.cat([inputs.weight.flatten(0, 1), inputs.gate_weight])
    return Packed(weight, torch.cat([bias, gate_bias]), weight[:, 0].contiguous(), inputs.log_scale.exp())


def unpack(
    inputs: Inputs, packed: Packed, found: EdgeGradients, by_weight: Tensor, relative: bool
) -> dict[str, Tensor]:
    """Gradients of HLinear's parameters; ``by_weight`` lacks that of time if relative."""
    K, n, coordinates = inputs.weight.shape
    if relative:
        by_weight = torch.cat([found.time.unsqueeze(1), by_weight], dim=1)
    return {
        "weight": by_weight[: K * n].reshape(K, n, coordinates),
        "bias": found.bias[: K * n].reshape(K, n),
        "gate_weight": by_weight[K * n :].clone(),
        "gate_bias": found.bias[K * n :].clone(),
        "log_scale": found.scale * packed.scale,
    }


def aggregate(inputs: EdgeInputs, neighbors: Neighbors) -> tuple[Tensor, Tensor]:
    """Aggregated points (T, n+1) and their masses for unit total weight (T,)."""
    arrays, by_target, _ = _arrays(inputs, neighbors)
    out = inputs.target.new_empty(inputs.target.size(0), inputs.out_dim + 1)
    mass = inputs.target.new_empty(inputs.target.size(0))
    results = out.numpy(), mass.numpy()

    def walk(first: int, last: int) -> None:
        forward(first, last, by_target, arrays, inputs.relative, *results)

    in_chunks(by_target, arrays.bias.size, walk)
    return out, mass


def gradients(
    inputs: EdgeInputs,
    neighbors: Neighbors,
    outputs: tuple[Tensor, Tensor],
    grads: tuple[Tensor, Tensor | None],
    points_too: bool,
) -> EdgeGradients:
    """Gradients of :func:`aggregate`, given its outputs and theirs."""
    arrays, by_target, by_source = _arrays(inputs, neighbors)
    grad_out, grad_mass = grads
    grad_mass = torch.zeros_like(outputs[1]) if grad_mass is None else grad_mass
    given = Given(*(tensor.detach().contiguous().numpy() for tensor in (*outputs, grad_out, grad_mass)))
    grad_mean = np.empty(given.out.shape, arrays.source.dtype)
    chunks = _chunks(by_target, arrays.bias.size)
    threads = _threads_for(chunks)
    in_one_walk = threads == 1 or threads * WORTH_A_COPY * arrays.source.shape[0] <= by_target.other.size
    to_sources = [_sums_like(arrays.source, arrays.source_product) for _ in range(threads if in_one_walk else 1)]
    to_target = (*_sums_like(arrays.target, arrays.target_product), np.zeros_like(arrays.weight))
    shared = _shared_sums(arrays, len(chunks), points_too)

    def walk_targets(part: int) -> None:
        to_source = to_sources[part] if in_one_walk else _nothing(arrays)
        for chunk in range(part, len(chunks), threads):
            sums = Sums(*to_source, *to_target, *(of_chunks[chunk] for of_chunks in shared))
            backward(*chunks[chunk], by_target, False, arrays, inputs.relative, given, grad_mean, sums)

    def walk_sources(first: int, last: int) -> None:
        sums = Sums(*to_sources[0], *_nothing(arrays), shared[0][0, :0], *(of_chunks[0] for of_chunks in shared))
        backward(first, last, by_source, True, arrays, inputs.relative, given, grad_mean, sums)

    _in_threads(threads, walk_targets, [(part,) for part in range(threads)])
    if not in_one_walk:
        in_chunks(by_source, arrays.bias.size, walk_sources)
    source, source_product = (_added(copies) for copies in zip(*to_sources))
    target, target_product, weight = to_target
    time, scale, points = (of_chunks.sum(0) for of_chunks in shared)
    bias = source_product.sum(0)
    found = source, target, source_product, target_product, bias, time, scale, points, weight
    return EdgeGradients(*(torch.from_numpy(array) for array in found))


def _arrays(inputs: EdgeInputs, neighbors: Neighbors) -> tuple[Arrays, Group, Group]:
    dtype = inputs.source.numpy().dtype
    tensors: list[Tensor | None] = [getattr(inputs, name) for name in Arrays._fields]
    absent = {"target_product": np.empty((0, 0), dtype), "weight": np.empty(0, dtype)}
    arrays = Arrays(
        *(absent[name] if value is None else value.contiguous().numpy() for name, value in zip(Arrays._fields, tensors))
    )
    by_target = Group(neighbors.target_pointer.numpy(), neighbors.source.numpy(), np.empty(0, np.int32))
    by_source = Group(neighbors.source_pointer.numpy(), neighbors.target_by_source.numpy(), neighbors.by_source.numpy())
    return arrays, by_target, by_source


def _sums_like(points: np.ndarray, product: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros_like(points), np.zeros_like(product)


def _nothing(arrays: Arrays) -> tuple[np.ndarray, np.ndarray]:
    return arrays.source[:0], arrays.source_product[:0]


def _shared_sums(arrays: Arrays, chunks: int, points_too: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A row for each chunk: gradients of time, scale and points."""
    dtype = arrays.source.dtype
    points = arrays.points.shape if points_too else (0, 0)
    return (
        np.zeros((chunks, arrays.time.size), dtype),
        np.zeros((chunks, arrays.scale.size), dtype),
        np.zeros((chunks, *points), dtype),
    )


def _added(copies: Sequence[np.ndarray]) -> np.ndarray:
    total = copies[0]
    for copy in copies[1:]:
        total += copy
    return total


def in_chunks(group: Group, work_an_edge: int, walk: Callable[[int, int], None]) -> None:
    """Call ``walk(first, last)`` for chunks of nodes with about equally many edges, in torch's threads."""
    chunks = _chunks(group, work_an_edge)
    _in_threads(_threads_for(chunks), walk, chunks)


def _chunks(group: Group, work_an_edge: int) -> list[tuple[int, int]]:
    """First and last nodes of chunks that depend on the graph alone, at least one."""
    nodes, edges = group.pointer.size - 1, group.other.size
    # A power of two, which is shared out evenly among the usual numbers of threads.
    count = min(CHUNKS, 1 << max(0, (edges * work_an_edge // WORTH_A_THREAD).bit_length() - 1))
    levels = np.arange(1, count) * (edges + nodes) // count
    bounds = [0, *np.searchsorted(group.pointer[1:] + np.arange(1, nodes + 1), levels).tolist(), nodes]
    return [(first, last) for first, last in pairwise(bounds) if first < last] or [(0, nodes)]


def _threads_for(chunks: list) -> int:
    return min(torch.get_num_threads(), len(chunks))


def _in_threads(threads: int, do: Callable[..., None], tasks: list[tuple]) -> None:
    if threads == 1:
        for task in tasks:
            do(*task)
    else:
        # Consumed, so that an error in a thread is raised here.
        list(_pool(os.getpid(), threads).map(lambda task: do(*task), tasks))


@lru_cache(maxsize=1)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Worker threads of this process: a fork has none of its parent's."""
    return ThreadPoolExecutor(threads, thread_name_prefix="hkconv")
