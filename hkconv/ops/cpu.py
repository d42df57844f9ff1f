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
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.ops import compiling
from hkconv.ops.compiling import njit
from hkconv.ops.elementary import exp, log1p
from hkconv.ops.fused import EdgeGradients, EdgeInputs, Inputs
from hkconv.ops.neighbors import Neighbors

# Sums may be reordered, which SIMD needs. NaN and infinity keep their meaning, and divisions stay divisions.
_MATH = {"fastmath": {"reassoc", "contract", "nsz"}}
KERNEL, PART = {**compiling.KERNEL, **_MATH}, {**compiling.PART, **_MATH}

# Edges taken together. Their directions should stay in the first-level cache.
BLOCK = 32

# More chunks than threads even out their loads. Few, because each holds its own sums for the parameters.
CHUNKS = 64

# Sums of its own for every source cost a thread about as much as this many edges a source.
WORTH_A_COPY = 3

# Ratio of the square of a sum's time to its Lorentz square from which on a difference would lose that much precision.
CANCELS = 32

# A call and handing it to another thread cost about 100 µs, about a hundredth of what so many products of edges take.
WORTH_A_THREAD = 1 << 19


class EdgeOrder(NamedTuple):
    """Edges sorted by one of their ends: those of node ``i`` are ``pointer[i]`` to ``pointer[i + 1]``.

    ``position`` is that of an edge in the order by target, in which weights are kept; empty in that order itself.
    """

    pointer: np.ndarray
    other: np.ndarray
    position: np.ndarray


class KernelPoints(NamedTuple):
    """Kernel points in Klein coordinates ``(K, m)``, and their times, repeated for every edge of a block."""

    klein: np.ndarray
    time: np.ndarray


class Boost(NamedTuple):
    """Relative features u ⊖ x of edges: δ, c - 1, u_t, x_t and u_t - x_t in double precision, and Klein coordinates."""

    delta: np.ndarray
    c_minus_1: np.ndarray
    source_time: np.ndarray
    target_time: np.ndarray
    time_gap: np.ndarray
    klein: np.ndarray


class Maps(NamedTuple):
    """HLinear of edges and kernel points: h, |h|², the gates before and after the sigmoid, ℓ, sqrt(1 + ℓ²) and ℓ/|h|.

    A backward pass puts the gradient of h in its place at last, for two such arrays do not fit into the first-level
    cache.
    """

    direction: np.ndarray
    flat_direction: np.ndarray
    square: np.ndarray
    gate: np.ndarray
    opening: np.ndarray
    length: np.ndarray
    time: np.ndarray
    ratio: np.ndarray


class Correlation(NamedTuple):
    """From edges to kernel points: 1/t', squared Klein distances, shares of ν, p_t/sinh ν, and the sums of ν."""

    inverse_time: np.ndarray
    square: np.ndarray
    share: np.ndarray
    slope: np.ndarray
    total: np.ndarray


class Message(NamedTuple):
    """Centroids over the kernel points: their space, time and mass."""

    space: np.ndarray
    time: np.ndarray
    mass: np.ndarray


class BlockGradients(NamedTuple):
    """Gradients along the edges of a block.

    Args:
        weight, message, time: of the edge's weight, and of its message before the division by the mass.
        map_time: ``time``, repeated for every kernel point.
        dot: products of ``message`` with h.
        share, excess: of the shares, and of the excesses to the kernel points, times p_t.
        length, gate: of ℓ and of the gate before the sigmoid.
        along_message, along_direction: coefficients of ``message`` and of -h in the gradient of h.
        feature: of z_s.
        to_source, to_target: parts that the two ends get: of ``feature``, of the end's own coordinates, of the gap to
            the other end, of the gradient of h, of that of the gates.
    """

    weight: np.ndarray
    message: np.ndarray
    time: np.ndarray
    map_time: np.ndarray
    dot: np.ndarray
    share: np.ndarray
    excess: np.ndarray
    length: np.ndarray
    gate: np.ndarray
    along_message: np.ndarray
    along_direction: np.ndarray
    feature: np.ndarray
    to_source: np.ndarray
    to_target: np.ndarray


class Block(NamedTuple):
    """Room for a block of edges, a row an edge or an entry an edge and kernel point; ``ends``: source and target."""

    ends: np.ndarray
    boost: Boost
    maps: Maps
    correlation: Correlation
    message: Message
    grad: BlockGradients


