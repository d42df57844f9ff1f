r"""Attention on CUDA: Triton kernels that take a block of queries, or of keys, past the others in tiles of pairs.

Inner products of scores and sums over pairs are matrix products, on tensor cores. HLinear's directions of a pair,

.. math::
    y_k = r (W_k u + b_k) - c r\, W_k x + w_k, \qquad r = 1/(1+\delta), \quad u \ominus x = u - c x,

are made one coordinate after the other for all pairs of a tile and all kernel points, so that no sum over coordinates
crosses threads; a sum of messages :math:`\sum_j A_{ijk} y_{ijk}` is then one of :math:`W_k u_j + b_k`, less multiples
of the query's own :math:`W_k x_i`. Where an inner product cancels, a tile takes the literal form (:data:`CANCELS`).

Forward, a block keeps the highest score of each query so far, to which its sums are relative. Backward, pairs are
computed again: a first walk gives each query its gradients and those of what all pairs share, a second each key.
Nothing is written by two programs, so that the same input gives the same bits, and nothing of the size of all pairs is
stored.

With :math:`\mu` the mean of the messages, the gradient of a score is
:math:`w_{ij} (\langle g_i, v_{ij}'\rangle - \langle g_i, \mu_i\rangle)`, :math:`g_i = \partial/\partial \mu_i`, where
the last term is zero: the centroid does not depend on the length of :math:`\mu_i`.

In Triton's interpreter (``TRITON_INTERPRET=1``) the same functions take CPU tensors.
"""

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from hkconv.ops.attention import PairGradients, Pairs
from hkconv.ops.backends import Launcher
from hkconv.ops.cuda_parts import _arcosh1p, _power_of_two, _sigmoid

# A difference that many times smaller than what it is the difference of is taken in its literal form.
CANCELS = tl.constexpr(32)


@triton.jit
def _product(a, b):
    """Matrix product of tiles (rows, m) and (m, columns), on tensor cores but for float64."""
    if a.dtype == tl.float64:
        found = tl.sum(a[:, :, None] * b[None, :, :], 1)
    else:
        found = tl.dot(a, b, input_precision="tf32x3")
    return found


@triton.jit
def _rows(pointer, index, valid, stride, first, j, n: tl.constexpr):
    """Parts of rows as a tile (rows, NP)."""
    inside = valid[:, None] & (j < n)[None, :]
    return tl.load(pointer + index[:, None] * stride + first + j[None, :], mask=inside, other=0)


@triton.jit
def _turned(pointer, index, valid, stride, first, j, n: tl.constexpr):
    """Parts of rows as a tile (NP, rows)."""
    inside = valid[None, :] & (j < n)[:, None]
    return tl.load(pointer + index[None, :] * stride + first + j[:, None], mask=inside, other=0)


@triton.jit
def _each(pointer, index, valid, stride, place):
    """One number of each row."""
    return tl.load(pointer + index * stride + place, mask=valid, other=0)


@triton.jit
def _along_row(x, LAST: tl.constexpr):
    """A vector that belongs to the columns (``LAST``) or the rows of a tile, as a tile."""
    return x[None, :] if LAST else x[:, None]


@triton.jit
def _sum_columns(weight, pointer, base, start, columns, n: tl.constexpr, C: tl.constexpr, KP: tl.constexpr,
    NP: tl.constexpr,
):  # fmt: skip
    """Weighted sums (rows, NP) of the spaces of the points at the columns of a tile."""
    j = tl.arange(0, NP)
    if C >= 16:
        column = start + tl.arange(0, C)
        found = _product(weight, _rows(pointer, base + column, column < columns, n + 1, 1, j, n))
    else:  # a product needs at least 16 summands: zeros beside each
        f = tl.arange(0, C * KP)
        column = start + f // KP
        wide = tl.where((tl.arange(0, KP) == 0)[None, None, :], weight[:, :, None], 0)
        points = _rows(pointer, base + column, (column < columns) & (f % KP == 0), n + 1, 1, j, n)
        found = _product(tl.reshape(wide, [weight.shape[0], C * KP]), points)
    return found


@triton.jit
def _square_lengths(pointer, index, valid, j, n: tl.constexpr):
    """|x|² of the spaces of points."""
    space = _rows(pointer, index, valid, n + 1, 1, j, n)
    return tl.sum(space * space, 1)


@triton.jit
def _any(x):
    """True if any pair of a tile (rows, columns) has it."""
    return tl.max(tl.max(x.to(tl.int32), 1), 0) > 0