class Given(NamedTuple):
    """The outputs and their gradients, from which a backward pass starts."""

    out: np.ndarray
    mass: np.ndarray
    grad_out: np.ndarray
    grad_mass: np.ndarray


class Sums(NamedTuple):
    """Gradients of nodes, and of all that edges share; empty for those that a walk leaves out."""

    source: np.ndarray
    source_product: np.ndarray
    target: np.ndarray
    target_product: np.ndarray
    weight: np.ndarray
    time: np.ndarray
    scale: np.ndarray
    points: np.ndarray


@njit(**PART)
def new_boost(edges, points):
    rows = np.empty((5, edges), np.float64)
    klein = np.empty((edges, points.shape[1] - 1), points.dtype)
    return Boost(rows[0], rows[1], rows[2], rows[3], rows[4], klein)


@njit(**PART)
def _new_block(inputs):
    K, m = inputs.points.shape[0], inputs.points.shape[1] - 1
    n = inputs.bias.size // K - 1
    dtype = inputs.source.dtype
    direction, flat = np.empty((BLOCK, K, n), dtype), BLOCK * K
    a, g = np.empty((10, flat), dtype), np.empty((8, flat), dtype)
    e = np.empty((5, BLOCK), dtype)
    ends = np.empty((2, 5, BLOCK), np.float64)
    return Block(
        np.empty((2, BLOCK), np.int64),
        new_boost(BLOCK, inputs.points),
        Maps(direction, direction.reshape(BLOCK, K * n), a[0], a[1], a[2], a[3], a[4], a[5]),
        Correlation(a[6], a[7], a[8], a[9], e[0]),
        Message(np.empty((BLOCK, n), dtype), e[1], e[2]),
        BlockGradients(
            e[3], np.empty((BLOCK, n), dtype), e[4], g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7],
            np.empty((BLOCK, m), dtype), ends[0], ends[1],
        ),
    )  # fmt: skip


@njit(**PART)
def _kernel_points(points):
    K, m = points.shape[0], points.shape[1] - 1
    klein = np.empty((K, m), points.dtype)
    time = np.empty(BLOCK * K, points.dtype)
    for k in range(K):
        exact = _time(points, k)
        for i in range(m):
            klein[k, i] = points[k, 1 + i] / exact
        for b in range(BLOCK):
            time[b * K + k] = exact
    return KernelPoints(klein, time)


@njit(**PART)
def _time(points, row):
    """The time of a point from its space, in double precision."""
    square = 1.0
    for i in range(1, points.shape[1]):
        square += np.float64(points[row, i]) * np.float64(points[row, i])
    return math.sqrt(square)


@njit(**PART)
def relate(source, u, target, x, boost, b):
    """Fill row ``b`` with u ⊖ x, in the literal form of geometry.relative.

    In double precision, which costs little here and leaves room for the squares of far points.
    """
    m = boost.klein.shape[1]
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
    c_minus_1 = (gap + delta) / (1.0 + x_time)
    inverse_time = 1.0 / (1.0 + delta)
    for i in range(m):
        ui, xi = np.float64(source[u, i + 1]), np.float64(target[x, i + 1])
        boost.klein[b, i] = ((ui - xi) - c_minus_1 * xi) * inverse_time
    boost.delta[b], boost.c_minus_1[b] = delta, c_minus_1
    boost.source_time[b], boost.target_time[b], boost.time_gap[b] = u_time, x_time, gap


# Most functions below see few arrays each: only then does the compiler find out that these do not overlap in a harmful
# way, and use the vector units.


@njit(**PART)
def _read_ends(inputs, points, count, relative, block):
    """Fill ``boost``, directions with their squares, gates, and squared Klein distances to the kernel points."""
    K = points.klein.shape[0]
    maps, correlation = block.maps, block.correlation
    for b in range(count):
        relate(inputs.source, block.ends[0, b], inputs.target, block.ends[1, b], block.boost, b)
        inverse_time = 1.0 / (1.0 + block.boost.delta[b])
        for k in range(K):
            correlation.inverse_time[b * K + k] = inverse_time
    if relative:
        _relative_directions(count, block.ends, block.boost, inputs, maps.flat_direction, maps.gate)
    else:
        _own_directions(count, block.ends, block.boost.source_time, inputs, maps.flat_direction, maps.gate)
    _squares(count, maps.direction, maps.square)
    _klein_squares(count, block.boost.klein, points.klein, correlation.square)