@triton.jit
def _excess(row, column, row_seen, column_seen, row_time, column_time, product, dim):
    """δ and row_t - column_t of all pairs of a tile; see geometry.relative, whose form is taken where one cancels.

    ``row`` and ``column`` point to the spaces of the points, as do the times and what is seen (rows, 1), (1, columns).
    """
    both = row_time * column_time
    plain = both - product - 1
    delta = plain
    gap = row_time - column_time
    cancels = (plain * CANCELS < both) | (plain != plain)
    if _any(cancels & row_seen & column_seen):
        unit = 1 / tl.maximum(row_time, column_time)
        per_sum = 1 / (row_time + column_time)
        nearer = row_time < column_time
        square = tl.zeros_like(product)
        along = tl.zeros_like(product)
        gap = tl.zeros_like(product)
        for c in range(dim):
            a = tl.load(row + c, mask=row_seen, other=0)
            b = tl.load(column + c, mask=column_seen, other=0)
            step = (a - b) * unit
            square += step * step
            along += tl.where(nearer, a, b) * step
            gap += (a - b) * ((a + b) * per_sum)
        # The root of a number too small for full precision is 0 on a GPU: it is the root that must not divide.
        length = tl.sqrt(square)
        per_length = 1 / tl.where(length > 0, length, 1)
        along = along * per_length
        across = tl.zeros_like(product)
        for c in range(dim):
            a = tl.load(row + c, mask=row_seen, other=0)
            b = tl.load(column + c, mask=column_seen, other=0)
            rest = tl.where(nearer, a, b) - along * (((a - b) * unit) * per_length)
            across += rest * rest
        reach = length / (unit * tl.sqrt(1 + both + tl.maximum(product, -1)))
        turn = reach * tl.sqrt(across)
        delta = tl.where(product > -1, reach * reach + turn * turn, plain)
    return tl.where(row_seen & column_seen, delta, 0), gap


@triton.jit
def _squares(delta):
    """d² and d / sinh d."""
    root = tl.sqrt(delta) * tl.sqrt(delta + 2)
    distance = _arcosh1p(delta, root)
    return distance * distance, tl.where(root > 0, distance / tl.where(root > 0, root, 1), 1)


@triton.jit
def _store_points(pointer, index, valid, space, j, n: tl.constexpr):
    """Gradients of points, whose time has none."""
    tl.store(pointer + index * (n + 1), tl.zeros_like(tl.sum(space, 1)), mask=valid)
    place = pointer + index[:, None] * (n + 1) + 1 + j[None, :]
    tl.store(place, space, mask=valid[:, None] & (j < n)[None, :])


@triton.jit
def _literal(pair, bias, time_weight, delta, rest, unit, c, n: tl.constexpr, K: tl.constexpr, KP: tl.constexpr):
    """Coordinate c of the directions (rows, columns, KP), by the difference of products that cancels least."""
    value_row, own_row, value_seen, own_seen = pair
    k = tl.arange(0, KP)[None, None, :]
    held = tl.where(rest > -0.5, 1.0, 0.0).to(delta.dtype)
    more = tl.where(rest > -0.5, rest, 1 + rest) * unit
    pu = tl.load(value_row + k * n + c, mask=value_seen[:, :, None] & (k < K), other=0)
    px = tl.load(own_row + k * n + c, mask=own_seen[:, :, None] & (k < K), other=0)
    # A point and itself have the same products, but for their rounding.
    gap = tl.where((delta > 0)[:, :, None], tl.fma(-px, held[:, :, None], pu), 0)
    b = tl.load(bias + k * n + c, mask=k < K, other=0)
    w = tl.load(time_weight + k * n + c, mask=k < K, other=0)
    return tl.fma(gap + b, unit[:, :, None], tl.fma(-px, more[:, :, None], w))


@triton.jit
def _columns_of_kernels(
    pointer, base, start, columns, bias, n: tl.constexpr, K: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
    KP: tl.constexpr, NP: tl.constexpr,
):  # fmt: skip
    """Products of values with their biases (columns * KP, NP), those of a column below each other."""
    j, f = tl.arange(0, NP)[None, :], tl.arange(0, C * KP)
    column, k = start + f // KP, (f % KP)[:, None]
    inside = (column < columns)[:, None] & (k < K) & (j < n)
    found = tl.load(pointer + (base + column)[:, None] * P + k * n + j, mask=inside, other=0)
    return found + tl.load(bias + k * n + j, mask=(k < K) & (j < n), other=0)