@njit(**{**PART, "fastmath": {"contract", "nsz"}})  # differences are taken before sums, in which they would be lost
def _relative_directions(count, ends, boost, inputs, direction, gate):
    r"""h_k and the gates, by P_u - c P_x = (P_u - q P_x) - (c - q) P_x, where q = 1 if that is nearer to c than 0.

    Far out P_u and P_x are large and, for neighbors, nearly equal. Those of x itself are equal: x ⊖ x = o.
    """
    source_product, target_product, bias, time = (
        inputs.source_product,
        inputs.target_product,
        inputs.bias,
        inputs.time,
    )
    delta, c_minus_1 = boost.delta, boost.c_minus_1
    length = direction.shape[1]
    K = bias.size - length
    cast = direction.dtype.type
    for b in range(count):
        u, x = ends[0, b], ends[1, b]
        if delta[b] == 0.0:
            for i in range(length):
                direction[b, i] = bias[i] + time[i]
            for k in range(K):
                gate[b * K + k] = bias[length + k] + time[length + k]
            continue
        held = 1.0 if c_minus_1[b] > -0.5 else 0.0
        rest = 1.0 + c_minus_1[b] - held
        unit, reach = 1.0 / (1.0 + delta[b]), cast(1.0 + delta[b])
        q, c, a, ac = cast(held), cast(rest), cast(unit), cast(rest * unit)
        for i in range(length):
            gap = source_product[u, i] - q * target_product[x, i]
            direction[b, i] = a * (gap + bias[i]) + (time[i] - ac * target_product[x, i])
        for k in range(K):
            i = length + k
            gap = source_product[u, i] - q * target_product[x, i]
            gate[b * K + k] = (gap + bias[i]) + (reach * time[i] - c * target_product[x, i])


@njit(**PART)
def _own_directions(count, ends, source_time, inputs, direction, gate):
    source_product, bias = inputs.source_product, inputs.bias
    length = direction.shape[1]
    K = bias.size - length
    for b in range(count):
        u = ends[0, b]
        inverse = direction.dtype.type(1.0 / source_time[b])
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
def _klein_squares(count, klein, points, square):
    K, m = points.shape
    for b in range(count):
        for k in range(K):
            total = klein.dtype.type(0)
            for i in range(m):
                gap = klein[b, i] - points[k, i]
                total += gap * gap
            square[b * K + k] = total


@njit(**PART)
def _evaluate(scales, points, count, maps, correlation):
    """For all edges and kernel points of a block at once: distances ν, lengths ℓ, their times, and ℓ/|h|."""
    cast = correlation.square.dtype.type
    zero, one, half, two = cast(0), cast(1), cast(0.5), cast(2)
    for i in range(count):
        time, inverse_time = points.time[i], correlation.inverse_time[i]
        gap = inverse_time - one / time
        delta = (correlation.square[i] + gap * gap) * (half * time / inverse_time)
        root = math.sqrt(delta) * math.sqrt(delta + two)
        correlation.share[i] = log1p(delta + root)
        correlation.slope[i] = time / root if root > zero else zero
        opening = one / (one + exp(-maps.gate[i]))
        norm = math.sqrt(maps.square[i])
        length = scales[i] * opening if norm > zero else zero
        maps.opening[i] = opening
        maps.length[i] = length
        maps.time[i] = math.sqrt(one + length * length)
        maps.ratio[i] = length / norm if norm > zero else zero


@njit(**PART)
def _average(count, block):
    """Messages, their times and masses: the centroids over the kernel points."""
    K = block.maps.direction.shape[1]
    shares, totals = block.correlation.share, block.correlation.total
    cast = shares.dtype.type
    zero, one = cast(0), cast(1)
    for b in range(count):
        total = zero
        for k in range(K):
            total += shares[b * K + k]
        totals[b] = total
        time = zero
        for k in range(K):
            share = shares[b * K + k] / total if total > zero else one / cast(K)
            shares[b * K + k] = share
            time += share * block.maps.time[b * K + k]
        block.message.time[b] = time
    _sum_directions(count, shares, block.maps.ratio, block.maps.direction, block.message.space)
    _normalize(count, block)


@njit(**PART)
def _sum_directions(count, shares, ratios, direction, message):
    _, K, n = direction.shape
    for b in range(count):
        for j in range(n):
            message[b, j] = 0
        for k in range(K):
            factor = shares[b * K + k] * ratios[b * K + k]
            for j in range(n):
                message[b, j] += factor * direction[b, k, j]


@njit(**PART)
def _normalize(count, block):
    """Divide sums by their Lorentz norms, which become the masses."""
    message, times = block.message.space, block.message.time
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
        block.message.mass[b] = mass
        times[b] = math.sqrt(one + square * inverse * inverse)


@njit(**PART)
def _square_of_far_sum(b, block):
    r"""-<s, s> of s = Σ_k ν_k x_k as a sum of non-negative terms, for points far out that lie close together.

    With lengths l_k = |x_k,s|, unit directions d_k, f = Σ ν_k l_k, r = Σ ν_k (t_k - l_k) = Σ ν_k / (t_k + l_k) and the
    mean direction d = Σ ν_k l_k d_k / f, it is r (2f + r) + f Σ_k ν_k l_k |d_k - d|².
    """
    maps, shares, message = block.maps, block.correlation.share, block.message.space
    _, K, n = maps.direction.shape
    cast = message.dtype.type
    far, rest, spread = cast(0), cast(0), cast(0)
    for k in range(b * K, b * K + K):
        far += shares[k] * maps.length[k]
        rest += shares[k] / (maps.time[k] + maps.length[k])
    to_mean = cast(1) / far if far > cast(0) else cast(0)
    for k in range(K):
        length = maps.length[b * K + k]
        to_unit = maps.ratio[b * K + k] / length if length > cast(0) else cast(0)
        square = cast(0)
        for j in range(n):
            gap = to_unit * maps.direction[b, k, j] - to_mean * message[b, j]
            square += gap * gap
        spread += shares[b * K + k] * length * square
    return rest * (far + far + rest) + far * spread


@njit(**PART)
def _forward_block(inputs, scales, points, count, relative, block):
    _read_ends(inputs, points, count, relative, block)
    _evaluate(scales, points, count * points.klein.shape[0], block.maps, block.correlation)
    _average(count, block)


@njit(**PART)
def _repeated(scale):
    K = scale.size
    scales = np.empty(BLOCK * K, scale.dtype)
    for i in range(scales.size):
        scales[i] = scale[i % K]
    return scales


@njit(**PART)
def _total_weight(weight, order, node):
    first, last = order.pointer[node], order.pointer[node + 1]
    total = float(last - first)
    if weight.size:
        total = 0.0
        for e in range(first, last):
            total += weight[e]
    return total


@njit(**PART)
def _fill(order, node, start, count, own, ends):
    """Both ends of the edges ``start`` to ``start + count``; a block may hold the edges of several nodes."""
    for b in range(count):
        while start + b >= order.pointer[node + 1]:
            node += 1
        ends[own, b], ends[1 - own, b] = node, order.other[start + b]
    return node


@njit(**KERNEL)
def forward(first, last, by_target, inputs, relative, out, mass):
    """Aggregate at the targets ``first`` to ``last``: points, time first, and the masses for unit total weight."""
    points, scales, block = _kernel_points(inputs.points), _repeated(inputs.scale), _new_block(inputs)
    n = out.shape[1] - 1
    sums = np.zeros((last - first, n + 3), np.float64)
    weights = np.ones(BLOCK, np.float64)
    node, end = first, by_target.pointer[last]
    for start in range(by_target.pointer[first], end, BLOCK):
        count = min(BLOCK, end - start)
        node = _fill(by_target, node, start, count, 1, block.ends)
        _forward_block(inputs, scales, points, count, relative, block)
        if inputs.weight.size:
            for b in range(count):
                weights[b] = inputs.weight[start + b]
        for b in range(count):
            _join(sums[block.ends[1, b] - first], weights[b], block.message.space[b])
    for x in range(first, last):
        _project(x, sums[x - first], _total_weight(inputs.weight, by_target, x), out, mass)


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
    ``grad_weight`` gets what does not depend on the edge: the part of the normalization.
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
def _pull(inputs, order, by_source, start, count, grad_mean, block):
    """Gradients of weights and of the messages' sums, and products of the latter with the directions."""
    direction, message, grad = block.maps.direction, block.message, block.grad
    _, K, n = direction.shape
    cast = direction.dtype.type
    for b in range(count):
        x = block.ends[1, b]
        weight = cast(1)
        if inputs.weight.size:
            weight = inputs.weight[order.position[start + b] if by_source else start + b]
        along = grad_mean[x, 0] * message.time[b]
        for j in range(n):
            along += grad_mean[x, 1 + j] * message.space[b, j]
        factor = weight / message.mass[b]
        for j in range(n):
            grad.message[b, j] = factor * (grad_mean[x, 1 + j] + along * message.space[b, j])
        grad.time[b] = factor * (grad_mean[x, 0] - along * message.time[b])
        grad.weight[b] = along
        for k in range(K):
            dot = cast(0)
            for j in range(n):
                dot += grad.message[b, j] * direction[b, k, j]
            grad.dot[b * K + k] = dot
            grad.map_time[b * K + k] = grad.time[b]