@triton.jit
def _look(
    value, own, pair, bias, time_weight, points, gradient, gradient_seen, delta, rest, unit, dim,
    n: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, NP: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """Shares, p_t dν/dδ, one by the sum of the distances, norms of the directions, and their inner products with
    gradients (``BACK``), for all pairs of a tile; pointers lead to the spaces of both points of a pair."""
    _, _, value_seen, own_seen = pair
    k, j = tl.arange(0, KP), tl.arange(0, NP)
    p = tl.load(points + k[:, None] * (n + 1) + 1 + j[None, :], mask=(k < K)[:, None] & (j < n)[None, :], other=0)
    time = tl.sqrt(1 + tl.sum(p * p, 1))[None, None, :]
    k = k[None, None, :]
    inside = (value_seen & own_seen)[:, :, None] & (k < K)
    wide = unit[:, :, None]
    per_time = 1 / time
    near = (wide - per_time) * (wide - per_time)
    square = tl.zeros_like(near)
    ahead = tl.zeros_like(near)
    for c in range(dim):
        u = tl.load(value + c, mask=value_seen, other=0)
        x = tl.load(own + c, mask=own_seen, other=0)
        at = tl.load(points + k * (n + 1) + 1 + c, mask=k < K, other=0)
        gap = (((u - x) - rest * x) * unit)[:, :, None] - at * per_time
        near = tl.fma(gap, gap, near)
        y = _literal(pair, bias, time_weight, delta, rest, unit, c, n, K, KP)
        square = tl.fma(y, y, square)
        if BACK:
            ahead = tl.fma(y, tl.load(gradient + c, mask=gradient_seen, other=0)[:, :, None], ahead)
    excess = tl.where(inside, near * (0.5 * time) / wide, 0)
    root = tl.sqrt(excess) * tl.sqrt(excess + 2)
    distance = _arcosh1p(excess, root)
    total = tl.sum(distance, 2)
    per_total = tl.where(total > 0, 1 / tl.where(total > 0, total, 1), 0)
    share = tl.where(k < K, tl.where((total > 0)[:, :, None], distance * per_total[:, :, None], 1 / K), 0)
    slope = tl.where(root > 0, time / tl.where(root > 0, root, 1), 0)
    return share, slope, per_total, tl.sqrt(tl.where(inside, square, 0)), ahead


@triton.jit
def _against(pair, bias, time_weight, delta, rest, unit, part, dim, n: tl.constexpr, K: tl.constexpr, KP: tl.constexpr):
    """Inner products of each direction with the weighted sum of all."""
    along = tl.zeros_like(part)
    for c in range(dim):
        y = _literal(pair, bias, time_weight, delta, rest, unit, c, n, K, KP)
        along = tl.fma(tl.sum(part * y, 2)[:, :, None], y, along)
    return along


@triton.jit
def _gates(pair, bias, time_weight, delta, rest, n: tl.constexpr, K: tl.constexpr, KP: tl.constexpr):
    """Openings of the gates (rows, columns, KP)."""
    value_row, own_row, value_seen, own_seen = pair
    k = tl.arange(0, KP)[None, None, :]
    held = tl.where(rest > -0.5, 1.0, 0.0).to(delta.dtype)
    more = tl.where(rest > -0.5, rest, 1 + rest)
    gu = tl.load(value_row + K * n + k, mask=value_seen[:, :, None] & (k < K), other=0)
    gx = tl.load(own_row + K * n + k, mask=own_seen[:, :, None] & (k < K), other=0)
    gap = tl.where((delta > 0)[:, :, None], gu - held[:, :, None] * gx, 0)
    gap += tl.load(bias + K * n + k, mask=k < K, other=0)
    vt = tl.load(time_weight + K * n + k, mask=k < K, other=0)
    return _sigmoid(gap + ((1 + delta)[:, :, None] * vt - more[:, :, None] * gx))


@triton.jit
def _mass(
    pair, bias, time_weight, delta, rest, unit, norm, length, share, part, along, dim,
    n: tl.constexpr, K: tl.constexpr, KP: tl.constexpr,
):  # fmt: skip
    """Squared masses and squared lengths (rows, columns) of weighted sums over the kernel points."""
    level = tl.sqrt(1 + length * length)
    time = tl.sum(share * level, 2)
    inner = tl.sum(part * along, 2)
    square = time * time - inner
    lost = ((square * CANCELS < time * time) | (square != square)) & pair[2] & pair[3]
    if _any(lost):  # the sum is far out; see ops/native/by_edges.hpp
        far, low = tl.sum(share * length, 2), tl.sum(share / (level + length), 2)
        per_far = 1 / tl.where(far > 0, far, 1)
        spread = tl.zeros_like(delta)
        for c in range(dim):
            y = _literal(pair, bias, time_weight, delta, rest, unit, c, n, K, KP)
            gap = y / norm - (tl.sum(part * y, 2) * per_far)[:, :, None]
            spread += tl.sum(share * length * gap * gap, 2)
        square = tl.where(lost, low * (2 * far + low) + far * spread, square)
    return square, tl.maximum(inner, 0)


@triton.jit
def _sum_up(
    pair, bias, time_weight, delta, rest, unit, norm, lengths, share, dim,
    n: tl.constexpr, K: tl.constexpr, KP: tl.constexpr,
):  # fmt: skip
    """Openings of the gates, lengths, norms or 1, weights of the directions in a message, and their inner products with
    it, (rows, columns, KP); squares of its mass and length (rows, columns)."""
    opening = _gates(pair, bias, time_weight, delta, rest, n, K, KP)
    length = tl.where(norm > 0, lengths * opening, 0)
    norm = tl.where(norm > 0, norm, 1)
    part = share * length / norm
    inner = _against(pair, bias, time_weight, delta, rest, unit, part, dim, n, K, KP)
    mass_square, long = _mass(
        pair, bias, time_weight, delta, rest, unit, norm, length, share, part, inner, dim, n, K, KP
    )
    return opening, length, norm, part, inner, mass_square, long


@triton.jit
def _visible(
    row, column, rows, columns, padding, batch, T, S, PADDED: tl.constexpr, CAUSAL: tl.constexpr, TO_KEY: tl.constexpr
):  # fmt: skip
    """True for the pairs of a tile that attend to each other; rows are the queries, or with ``TO_KEY`` the keys."""
    seen = (row < rows)[:, None] & (column < columns)[None, :]
    if CAUSAL:
        if TO_KEY:
            seen = seen & (row[:, None] <= column[None, :] + (S - T))
        else:
            seen = seen & (column[None, :] <= row[:, None] + (S - T))
    if PADDED:
        key = row if TO_KEY else column
        hidden = tl.load(padding + batch * S + key, mask=key < S, other=1) != 0
        seen = seen & _along_row(hidden == 0, not TO_KEY)
    return seen


@triton.jit(do_not_specialize=["T", "S", "B", "dim"])
def _forward(
    query, key, value, own, value_product, own_product, bias, time_weight, scale, points, steepness, padding,
    out, mass, log_total,
    T, S, B, dim, n: tl.constexpr, K: tl.constexpr, KERNEL: tl.constexpr, PADDED: tl.constexpr, CAUSAL: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, KP: tl.constexpr, NP: tl.constexpr,
):  # fmt: skip
    """The centroids of the messages to a block of queries of one head."""
    P: tl.constexpr = K * (n + 1)
    head = tl.program_id(1).to(tl.int64)
    blocks = tl.cdiv(T, ROWS)
    batch = tl.program_id(0) // blocks
    block = tl.program_id(0) - batch * blocks
    place = block * ROWS + tl.arange(0, ROWS)
    row = (head * B + batch) * T + place
    base = (head * B + batch) * S
    here = place < T
    last = S
    if CAUSAL:
        last = tl.minimum(S, (block + 1) * ROWS + S - T)
    j, k = tl.arange(0, NP), tl.arange(0, KP)
    q = _rows(query, row, here, n + 1, 1, j, n)
    q_time = tl.sqrt(1 + tl.sum(q * q, 1))[:, None]
    factor = tl.load(steepness)
    space = tl.zeros([ROWS, NP], q.dtype)
    far = tl.sum(space, 1)
    rest = far
    total = far
    spread = far
    highest = far - float("inf")
    mean = space
    if KERNEL:
        bias += head * P
        time_weight += head * P
        lengths = tl.load(scale + head * K + k, mask=k < K, other=0)[None, None, :]
        x = _rows(own, row, here, n + 1, 1, j, n)
        x_time = tl.sqrt(1 + tl.sum(x * x, 1))[:, None]
        own_sums = tl.zeros([ROWS, KP], q.dtype)
        time_sums = own_sums
    # A second walk, with the scores of the first, sums what is lost to cancellation.
    again = 1
    lost = far > 0
    for walk in range(2):
        if walk == 1:
            if KERNEL:
                for kernel in range(K):
                    of_own = tl.sum(tl.where((k == kernel)[None, :], own_sums, 0), 1)[:, None]
                    of_time = tl.sum(tl.where((k == kernel)[None, :], time_sums, 0), 1)[:, None]
                    wt = tl.load(time_weight + kernel * n + j, mask=j < n, other=0)[None, :]
                    px = _rows(own_product, row, here, P, kernel * n, j, n)
                    space += of_time * wt - of_own * px
            time = far + rest
            lost = here & ((time * time - tl.sum(space * space, 1)) * CANCELS < time * time)
            mean = space / tl.where(far > 0, far, 1)[:, None]
            again = tl.max(lost.to(tl.int32), 0)
        for start in range(0, last * again, COLUMNS):
            column = start + tl.arange(0, COLUMNS)
            there = column < S
            index = base + column
            seen = _visible(place, column, T, S, padding, batch, T, S, PADDED, CAUSAL, False)
            k_time = tl.sqrt(1 + _square_lengths(key, index, there, j, n))[None, :]
            product = _product(q, _turned(key, index, there, n + 1, 1, j, n))
            row_at, column_at = (row * (n + 1) + 1)[:, None], (index * (n + 1) + 1)[None, :]
            delta, _ = _excess(
                query + row_at, key + column_at, here[:, None], there[None, :], q_time, k_time, product, dim
            )
            square, _ = _squares(delta)
            score = tl.where(seen, -factor * square, float("-inf"))
            higher = tl.maximum(highest, tl.max(score, 1))
            level = tl.where(higher == float("-inf"), 0, higher)  # nothing seen so far
            w, shrink = tl.exp(score - level[:, None]), tl.exp(highest - level)
            u_square = _square_lengths(value, index, there, j, n)[None, :]
            u_time = tl.sqrt(1 + u_square)
            if KERNEL:
                product = _product(x, _turned(value, index, there, n + 1, 1, j, n))
                delta, gap = _excess(
                    own + row_at, value + column_at, here[:, None], there[None, :], x_time, u_time, product, dim
                )
                change = (delta - gap) / (1 + x_time)
                unit = 1 / (1 + delta)
                pair = (
                    value_product + (index * P)[None, :, None], own_product + (row * P)[:, None, None],
                    there[None, :], here[:, None],
                )  # fmt: skip
                share, _, _, norm, _ = _look(
                    value + column_at, own + row_at, pair, bias, time_weight, points, own, here[:, None], delta, change,
                    unit, dim, n, K, KP, NP, False,
                )  # fmt: skip
                _, _, _, part, _, unit_mass, inner = _sum_up(
                    pair, bias, time_weight, delta, change, unit, norm, lengths, share, dim, n, K, KP
                )
                long = tl.sqrt(inner / unit_mass)
                part = part / tl.sqrt(unit_mass)[:, :, None]
                low = tl.sqrt(1 + long * long) + long
            else:
                long = tl.sqrt(u_square)
                low = u_time + long
            if walk == 0:
                total = total * shrink + tl.sum(w, 1)
                far = far * shrink + tl.sum(w * long, 1)
                rest = rest * shrink + tl.sum(w / low, 1)
                space = space * shrink[:, None]
                if KERNEL:
                    a = w[:, :, None] * part
                    time_sums = time_sums * shrink[:, None] + tl.sum(a, 1)
                    a = a * unit[:, :, None]
                    own_sums = own_sums * shrink[:, None] + tl.sum(a * (1 + change)[:, :, None], 1)
                    beside = _columns_of_kernels(value_product, base, start, S, bias, n, K, P, COLUMNS, KP, NP)
                    space += _product(tl.reshape(a, [ROWS, COLUMNS * KP]), beside)
                else:
                    space += _product(w, _rows(value, index, there, n + 1, 1, j, n))
                highest = higher
            else:
                for c in range(dim):
                    if KERNEL:
                        y = _literal(pair, bias, time_weight, delta, change, unit, c, n, K, KP)
                        gap = tl.sum(part * y, 2)
                    else:
                        gap = tl.load(value + column_at + c, mask=there[None, :], other=0) + tl.zeros_like(w)
                    gap = gap / tl.where(long > 0, long, 1) - tl.sum(tl.where((j == c)[None, :], mean, 0), 1)[:, None]
                    spread += tl.sum(w * long * gap * gap, 1)
    safe = tl.where(total > 0, 1 / tl.where(total > 0, total, 1), 0)
    far, rest, space = far * safe, rest * safe, space * safe[:, None]
    time = far + rest
    unit_mass = time * time - tl.sum(space * space, 1)
    # Rounded anew, the condition could hold for a query whose spread was not summed.
    unit_mass = tl.where(lost, rest * (2 * far + rest) + far * spread * safe, unit_mass)
    unit_mass = tl.where(total > 0, tl.sqrt(unit_mass), 1)
    space = space / unit_mass[:, None]
    tl.store(mass + row, unit_mass, mask=here)
    tl.store(out + row * (n + 1), tl.sqrt(1 + tl.sum(space * space, 1)), mask=here)
    tl.store(out + row[:, None] * (n + 1) + 1 + j[None, :], space, mask=here[:, None] & (j < n)[None, :])
    seen_log = highest + tl.log(tl.where(total > 0, total, 1))
    tl.store(log_total + row, tl.where(total > 0, seen_log, 0), mask=here)


@triton.jit
def _mean_gradient(out, mass, grad_out, row, here, j, n: tl.constexpr):
    """From the gradients of aggregated points to those of the means of the messages, times and spaces."""
    point = _rows(out, row, here, n + 1, 1, j, n)
    time = tl.load(out + row * (n + 1), mask=here, other=1)
    gradient = _rows(grad_out, row, here, n + 1, 1, j, n)
    gradient += (tl.load(grad_out + row * (n + 1), mask=here, other=0) / time)[:, None] * point
    per_mass = 1 / tl.load(mass + row, mask=here, other=1)
    by_mass = -tl.sum(point * gradient, 1) * per_mass
    return by_mass * time, gradient * per_mass[:, None] - by_mass[:, None] * point


@triton.jit(do_not_specialize=["T", "S", "B", "dim", "program", "programs"])
def _backward(
    query, key, value, own, value_product, own_product, bias, time_weight, scale, points, steepness, padding,
    out, mass, log_total, grad_out, grad_mean, grad_score_point, grad_point, grad_product, grad_steepness, shared,
    T, S, B, dim, program, programs, n: tl.constexpr, K: tl.constexpr, KERNEL: tl.constexpr, PADDED: tl.constexpr,
    CAUSAL: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, KP: tl.constexpr, NP: tl.constexpr,
    TO_KEY: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """Gradients of a block of queries and of their own values; with ``TO_KEY`` of a block of keys and values.

    A program adds its part of the gradients of what all pairs share.
    """
    P: tl.constexpr = K * (n + 1)
    head = tl.program_id(1).to(tl.int64)
    rows = S if TO_KEY else T
    columns = T if TO_KEY else S
    blocks = tl.cdiv(rows, ROWS)
    batch = tl.program_id(0) // blocks
    block = tl.program_id(0) - batch * blocks
    place = block * ROWS + tl.arange(0, ROWS)
    row = (head * B + batch) * rows + place
    base = (head * B + batch) * columns
    here = place < rows
    first = 0
    last = columns
    if CAUSAL:
        if TO_KEY:
            first = tl.maximum(0, block * ROWS + T - S)
        else:
            last = tl.minimum(S, (block + 1) * ROWS + S - T)
    j, k = tl.arange(0, NP), tl.arange(0, KP)
    factor = tl.load(steepness)
    score_row = key if TO_KEY else query
    score_column = query if TO_KEY else key
    row_point = value if TO_KEY else own
    column_point = own if TO_KEY else value
    s = _rows(score_row, row, here, n + 1, 1, j, n)
    s_time = tl.sqrt(1 + tl.sum(s * s, 1))[:, None]
    at = s
    if KERNEL or TO_KEY:
        at = _rows(row_point, row, here, n + 1, 1, j, n)
    at_time = tl.sqrt(1 + tl.sum(at * at, 1))[:, None]
    grad = s
    if not TO_KEY:
        own_log = tl.load(log_total + row, mask=here, other=0)[:, None]
        mean_time, grad = _mean_gradient(out, mass, grad_out, row, here, j, n)
        # For the walk over the keys.
        tl.store(grad_mean + row * (n + 1), mean_time, mask=here)
        tl.store(grad_mean + row[:, None] * (n + 1) + 1 + j[None, :], grad, mask=here[:, None] & (j < n)[None, :])
        own_time = mean_time[:, None]
        tl.debug_barrier()  # other threads read it
    by_score_point = tl.zeros_like(s)
    by_point = tl.zeros_like(s)
    none = tl.sum(by_point, 1)
    score_radial = none
    radial = none
    by_steepness = none
    if KERNEL:
        bias += head * P
        time_weight += head * P
        kk = k[None, None, :]
        lengths = tl.load(scale + head * K + k, mask=k < K, other=0)[None, None, :]
        inside = (k < K)[:, None] & (j < n)[None, :]
        p = tl.load(points + k[:, None] * (n + 1) + 1 + j[None, :], mask=inside, other=0)
        p_time = tl.sqrt(1 + tl.sum(p * p, 1))
        by_gate = tl.zeros([ROWS, KP], s.dtype)
        by_reach_gate, by_scale, pulls, own_pulls = by_gate, by_gate, by_gate, by_gate
        kernel_row = row[:, None] * P + k[None, :] * n
        kernel_seen = here[:, None] & (k < K)[None, :]
        mine = shared + (head * programs + program + tl.program_id(0)) * (P + K * (n + 2))
        all_products = grad_product + row[:, None, None] * P + k[None, :, None] * n + j[None, None, :]
        tl.store(all_products, tl.zeros([ROWS, KP, NP], s.dtype), mask=here[:, None, None] & inside[None, :, :])
        tl.debug_barrier()
    for start in range(first, last, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        there = column < columns
        index = base + column
        seen = _visible(place, column, rows, columns, padding, batch, T, S, PADDED, CAUSAL, TO_KEY)
        row_at, column_at = (row * (n + 1) + 1)[:, None], (index * (n + 1) + 1)[None, :]
        there_time = tl.sqrt(1 + _square_lengths(score_column, index, there, j, n))[None, :]
        product = _product(s, _turned(score_column, index, there, n + 1, 1, j, n))
        delta, _ = _excess(
            score_row + row_at,
            score_column + column_at,
            here[:, None],
            there[None, :],
            s_time,
            there_time,
            product,
            dim,
        )
        square, ratio = _squares(delta)
        if TO_KEY:
            log = tl.load(log_total + index, mask=there, other=0)[None, :]
            grad_time = tl.load(grad_mean + index * (n + 1), mask=there, other=0)[None, :]
            turned_grad = _turned(grad_mean, index, there, n + 1, 1, j, n)
        else:
            log, grad_time = own_log, own_time
        w = tl.where(seen, tl.exp(-factor * square - log), 0)
        if KERNEL:
            product = _product(at, _turned(column_point, index, there, n + 1, 1, j, n))
            column_time = tl.sqrt(1 + _square_lengths(column_point, index, there, j, n))[None, :]
            delta, gap = _excess(
                row_point + row_at, column_point + column_at, here[:, None], there[None, :], at_time, column_time,
                product, dim,
            )  # fmt: skip
            if TO_KEY:
                u_time, x_time = at_time, column_time
                u_at, x_at = value + row_at, own + column_at
                value_row = value_product + (row * P)[:, None, None]
                own_row = own_product + (index * P)[None, :, None]
                u_seen, x_seen = here[:, None], there[None, :]
                gradient, gradient_seen = grad_mean + column_at, there[None, :]
            else:
                u_time, x_time = column_time, at_time
                u_at, x_at = value + column_at, own + row_at
                gap = -gap
                value_row = value_product + (index * P)[None, :, None]
                own_row = own_product + (row * P)[:, None, None]
                u_seen, x_seen = there[None, :], here[:, None]
                gradient, gradient_seen = grad_mean + row_at, here[:, None]
            pair = (value_row, own_row, u_seen, x_seen)
            rest = (gap + delta) / (1 + x_time)
            stretch = 1 + rest
            unit = 1 / (1 + delta)
            # What the rows' products enter a direction with.
            row_share = (unit if TO_KEY else -stretch * unit)[:, :, None]
            share, slope, per_total, norm, ahead = _look(
                u_at, x_at, pair, bias, time_weight, points, gradient, gradient_seen, delta, rest, unit, dim,
                n, K, KP, NP, True,
            )  # fmt: skip
            opening, length, norm, part, inner, mass_square, long = _sum_up(
                pair, bias, time_weight, delta, rest, unit, norm, lengths, share, dim, n, K, KP
            )
            per_mass = 1 / tl.sqrt(mass_square)
            message_time = tl.sqrt(1 + long / mass_square)
            f = w * per_mass
            along = grad_time * message_time + tl.sum(part * ahead, 2) * per_mass
            by_time = (f * (grad_time - along * message_time))[:, :, None]
            back = f * along * per_mass  # of the message in the gradient of each direction
            level = tl.sqrt(1 + length * length)
            steep = (f[:, :, None] * ahead + back[:, :, None] * inner) / norm
            by_share = by_time * level + length * steep
            by_length = tl.where(length > 0, share * (steep + by_time * length / level), 0)
            of_gate = by_length * length * (1 - opening)
            own_part = part * steep / norm
            near = (by_share - tl.sum(share * by_share, 2)[:, :, None]) * per_total[:, :, None] * slope
            near = tl.where(kk < K, near, 0)
            pull = tl.sum(near, 2)
            along_points = tl.zeros([1, COLUMNS, KP] if TO_KEY else [ROWS, 1, KP], s.dtype)
            for c in range(dim):
                x = tl.load(x_at + c, mask=x_seen, other=0)
                p_c = tl.load(points + kk * (n + 1) + 1 + c, mask=kk < K, other=0)
                along_points += x[:, :, None] * p_c
            gx = tl.load(own_row + K * n + kk, mask=x_seen[:, :, None] & (kk < K), other=0)
            by_stretch = -tl.sum(of_gate * gx, 2) - unit * pull * (gap - delta * x_time)
            by_reach = tl.sum(of_gate * tl.load(time_weight + K * n + kk, mask=kk < K, other=0), 2)
            if TO_KEY:
                pulls += tl.sum(near, 1)
                by_gate += tl.sum(of_gate, 1)
            else:
                pulls -= tl.sum(stretch[:, :, None] * near, 1)
                by_gate -= tl.sum(stretch[:, :, None] * of_gate, 1)
                by_scale += tl.sum(by_length * opening, 1)
                by_reach_gate += tl.sum(of_gate * (1 + delta)[:, :, None], 1)
                own_pulls += tl.sum(near * (1 + delta)[:, :, None], 1)
            by_px = tl.zeros_like(part)
            by_wt = tl.zeros_like(part)
            for c in range(dim):
                y = _literal(pair, bias, time_weight, delta, rest, unit, c, n, K, KP)
                g = tl.load(gradient + c, mask=gradient_seen, other=0)
                by_space = f * g + back * tl.sum(part * y, 2)
                by_direction = tl.fma(part, by_space[:, :, None], -own_part * y)
                px = tl.load(own_row + kk * n + c, mask=x_seen[:, :, None] & (kk < K), other=0)
                wt = tl.load(time_weight + kk * n + c, mask=kk < K, other=0)
                by_px = tl.fma(by_direction, px, by_px)
                by_wt = tl.fma(by_direction, wt, by_wt)
                to = grad_product + kernel_row + c
                before = tl.load(to, mask=kernel_seen, other=0)
                tl.store(to, before + tl.sum(by_direction * row_share, 1), mask=kernel_seen)
                if not TO_KEY:
                    before = tl.load(mine + k * n + c, mask=k < K, other=0)
                    tl.store(mine + k * n + c, before + tl.sum(tl.sum(by_direction, 1), 0), mask=k < K)
            tl.debug_barrier()  # other threads may read what these wrote
            by_stretch += tl.sum(near * along_points / p_time[None, None, :] - unit[:, :, None] * by_px, 2)
            by_reach += unit * tl.sum(by_wt, 2)
            by_gap = by_stretch / (1 + x_time)
            by_delta = by_reach + by_gap
            if TO_KEY:
                turn = (by_gap - by_delta * gap) / u_time + unit * pull
            else:
                turn = (by_delta * gap - by_gap * stretch) / x_time + stretch * stretch * unit * pull
            radial += tl.sum(turn + by_delta, 1)
            pull = stretch * unit * pull + by_delta
            by_point -= _sum_columns(pull, column_point, base, start, columns, n, COLUMNS, KP, NP)
        elif TO_KEY:
            along = grad_time * at_time + _product(at, turned_grad)
            by_point += _product(w, _rows(grad_mean, index, there, n + 1, 1, j, n))
            radial += tl.sum(w * (grad_time / at_time), 1)
        else:
            v_time = tl.sqrt(1 + _square_lengths(value, index, there, j, n))[None, :]
            along = grad_time * v_time + _product(grad, _turned(value, index, there, n + 1, 1, j, n))
        by_score = w * along
        pull_score = -2 * factor * by_score * ratio
        score_radial += tl.sum(pull_score * (there_time / s_time), 1)
        by_score_point -= _sum_columns(pull_score, score_column, base, start, columns, n, COLUMNS, KP, NP)
        by_steepness -= tl.sum(by_score * square, 1)
    _store_points(grad_score_point, row, here, by_score_point + score_radial[:, None] * s, j, n)
    if not TO_KEY:
        tl.store(grad_steepness + row, by_steepness, mask=here)
    if KERNEL:
        for kernel in range(K):
            pull_l = tl.sum(tl.where((k == kernel)[None, :], pulls, 0), 1)[:, None]
            p_l = tl.load(points + kernel * (n + 1) + 1 + j, mask=j < n, other=0)[None, :]
            by_point -= pull_l * (p_l / tl.sqrt(1 + tl.sum(p_l * p_l, 1))[:, None])
        tl.store(grad_product + row[:, None] * P + K * n + k[None, :], by_gate, mask=kernel_seen)
        if not TO_KEY:
            tl.store(mine + K * n + k, tl.sum(by_reach_gate, 0), mask=k < K)
            tl.store(mine + P + k, tl.sum(by_scale, 0), mask=k < K)
        if POINTS:
            found = (tl.sum(own_pulls, 0) / p_time)[:, None] * p - tl.sum(pulls[:, :, None] * at[:, None, :], 0)
            tl.store(mine + P + K + k[:, None] * (n + 1) + 1 + j[None, :], found / p_time[:, None], mask=inside)
    if KERNEL or TO_KEY:
        _store_points(grad_point, row, here, by_point + radial[:, None] * at, j, n)


def attend(pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
    """Aggregated points ``(H, B, T, n+1)``, their masses, and the logarithms of the sums of exponentials."""
    out, mass = torch.empty_like(pairs.query), torch.empty_like(pairs.query[..., 0])
    log_total = torch.empty_like(mass)
    if mass.numel():
        H, B, T = mass.shape
        options = _options(pairs, T)
        tensors = [*_pointers(pairs), out, mass, log_total]
        grid = (B * triton.cdiv(T, options["ROWS"]), H)
        _launch_forward(grid, tensors, T, pairs.key.size(2), B, options["n"], **options)
    return out, mass, log_total


def gradients(
    pairs: Pairs, outputs: tuple[Tensor, Tensor, Tensor], grad_out: Tensor, points_too: bool
) -> PairGradients:
    """Gradients of :func:`attend`, given its outputs and the gradient of its points."""
    H, B, T, coordinates = pairs.query.shape
    S, kernel = pairs.key.size(2), pairs.kernel
    options = [_options(pairs, length) for length in (T, S)]
    blocks = [B * triton.cdiv(length, each["ROWS"]) for length, each in zip((T, S), options)]
    K = options[0]["K"]
    query, key, value = (torch.empty_like(x) for x in (pairs.query, pairs.key, pairs.value))
    by_steepness = torch.empty_like(outputs[1])
    own, value_product, own_product, shared = query, query, query, query
    if kernel is not None:
        own, value_product = torch.empty_like(kernel.own), torch.empty_like(kernel.value_product)
        own_product = torch.empty_like(kernel.own_product)
        # Sums begin at zero, where the time of kernel points stays: it has no gradient.
        shared = query.new_zeros(H, sum(blocks), K * (2 * coordinates + 1))
    given = [*_pointers(pairs), *outputs, grad_out, torch.empty_like(grad_out)]
    sides = ([query, own, own_product], [key, value, value_product])
    for to_key, (side, constants) in enumerate(zip(sides, options)):
        if blocks[to_key]:
            numbers = T, S, B, coordinates - 1, blocks[0] * to_key, sum(blocks)
            tensors = [*given, *side, by_steepness, shared]
            constants = {**constants, "TO_KEY": bool(to_key), "POINTS": points_too}
            _launch_backward((blocks[to_key], H), tensors, *numbers, **constants)
    found = PairGradients(query, key, value, by_steepness.sum())
    if kernel is None:
        return found
    time, scale, points = shared.sum(1).split([K * coordinates, K, K * coordinates], dim=-1)
    return found._replace(
        own=own,
        value_product=value_product,
        own_product=own_product,
        time=time,
        scale=scale,
        points=points.sum(0).view(K, coordinates) if points_too else query.new_empty(0),
    )


def _pointers(pairs: Pairs) -> list[Tensor]:
    """The first arguments of both kernels; where there is nothing to read stands something that is not read."""
    points = [pairs.query, pairs.key, pairs.value]
    kernel = [pairs.query] * 7 if pairs.kernel is None else list(pairs.kernel)
    padding = pairs.query if pairs.padding is None else pairs.padding.view(torch.uint8)
    return [*points, *kernel, pairs.steepness, padding]


def _options(pairs: Pairs, length: int) -> dict[str, int | bool]:
    kernels = 0 if pairs.kernel is None else pairs.kernel.points.size(0)
    n, is_double = pairs.query.size(-1) - 1, pairs.query.dtype == torch.float64
    return _constants(n, kernels, pairs.padding is not None, pairs.causal, length > 16 and not is_double)


@lru_cache(maxsize=64)
def _constants(n: int, kernels: int, padded: bool, causal: bool, is_long: bool) -> dict[str, int | bool]:
    """Constants the kernels are compiled for; a product on tensor cores has at least 16 rows and summands."""
    sizes = {"n": n, "K": max(kernels, 1), "KERNEL": kernels > 0, "PADDED": padded, "CAUSAL": causal}
    widths = {"KP": _power_of_two(sizes["K"]), "NP": max(16, _power_of_two(n))}
    # What one warp takes fits into its registers, and no sum waits for another.
    warps = max(1, min(4, widths["KP"] * widths["NP"] // 64))
    tile = {"ROWS": 16, "COLUMNS": 8 if kernels > 1 else 16, "num_warps": warps}
    if is_long and not kernels and widths["NP"] <= 64:
        tile = {"ROWS": 32, "COLUMNS": 32, "num_warps": 4}
    # Points that are loaded ahead are in shared memory, of which a small GPU has 99 KiB for a program.
    return {**sizes, **widths, **tile, "num_stages": max(1, min(3, 128 // widths["NP"]))}


_launch_forward, _launch_backward = Launcher(_forward), Launcher(_backward)