@njit(**PART)
def _differentiate(count, maps, shares, grad):
    """For all edges and kernel points of a block at once: gradients of shares, lengths, gates and directions."""
    zero, one = shares.dtype.type(0), shares.dtype.type(1)
    for i in range(count):
        square = maps.square[i] if maps.square[i] > zero else one  # h = 0 has length 0, and its gradient vanishes
        slope = grad.dot[i] / math.sqrt(square)
        grad.share[i] = grad.map_time[i] * maps.time[i] + maps.length[i] * slope
        slope = shares[i] * (slope + grad.map_time[i] * maps.length[i] / maps.time[i])
        grad.length[i] = slope if maps.square[i] > zero else zero
        grad.gate[i] = slope * maps.length[i] * (one - maps.opening[i])
        along_message = shares[i] * maps.ratio[i]
        grad.along_message[i] = along_message
        grad.along_direction[i] = along_message * grad.dot[i] / square


@njit(**PART)
def _to_features(count, points, klein, correlation, grad):
    """From gradients of the shares to those of the excesses to the kernel points, times p_t, and to those of z_s."""
    K, m = points.shape
    zero = klein.dtype.type(0)
    share, slope, total = correlation.share, correlation.slope, correlation.total
    for b in range(count):
        mean = zero
        for k in range(K):
            mean += share[b * K + k] * grad.share[b * K + k]
        for i in range(m):
            grad.feature[b, i] = zero
        for k in range(K):
            excess = (grad.share[b * K + k] - mean) / total[b] * slope[b * K + k] if total[b] > zero else zero
            grad.excess[b * K + k] = excess
            for i in range(m):
                grad.feature[b, i] += excess * (klein[b, i] - points[k, i])


@njit(**PART)
def _to_directions(count, grad, direction):
    """Put the gradients of the directions into their place."""
    _, K, n = direction.shape
    for b in range(count):
        for k in range(K):
            along_message, along_direction = grad.along_message[b * K + k], grad.along_direction[b * K + k]
            for j in range(n):
                direction[b, k, j] = along_message * grad.message[b, j] - along_direction * direction[b, k, j]


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
def _factors(inputs, count, relative, block):
    """Parts of an edge's gradients of z_s, h and its gates for its two ends: ``to_source`` and ``to_target``.

    ∂/∂u_s of δ is D - (u_t - x_t) u_s/u_t, of u_t it is u_s/u_t: written so that nothing large cancels.
    """
    boost, grad, direction_grad = block.boost, block.grad, block.maps.flat_direction
    _, K, n = block.maps.direction.shape
    to_source, to_target = grad.to_source, grad.to_target
    for b in range(count):
        x = block.ends[1, b]
        by_stretch, by_time = 0.0, 0.0
        for i in range(grad.feature.shape[1]):
            by_stretch -= grad.feature[b, i] * inputs.target[x, 1 + i]
        delta, c_minus_1, gap = boost.delta[b], boost.c_minus_1[b], boost.time_gap[b]
        u_time, x_time, stretch = boost.source_time[b], boost.target_time[b], 1.0 + c_minus_1
        unit = 1.0 / (1.0 + delta)
        if relative:
            by_stretch -= unit * _dot_rows(direction_grad, b, inputs.target_product, x, K * n)
            by_time += unit * _dot_row(direction_grad, b, inputs.time, K * n)
            for k in range(K):
                by_stretch -= grad.gate[b * K + k] * inputs.target_product[x, K * n + k]
                by_time += grad.gate[b * K + k] * inputs.time[K * n + k]
        by_gap = by_stretch / (1.0 + x_time)
        by_delta = by_time + by_gap
        to_source[0, b], to_source[1, b], to_source[2, b] = 1.0, (by_gap - by_delta * gap) / u_time, by_delta
        to_source[3, b], to_source[4, b] = unit if relative else 1.0 / u_time, 1.0
        radial = (by_delta * gap - by_gap - by_gap * c_minus_1) / x_time
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
def _add_kernel_points(total, count, excess_grad, boost, points):
    K, m = points.klein.shape
    for b in range(count):
        for k in range(K):
            factor = excess_grad[b * K + k] * (1.0 + boost.delta[b]) / points.time[k]
            for i in range(m):
                total[k, 1 + i] -= factor * (boost.klein[b, i] - points.klein[k, i])


@njit(**PART)
def _add_shared(sums, count, relative, points, block):
    _add_scales(sums.scale, count, block.grad.length, block.maps.opening)
    if relative:
        _add_times(sums.time, count, block.maps.flat_direction, block.grad.gate, block.boost.delta)
    if sums.points.size:
        _add_kernel_points(sums.points, count, block.grad.excess, block.boost, points)


@njit(**KERNEL)
def backward(first, last, order, by_source, inputs, relative, given, grad_mean, sums):
    """Gradients that come from the edges of the nodes ``first`` to ``last`` of one order of the edges.

    By target, which comes first, also those of the means, of the edges' weights and of what all edges share.
    """
    if not by_source:
        _spread(first, last, order, inputs.weight, given, grad_mean, sums.weight)
    points, scales, block = _kernel_points(inputs.points), _repeated(inputs.scale), _new_block(inputs)
    K = points.klein.shape[0]
    maps, correlation, grad = block.maps, block.correlation, block.grad
    sources, targets = block.ends[0], block.ends[1]
    node, end = first, order.pointer[last]
    for start in range(order.pointer[first], end, BLOCK):
        count = min(BLOCK, end - start)
        node = _fill(order, node, start, count, 0 if by_source else 1, block.ends)
        _forward_block(inputs, scales, points, count, relative, block)
        _pull(inputs, order, by_source, start, count, grad_mean, block)
        _differentiate(count * K, maps, correlation.share, grad)
        _to_features(count, points.klein, block.boost.klein, correlation, grad)
        _to_directions(count, grad, maps.direction)
        _factors(inputs, count, relative, block)
        if sums.source.size:
            _add_points(
                sums.source, count, inputs.source, sources, inputs.target, targets, grad.feature, grad.to_source
            )
            _add_products(sums.source_product, count, sources, maps.flat_direction, grad.gate, grad.to_source)
        if not by_source:
            _add_points(
                sums.target, count, inputs.target, targets, inputs.source, sources, grad.feature, grad.to_target
            )
            if relative:
                _add_products(sums.target_product, count, targets, maps.flat_direction, grad.gate, grad.to_target)
            _add_shared(sums, count, relative, points, block)
            if inputs.weight.size:
                for b in range(count):
                    sums.weight[start + b] += grad.weight[b]


def pack(inputs: Inputs) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """HLinear's parameters side by side: weight, bias, time and scale."""
    K, n, _ = inputs.weight.shape
    bias = inputs.weight.new_zeros(K * n) if inputs.bias is None else inputs.bias.flatten()
    gate_bias = inputs.weight.new_zeros(K) if inputs.gate_bias is None else inputs.gate_bias
    weight = torch.cat([inputs.weight.flatten(0, 1), inputs.gate_weight])
    return weight, torch.cat([bias, gate_bias]), weight[:, 0].contiguous(), inputs.log_scale.exp()


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


def aggregate(inputs: EdgeInputs, neighbors: Neighbors) -> tuple[Tensor, Tensor]:
    """Aggregated points (T, n+1) and their masses for unit total weight (T,)."""
    arrays, by_target = _arrays(inputs), order_by_target(neighbors)
    out = inputs.target.new_empty(inputs.target.size(0), inputs.out_dim + 1)
    mass = inputs.target.new_empty(inputs.target.size(0))
    results = out.numpy(), mass.numpy()

    def walk(first: int, last: int) -> None:
        forward(first, last, by_target, arrays, inputs.target_product is not None, *results)

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
    arrays, relative = _arrays(inputs), inputs.target_product is not None
    by_target, by_source = order_by_target(neighbors), order_by_source(neighbors)
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
            backward(*chunks[chunk], by_target, False, arrays, relative, given, grad_mean, sums)

    def walk_sources(first: int, last: int) -> None:
        sums = Sums(*to_sources[0], *_nothing(arrays), shared[0][0, :0], *(of_chunks[0] for of_chunks in shared))
        backward(first, last, by_source, True, arrays, relative, given, grad_mean, sums)

    _in_threads(threads, walk_targets, [(part,) for part in range(threads)])
    if not in_one_walk:
        in_chunks(by_source, arrays.bias.size, walk_sources)
    source, source_product = (_added(copies) for copies in zip(*to_sources))
    target, target_product, weight = to_target
    time, scale, points = (of_chunks.sum(0) for of_chunks in shared)
    points = points if points_too else points.ravel()
    bias = source_product.sum(0)
    found = source, target, source_product, target_product, bias, time, scale, points, weight
    return EdgeGradients(*(torch.from_numpy(array) for array in found))


def order_by_target(neighbors: Neighbors) -> EdgeOrder:
    order = EdgeOrder(neighbors.target_pointer.numpy(), neighbors.source.numpy(), np.empty(0, np.int32))
    return _checked(order, neighbors.size[0])


def order_by_source(neighbors: Neighbors) -> EdgeOrder:
    ends = neighbors.target_by_source.numpy()
    order = EdgeOrder(neighbors.source_pointer.numpy(), ends, neighbors.by_source.numpy())
    return _checked(order, neighbors.size[1])


def _checked(order: EdgeOrder, other_nodes: int) -> EdgeOrder:
    """Refuse a structure that would lead out of memory: kernels follow it blindly."""
    if not _is_inside(order, other_nodes):
        raise InputError("these neighbors have indices outside of their graph: make them by hkconv.neighbors")
    return order


@njit(**KERNEL)
def _is_inside(order, other_nodes):
    nodes, edges = order.pointer.size - 1, order.other.size
    is_wrong = (order.pointer[0] != 0) | (order.pointer[nodes] != edges)
    for node in range(nodes):
        is_wrong |= order.pointer[node + 1] < order.pointer[node]
    for e in range(edges):
        is_wrong |= (order.other[e] < 0) | (order.other[e] >= other_nodes)
    for e in range(order.position.size):
        is_wrong |= (order.position[e] < 0) | (order.position[e] >= edges)
    return not is_wrong


def _arrays(inputs: EdgeInputs) -> Any:
    """:class:`~hkconv.ops.fused.EdgeInputs` of arrays, empty in place of None, as Numba takes them."""
    *tensors, out_dim = inputs
    absent = {"target_product": (0, 0), "weight": (0,)}
    found = [
        inputs.source.new_empty(absent[name]) if tensor is None else tensor.contiguous()
        for name, tensor in zip(EdgeInputs._fields, tensors)
    ]
    return EdgeInputs._make([*(tensor.numpy() for tensor in found), out_dim])


def _sums_like(points: np.ndarray, product: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros_like(points), np.zeros_like(product)


def _nothing(arrays: Any) -> tuple[np.ndarray, np.ndarray]:
    return arrays.source[:0], arrays.source_product[:0]


def _shared_sums(arrays: Any, chunks: int, points_too: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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


def in_chunks(order: EdgeOrder, work_an_edge: int, walk: Callable[[int, int], None]) -> None:
    """Call ``walk(first, last)`` for chunks of nodes with about equally many edges, in torch's threads."""
    chunks = _chunks(order, work_an_edge)
    _in_threads(_threads_for(chunks), walk, chunks)


def _chunks(order: EdgeOrder, work_an_edge: int) -> list[tuple[int, int]]:
    """First and last nodes of chunks that depend on the graph alone, at least one."""
    nodes, edges = order.pointer.size - 1, order.other.size
    # A power of two, which is shared out evenly among the usual numbers of threads.
    count = min(CHUNKS, 1 << max(0, (edges * work_an_edge // WORTH_A_THREAD).bit_length() - 1))
    levels = np.arange(1, count) * (edges + nodes) // count
    bounds = [0, *np.searchsorted(order.pointer[1:] + np.arange(1, nodes + 1), levels).tolist(), nodes]
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
