r"""The maps of :mod:`hkconv.ops.rows` on CUDA: Triton kernels, one program a tile of rows.

Sums over all rows, for what the rows share, are PyTorch's of what each row or each program has: no atomics, and the
same input gives the same bits. In Triton's interpreter the same functions take CPU tensors.
"""

import math
import sys
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from hkconv.geometry.maps import max_radius
from hkconv.ops.backends import Launcher
from hkconv.ops.cuda_parts import _arcosh1p, _power_of_two, _relate, _sigmoid

# Elements of a tile, and of them a warp's.
TILE, TILE_PER_WARP = 1024, 256


@triton.jit
def _tile(rows, n: tl.constexpr, B: tl.constexpr, NP: tl.constexpr):
    """The rows of this program, which of them there are, the columns, and which entries there are."""
    row = (tl.program_id(0) * B + tl.arange(0, B)).to(tl.int64)
    column = tl.arange(0, NP)
    valid = row < rows
    return row, valid, column, valid[:, None] & (column < n)[None, :]


@triton.jit
def _store_points(out, row, valid, column, inside, time, space, n: tl.constexpr):
    tl.store(out + row * (n + 1), time, mask=valid)
    tl.store(out + row[:, None] * (n + 1) + 1 + column[None, :], space, mask=inside)


@triton.jit
def _space(points, row, column, inside, n: tl.constexpr):
    return tl.load(points + row[:, None] * (n + 1) + 1 + column[None, :], mask=inside, other=0)


@triton.jit
def _lift(space, R: tl.constexpr):
    return tl.sqrt(R * R + tl.sum(space * space, 1))


@triton.jit(do_not_specialize=["rows", "stride"])
def _lifted(
    space, out, rows, stride, n: tl.constexpr, R: tl.constexpr, B: tl.constexpr, NP: tl.constexpr
):  # fmt: skip
    row, valid, column, inside = _tile(rows, n, B, NP)
    s = tl.load(space + row[:, None] * stride + column[None, :], mask=inside, other=0)
    _store_points(out, row, valid, column, inside, _lift(s, R), s, n)


@triton.jit(do_not_specialize=["rows", "stride"])
def _lifted_gradients(
    space, grad, out, rows, stride, n: tl.constexpr, R: tl.constexpr, B: tl.constexpr, NP: tl.constexpr
):  # fmt: skip
    """t' s / t + s'."""
    row, valid, column, inside = _tile(rows, n, B, NP)
    s = tl.load(space + row[:, None] * stride + column[None, :], mask=inside, other=0)
    slope = tl.load(grad + row * (n + 1), mask=valid, other=0) / _lift(s, R)
    found = slope[:, None] * s + _space(grad, row, column, inside, n)
    tl.store(out + row[:, None] * n + column[None, :], found, mask=inside)


@triton.jit
def _gate(
    products, bias, gate_bias, log_scale, row, valid, column, inside,
    K: tl.constexpr, n: tl.constexpr, R: tl.constexpr, TINY: tl.constexpr,
):  # fmt: skip
    """Directions z (rows, n), norms with 1 for 0, gates g, lengths λσ(g), those of the points, and their times."""
    kernel = row % K
    start = products + (row // K) * (K * (n + 1))
    z = tl.load(start[:, None] + (kernel * n)[:, None] + column[None, :], mask=inside, other=0)
    z += tl.load(bias + (kernel * n)[:, None] + column[None, :], mask=inside, other=0)
    gate = tl.load(start + K * n + kernel, mask=valid, other=0) + tl.load(gate_bias + kernel, mask=valid, other=0)
    length = tl.exp(tl.load(log_scale + kernel, mask=valid, other=0)) * _sigmoid(gate)
    # In units of the largest coordinate, so that the squares of far inputs stay finite. Numbers below the normal ones
    # are no direction: a GPU divides by them as by zero.
    largest = tl.max(tl.abs(z), 1)
    largest = tl.where(largest < TINY, 0, largest)
    unit = tl.where(largest > 0, largest, 1)
    scaled = z / unit[:, None]
    norm = largest * tl.sqrt(tl.sum(scaled * scaled, 1))
    reach = tl.where(norm > 0, length, 0)
    return z, tl.where(norm > 0, norm, 1), gate, length, reach, tl.sqrt(R * R + reach * reach)


@triton.jit(do_not_specialize=["rows"])
def _gated_points(
    products, bias, gate_bias, log_scale, out, rows,
    K: tl.constexpr, n: tl.constexpr, R: tl.constexpr, TINY: tl.constexpr, B: tl.constexpr, NP: tl.constexpr,
):  # fmt: skip
    row, valid, column, inside = _tile(rows, n, B, NP)
    z, safe, _, length, _, time = _gate(products, bias, gate_bias, log_scale, row, valid, column, inside, K, n, R, TINY)
    _store_points(out, row, valid, column, inside, time, (length / safe)[:, None] * z, n)


@triton.jit(do_not_specialize=["rows"])
def _gated_points_gradients(
    products, bias, gate_bias, log_scale, grad, found, by_scale, rows,
    K: tl.constexpr, n: tl.constexpr, R: tl.constexpr, TINY: tl.constexpr, B: tl.constexpr, NP: tl.constexpr,
):  # fmt: skip
    """With u = z/|z|: z' = (ℓ/|z|)(s' - (s'·u) u) and ℓ' = s'·u + t' ℓ/t."""
    row, valid, column, inside = _tile(rows, n, B, NP)
    z, safe, gate, length, reach, time = _gate(
        products, bias, gate_bias, log_scale, row, valid, column, inside, K, n, R, TINY
    )
    by_space = _space(grad, row, column, inside, n)
    u = z / safe[:, None]
    along = tl.sum(by_space * u, 1)
    by_z = (length / safe)[:, None] * (by_space - along[:, None] * u)
    by_length = along + tl.load(grad + row * (n + 1), mask=valid, other=0) * (reach / time)
    kernel = row % K
    start = found + (row // K) * (K * (n + 1))
    tl.store(start[:, None] + (kernel * n)[:, None] + column[None, :], by_z, mask=inside)
    tl.store(start + K * n + kernel, by_length * length * _sigmoid(-gate), mask=valid)
    tl.store(by_scale + row, by_length * length, mask=valid)


@triton.jit
def _mix(first, second, logit, row, valid, column, inside, n: tl.constexpr, R: tl.constexpr):
    """Both weights, the gaps in space and time, ‖x - y‖², the mass and the space of the centroid."""
    beta = tl.load(logit)
    share, rest = _sigmoid(beta), _sigmoid(-beta)
    x, y = _space(first, row, column, inside, n), _space(second, row, column, inside, n)
    start = row * (n + 1)
    time_gap = tl.load(first + start, mask=valid, other=0) - tl.load(second + start, mask=valid, other=0)
    gap = x - y
    square = tl.sum(gap * gap, 1) - time_gap * time_gap
    mass = tl.sqrt(1 + share * rest * tl.where(square > 0, square, 0) / (R * R))
    return share, rest, gap, time_gap, square, mass, (rest * x + share * y) / mass[:, None]


@triton.jit
def _standardize(space, inside, eps: tl.constexpr, n: tl.constexpr):
    centered = tl.where(inside, space - (tl.sum(space, 1) / n)[:, None], 0)
    deviation = tl.sqrt(tl.sum(centered * centered, 1) / n + eps)
    return centered / deviation[:, None], deviation


@triton.jit(do_not_specialize=["rows"])
def _mixed_norm(
    first, second, logit, weight, bias, out, rows,
    n: tl.constexpr, eps: tl.constexpr, R: tl.constexpr, B: tl.constexpr, NP: tl.constexpr,
):  # fmt: skip
    row, valid, column, inside = _tile(rows, n, B, NP)
    _, _, _, _, _, _, space = _mix(first, second, logit, row, valid, column, inside, n, R)
    standard, _ = _standardize(space, inside, eps, n)
    scale = tl.load(weight + column, mask=column < n, other=0)
    h = standard * scale[None, :] + tl.load(bias + column, mask=column < n, other=0)[None, :]
    _store_points(out, row, valid, column, inside, _lift(h, R), h, n)


@triton.jit(do_not_specialize=["rows"])
def _mixed_norm_gradients(
    first, second, logit, weight, bias, grad, by_first, by_second, sums, rows,
    n: tl.constexpr, eps: tl.constexpr, R: tl.constexpr, B: tl.constexpr, NP: tl.constexpr,
):  # fmt: skip
    """Gradients of both points, and this program's sums for weight, bias and logit.

    With w = (1-σ) x + σ y, the mass M = sqrt(1 + σ(1-σ) q/R²) and q = ‖x - y‖²:
    w' = (w/M)'/M, M' = -(w/M)'·(w/M)/M and q' = M' σ(1-σ)/(2 M R²).
    """
    row, valid, column, inside = _tile(rows, n, B, NP)
    share, rest, gap, time_gap, square, mass, space = _mix(first, second, logit, row, valid, column, inside, n, R)
    standard, deviation = _standardize(space, inside, eps, n)
    scale = tl.load(weight + column, mask=column < n, other=0)
    h = standard * scale[None, :] + tl.load(bias + column, mask=column < n, other=0)[None, :]
    h = tl.where(inside, h, 0)
    slope = tl.load(grad + row * (n + 1), mask=valid, other=0) / _lift(h, R)
    by_h = slope[:, None] * h + _space(grad, row, column, inside, n)
    by_standard = by_h * scale[None, :]
    along = tl.sum(by_standard * standard, 1) / n
    by_space = by_standard - (tl.sum(by_standard, 1) / n)[:, None] - along[:, None] * standard
    by_space = tl.where(inside, by_space / deviation[:, None], 0)
    by_mix = by_space / mass[:, None]
    by_mass = -tl.sum(by_space * space, 1) / mass
    by_product = tl.where(square >= 0, by_mass / (2 * mass * R * R), 0)
    by_square = by_product * share * rest
    by_gap = 2 * by_square[:, None] * gap
    by_time_gap = -2 * by_square * time_gap
    _store_points(by_first, row, valid, column, inside, by_time_gap, rest * by_mix + by_gap, n)
    _store_points(by_second, row, valid, column, inside, -by_time_gap, share * by_mix - by_gap, n)
    by_share = -tl.sum(by_mix * gap, 1) + by_product * tl.where(square > 0, square, 0) * (rest - share)
    own = sums + tl.program_id(0).to(tl.int64) * (2 * n + 1)
    tl.store(own + column, tl.sum(by_h * standard, 0), mask=column < n)
    tl.store(own + n + column, tl.sum(tl.where(inside, by_h, 0), 0), mask=column < n)
    tl.store(own + 2 * n, tl.sum(tl.where(valid, by_share, 0), 0) * share * rest)


@triton.jit
def _view(points, gate_weight, c: tl.constexpr, row, valid, column, inside, n: tl.constexpr):
    """Space and time of a view, the weights of its gate for both, and how far that is open."""
    space = _space(points, row, column, inside, n)
    time = tl.load(points + row * (n + 1), mask=valid, other=0)
    weight = tl.load(gate_weight + c * (n + 1) + 1 + column, mask=column < n, other=0)
    time_weight = tl.load(gate_weight + c * (n + 1))
    return space, time, weight, time_weight, _sigmoid(tl.sum(space * weight[None, :], 1) + time * time_weight)


@triton.jit
def _square(x, y, x_time, y_time):
    """‖x - y‖², in double precision: of far points it is a small difference of large squares."""
    gap, time_gap = x.to(tl.float64) - y.to(tl.float64), x_time.to(tl.float64) - y_time.to(tl.float64)
    return (tl.sum(gap * gap, 1) - time_gap * time_gap).to(x.dtype)


@triton.jit
def _shares(gate_mix, o1, o2, o3):
    z1 = 3 * (o1 + o1 * tl.load(gate_mix) + o2 * tl.load(gate_mix + 3) + o3 * tl.load(gate_mix + 6))
    z2 = 3 * (o2 + o1 * tl.load(gate_mix + 1) + o2 * tl.load(gate_mix + 4) + o3 * tl.load(gate_mix + 7))
    z3 = 3 * (o3 + o1 * tl.load(gate_mix + 2) + o2 * tl.load(gate_mix + 5) + o3 * tl.load(gate_mix + 8))
    highest = tl.maximum(z1, tl.maximum(z2, z3))
    e1, e2, e3 = tl.exp(z1 - highest), tl.exp(z2 - highest), tl.exp(z3 - highest)
    total = e1 + e2 + e3
    return e1 / total, e2 / total, e3 / total


@triton.jit
def _mixture(x, y, z, x_time, y_time, z_time, g1, g2, g3, R: tl.constexpr):
    """‖·‖² of the gaps between two views each, Σ_c g_c ‖y_c - mean‖², the mass and the space of the centroid."""
    xy, xz, yz = _square(x, y, x_time, y_time), _square(x, z, x_time, z_time), _square(y, z, y_time, z_time)
    variance = g1 * g2 * xy + g3 * (g1 * xz + g2 * yz)
    mass = tl.sqrt(1 + tl.where(variance < 0, 0, variance) / (R * R))
    mean = g1[:, None] * x + g2[:, None] * y + g3[:, None] * z
    return xy, xz, yz, variance, mass, mean / mass[:, None]


@triton.jit(do_not_specialize=["rows"])
def _mixed_views(
    differences, neighbors, node, gate_weight, gate_mix, out, rows,
    n: tl.constexpr, R: tl.constexpr, B: tl.constexpr, NP: tl.constexpr,
):  # fmt: skip
    row, valid, column, inside = _tile(rows, n, B, NP)
    x, x_time, _, _, o1 = _view(differences, gate_weight, 0, row, valid, column, inside, n)
    y, y_time, _, _, o2 = _view(neighbors, gate_weight, 1, row, valid, column, inside, n)
    z, z_time, _, _, o3 = _view(node, gate_weight, 2, row, valid, column, inside, n)
    g1, g2, g3 = _shares(gate_mix, o1, o2, o3)
    _, _, _, _, _, h = _mixture(x, y, z, x_time, y_time, z_time, g1, g2, g3, R)
    _store_points(out, row, valid, column, inside, _lift(h, R), h, n)


@triton.jit
def _to_view(
    out, own, space, time, weight, time_weight, mean, mean_time, by_mean, share, spread, by_opening,
    row, valid, column, inside, n: tl.constexpr,
):  # fmt: skip
    """g_c m' + 2 g_c Var' (y_c - m) + a_c' v_c, the second with the sign of time, and this program's sums for v_c."""
    found = share[:, None] * (by_mean + spread[:, None] * (space - mean)) + by_opening[:, None] * weight[None, :]
    by_time = by_opening * time_weight - share * spread * (time - mean_time)
    _store_points(out, row, valid, column, inside, by_time, found, n)
    tl.store(own, tl.sum(by_opening * time, 0))
    tl.store(own + 1 + column, tl.sum(by_opening[:, None] * space, 0), mask=column < n)


@triton.jit
def _to_opening(gate_mix, own, c: tl.constexpr, opening, by_own, z1, z2, z3):
    """The gradient of v_c · y_c from those of the gates, thrice, and this program's sums for a row of the mixing."""
    by_opening = by_own + z1 * tl.load(gate_mix + 3 * c)
    by_opening += z2 * tl.load(gate_mix + 3 * c + 1) + z3 * tl.load(gate_mix + 3 * c + 2)
    tl.store(own + 3 * c, tl.sum(opening * z1, 0))
    tl.store(own + 3 * c + 1, tl.sum(opening * z2, 0))
    tl.store(own + 3 * c + 2, tl.sum(opening * z3, 0))
    return by_opening * opening * (1 - opening)


@triton.jit(do_not_specialize=["rows"])
def _mixed_views_gradients(
    differences, neighbors, node, gate_weight, gate_mix, grad, by_x, by_y, by_z, sums, rows,
    n: tl.constexpr, R: tl.constexpr, B: tl.constexpr, NP: tl.constexpr,
):  # fmt: skip
    """Gradients of the three views, and this program's sums for the weights of the gates and for their mixing.

    With the mean m, the mass M = sqrt(1 + Var/R²) and the space h = m_s/M of the result: m_s' = h'/M, M' = -h'·h/M and
    Var' = M'/(2 M R²). The softmax takes from the gradient of g_c what all have in common, which leaves m'·(y_c - m)
    and Var' (‖y_c - m‖² - Var), where ‖y_c - m‖² = Σ_c' g_c' ‖y_c - y_c'‖² - Var.
    """
    row, valid, column, inside = _tile(rows, n, B, NP)
    x, x_time, x_weight, x_time_weight, o1 = _view(differences, gate_weight, 0, row, valid, column, inside, n)
    y, y_time, y_weight, y_time_weight, o2 = _view(neighbors, gate_weight, 1, row, valid, column, inside, n)
    z, z_time, z_weight, z_time_weight, o3 = _view(node, gate_weight, 2, row, valid, column, inside, n)
    g1, g2, g3 = _shares(gate_mix, o1, o2, o3)
    xy, xz, yz, variance, mass, h = _mixture(x, y, z, x_time, y_time, z_time, g1, g2, g3, R)
    slope = tl.load(grad + row * (n + 1), mask=valid, other=0) / _lift(h, R)
    by_h = slope[:, None] * h + _space(grad, row, column, inside, n)
    by_mean, mean = by_h / mass[:, None], h * mass[:, None]
    by_variance = tl.where(variance < 0, 0, -tl.sum(by_h * h, 1) / (2 * mass * mass * R * R))
    z1 = 3 * g1 * (tl.sum(by_mean * (x - mean), 1) + by_variance * (g2 * xy + g3 * xz - 2 * variance))
    z2 = 3 * g2 * (tl.sum(by_mean * (y - mean), 1) + by_variance * (g1 * xy + g3 * yz - 2 * variance))
    z3 = 3 * g3 * (tl.sum(by_mean * (z - mean), 1) + by_variance * (g1 * xz + g2 * yz - 2 * variance))
    own = sums + tl.program_id(0).to(tl.int64) * (3 * n + 12)
    a1 = _to_opening(gate_mix, own + 3 * n + 3, 0, o1, z1, z1, z2, z3)
    a2 = _to_opening(gate_mix, own + 3 * n + 3, 1, o2, z2, z1, z2, z3)
    a3 = _to_opening(gate_mix, own + 3 * n + 3, 2, o3, z3, z1, z2, z3)
    mean_time = g1 * x_time + g2 * y_time + g3 * z_time
    spread = 2 * by_variance
    _to_view(
        by_x, own, x, x_time, x_weight, x_time_weight, mean, mean_time, by_mean, g1, spread, a1,
        row, valid, column, inside, n,
    )  # fmt: skip
    _to_view(
        by_y, own + n + 1, y, y_time, y_weight, y_time_weight, mean, mean_time, by_mean, g2, spread, a2,
        row, valid, column, inside, n,
    )  # fmt: skip
    _to_view(
        by_z, own + 2 * n + 2, z, z_time, z_weight, z_time_weight, mean, mean_time, by_mean, g3, spread, a3,
        row, valid, column, inside, n,
    )  # fmt: skip


@triton.jit(do_not_specialize=["rows"])
def _distances(
    points, centers, out, rows, C: tl.constexpr, n: tl.constexpr, R: tl.constexpr, B: tl.constexpr, NP: tl.constexpr
):  # fmt: skip
    row, valid, column, inside = _tile(rows, n, B, NP)
    x = _space(points, row, column, inside, n) / R
    x_time = _lift(x, 1)
    for c in range(C):
        p = (tl.load(centers + c * n + column, mask=column < n, other=0) / R)[None, :] + tl.zeros([B, NP], x.dtype)
        delta, _, _ = _relate(x, p, x_time, _lift(p, 1))
        distance = R * _arcosh1p(delta, tl.sqrt(delta) * tl.sqrt(delta + 2))
        tl.store(out + row * C + c, distance, mask=valid)


@triton.jit(do_not_specialize=["rows"])
def _distances_gradients(
    points, centers, grad, by_points, sums, rows,
    C: tl.constexpr, n: tl.constexpr, R: tl.constexpr, B: tl.constexpr, NP: tl.constexpr,
):  # fmt: skip
    """d' δ' with δ' = (x - p) - (x_t - p_t) x/x_t and d' = 1/sinh(d/R), 0 at d = 0; likewise of p."""
    row, valid, column, inside = _tile(rows, n, B, NP)
    x = _space(points, row, column, inside, n) / R
    x_time = _lift(x, 1)
    by_x = tl.zeros([B, NP], x.dtype)
    mine = sums + tl.program_id(0).to(tl.int64) * (C * n)
    for c in range(C):
        p = (tl.load(centers + c * n + column, mask=column < n, other=0) / R)[None, :] + tl.zeros([B, NP], x.dtype)
        p_time = _lift(p, 1)
        delta, _, gap = _relate(x, p, x_time, p_time)
        sinh = tl.sqrt(delta) * tl.sqrt(delta + 2)
        slope = tl.load(grad + row * C + c, mask=valid, other=0)
        slope = tl.where(sinh > 0, slope / tl.where(sinh > 0, sinh, 1), 0)
        by_x += slope[:, None] * ((x - p) - (gap / x_time)[:, None] * x)
        by_p = slope[:, None] * ((p - x) + (gap / p_time)[:, None] * p)
        tl.store(mine + c * n + column, tl.sum(by_p, 0), mask=column < n)
    _store_points(by_points, row, valid, column, inside, tl.zeros([B], x.dtype), by_x, n)


@triton.jit
def _sinh_per(r):
    """sinh(r)/r: by its series where the difference of exponentials would cancel."""
    q = r * r
    near = 1 + q / 6 * (1 + q / 20 * (1 + q / 42 * (1 + q / 72 * (1 + q / 110 * (1 + q / 156)))))
    return tl.where(r < 0.5, near, 0.5 * (tl.exp(r) - tl.exp(-r)) / tl.where(r > 0, r, 1))


@triton.jit
def _cut(v, longest):
    """Lengths of vectors up to one, whose squares may overflow, and what shortens them to it."""
    largest = tl.max(tl.abs(v), 1)
    unit = v / tl.where(largest > 0, largest, 1)[:, None]
    length = largest * tl.sqrt(tl.sum(unit * unit, 1))
    return tl.minimum(length, longest), tl.minimum(1, longest / tl.where(length > 0, length, 1))


@triton.jit
def _turn(x, x_time, y, y_time, w):
    """Parallel transport from x to y of vectors carried to the origin; :func:`hkconv.geometry.maps.turn` for R = 1."""
    s = x / (1 + x_time)[:, None]
    s_square = tl.sum(s * s, 1)
    apart = y - x
    across = apart - (tl.sum(apart * s, 1) / tl.where(s_square > 0, s_square, 1))[:, None] * s
    delta, _, _ = _relate(y, x, y_time, x_time)
    e = across * ((1 + x_time) / (2 + delta + x_time + y_time))[:, None]
    e_square, along_s, along_e = tl.sum(e * e, 1), tl.sum(w * s, 1), tl.sum(w * e, 1)
    by_s, by_e = along_e - along_s * e_square, -along_s - along_e * s_square
    return w + (2 / (1 + s_square * e_square))[:, None] * (by_s[:, None] * s + by_e[:, None] * e)


@triton.jit(do_not_specialize=["rows", "rows_a_rate"])
def _adam(
    points, grad, first, second, rate, count, rows, rows_a_rate,
    n: tl.constexpr, LOG_BETA1: tl.constexpr, LOG_BETA2: tl.constexpr, KEEP1: tl.constexpr, KEEP2: tl.constexpr,
    EPS: tl.constexpr, SIGN: tl.constexpr, R: tl.constexpr, FARTHEST: tl.constexpr, LONGEST: tl.constexpr,
    B: tl.constexpr, NP: tl.constexpr,
):  # fmt: skip
    """The step of :class:`~hkconv.engine.optimizer.RiemannianAdam`, on the hyperboloid of curvature -1."""
    row, valid, column, inside = _tile(rows, n, B, NP)
    x = _space(points, row, column, inside, n) / R
    x_time = _lift(x, 1)
    time_gradient = SIGN * tl.load(grad + row * (n + 1), mask=valid, other=0)
    gradient = SIGN * _space(grad, row, column, inside, n)
    gradient += (time_gradient + tl.sum(gradient * x, 1) / (1 + x_time))[:, None] * x
    place = row[:, None] * n + column[None, :]
    m = tl.load(first + place, mask=inside, other=0)
    m += KEEP1 * (gradient - m)
    v = tl.load(second + row, mask=valid, other=0)
    v += KEEP2 * (tl.sum(gradient * gradient, 1) - v)
    steps = tl.load(count).to(tl.float64)
    corrected = v / (1 - tl.exp(steps * LOG_BETA2)).to(x.dtype)
    eta = tl.load(rate + row // rows_a_rate, mask=valid, other=0).to(x.dtype)
    step = -eta / ((1 - tl.exp(steps * LOG_BETA1)).to(x.dtype) * (tl.sqrt(corrected) + EPS)) / R
    w = step[:, None] * m
    length, shorter = _cut(w, FARTHEST)
    ahead = (_sinh_per(length) * shorter)[:, None] * w
    _, stretch, _ = _relate(ahead, -x, _lift(ahead, 1), x_time)
    moved = ahead + (1 + stretch)[:, None] * x
    _, shorter = _cut(moved, LONGEST)
    moved = shorter[:, None] * moved
    moved_time = _lift(moved, 1)
    tl.store(first + place, _turn(x, x_time, moved, moved_time, m), mask=inside)
    tl.store(second + row, v, mask=valid)
    _store_points(points, row, valid, column, inside, R * moved_time, R * moved, n)


def lifted(space: Tensor, R: float) -> Tensor:
    """Points over rows of spatial coordinates, ``(..., n) -> (..., n+1)``."""
    rows = _rows(space)
    out = space.new_empty(*space.shape[:-1], space.size(-1) + 1)
    if out.numel():
        _launch(_for_lifted, rows, [rows, out], rows.stride(0), R=R)
    return out


def lifted_gradients(grad: Tensor, space: Tensor, R: float) -> list[Tensor]:
    """The gradient of :func:`lifted`."""
    rows = _rows(space)
    out = torch.empty_like(space, memory_format=torch.contiguous_format)
    if out.numel():
        _launch(_for_lifted_gradients, rows, [rows, grad, out], rows.stride(0), R=R)
    return [out]


def gated_points(products: Tensor, bias: Tensor, gate_bias: Tensor, log_scale: Tensor, R: float) -> Tensor:
    """Points out of the products of HLinear, ``(N, K, n+1)``."""
    K, n = bias.shape
    out = products.new_empty(len(products), K, n + 1)
    if out.numel():
        tensors = [*_contiguous(products, bias, gate_bias, log_scale), out]
        rows = out.view(-1, n + 1)[:, 1:]
        tiny = torch.finfo(out.dtype).tiny
        _launch(_for_gated_points, rows, tensors, K=K, R=R, TINY=tiny)
    return out


def gated_points_gradients(
    grad: Tensor, products: Tensor, bias: Tensor, gate_bias: Tensor, log_scale: Tensor, R: float
) -> list[Tensor]:
    """The gradients of :func:`gated_points`, in the order of its tensors."""
    K, n = bias.shape
    found = products.new_empty(products.shape)
    by_scale = products.new_empty(len(products), K)
    if found.numel():
        rows = grad.view(-1, n + 1)[:, 1:]
        tensors = [*_contiguous(products, bias, gate_bias, log_scale), grad, found, by_scale]
        tiny = torch.finfo(grad.dtype).tiny
        _launch(_for_gated_points_gradients, rows, tensors, K=K, R=R, TINY=tiny)
    total = found.sum(0)
    return [found, total[: K * n].view_as(bias), total[K * n :].view_as(gate_bias), by_scale.sum(0).view_as(log_scale)]


def mixed_norm(
    first: Tensor, second: Tensor, logit: Tensor, weight: Tensor, bias: Tensor, eps: float, R: float
) -> Tensor:
    """Normalized centroids of two points each, ``(..., n+1)``."""
    out = first.new_empty(first.shape)
    if out.numel():
        rows = out.view(-1, out.size(-1))[:, 1:]
        tensors = [*_contiguous(first, second, logit, weight, bias), out]
        _launch(_for_mixed_norm, rows, tensors, eps=eps, R=R)
    return out


def mixed_norm_gradients(
    grad: Tensor, first: Tensor, second: Tensor, logit: Tensor, weight: Tensor, bias: Tensor, eps: float, R: float
) -> list[Tensor]:
    """The gradients of :func:`mixed_norm`, in the order of its tensors."""
    by_first, by_second = first.new_empty(first.shape), first.new_empty(first.shape)
    n = weight.numel()
    rows = by_first.view(-1, n + 1)[:, 1:]
    sums = first.new_zeros(_programs(rows), 2 * n + 1)
    if by_first.numel():
        tensors = [*_contiguous(first, second, logit, weight, bias), grad, by_first, by_second, sums]
        _launch(_for_mixed_norm_gradients, rows, tensors, eps=eps, R=R)
    total = sums.sum(0)
    return [by_first, by_second, total[2 * n].view_as(logit), total[:n].view_as(weight), total[n : 2 * n].view_as(bias)]


def mixed_views(
    differences: Tensor, neighbors: Tensor, node: Tensor, gate_weight: Tensor, gate_mix: Tensor, R: float
) -> Tensor:
    """Centroids of three points each, ``(N, n+1)``."""
    out = differences.new_empty(differences.shape)
    if out.numel():
        tensors = [*_contiguous(differences, neighbors, node, gate_weight, gate_mix), out]
        _launch(_for_mixed_views, out[:, 1:], tensors, R=R)
    return out


def mixed_views_gradients(
    grad: Tensor, differences: Tensor, neighbors: Tensor, node: Tensor, gate_weight: Tensor, gate_mix: Tensor, R: float
) -> list[Tensor]:
    """The gradients of :func:`mixed_views`, in the order of its tensors."""
    by_views = [grad.new_empty(grad.shape) for _ in range(3)]
    rows = grad[:, 1:]
    sums = grad.new_zeros(_programs(rows), gate_weight.numel() + gate_mix.numel())
    if grad.numel():
        tensors = [*_contiguous(differences, neighbors, node, gate_weight, gate_mix), grad, *by_views, sums]
        _launch(_for_mixed_views_gradients, rows, tensors, R=R)
    by_weight, by_mix = sums.sum(0).split([gate_weight.numel(), gate_mix.numel()])
    return [*by_views, by_weight.view_as(gate_weight), by_mix.view_as(gate_mix)]


def distances(points: Tensor, centers: Tensor, R: float) -> Tensor:
    """Distances of points ``(N, n+1)`` to centers, ``(N, C)``."""
    out = points.new_empty(len(points), len(centers))
    if out.numel():
        tensors = [*_contiguous(points, centers), out]
        _launch(_for_distances, tensors[0][:, 1:], tensors, C=len(centers), R=R)
    return out


def distances_gradients(grad: Tensor, points: Tensor, centers: Tensor, R: float) -> list[Tensor]:
    """The gradients of :func:`distances`, in the order of its tensors."""
    points, centers = _contiguous(points, centers)
    by_points, rows = torch.empty_like(points), points[:, 1:]
    sums = points.new_empty(_programs(rows), *centers.shape)
    if grad.numel():
        _launch(_for_distances_gradients, rows, [points, centers, grad, by_points, sums], C=len(centers), R=R)
    return [by_points, sums.sum(0)]


def move_points(
    points: Tensor, grad: Tensor, moments: tuple[Tensor, Tensor], rate: Tensor, count: Tensor, settings: dict[str, Any]
) -> None:
    """Move points, and the moments of their gradients, by a step of Riemannian Adam.

    Args:
        points, grad: ``(..., n+1)``.
        moments: the first ``(..., n)`` and the second ``(..., 1)``.
        rate: learning rates on the device, each of as many rows.
        count: number of the step, on the device.
        settings: ``betas``, ``eps``, ``sign`` of the gradient and ``R``.
    """
    (beta1, beta2), farthest = settings["betas"], max_radius(points.dtype)
    log1, log2 = (math.log(max(beta, sys.float_info.min)) for beta in (beta1, beta2))  # 0 has none
    decay = {"LOG_BETA1": log1, "LOG_BETA2": log2, "KEEP1": 1 - beta1, "KEEP2": 1 - beta2}
    limits = {"FARTHEST": farthest, "LONGEST": math.sinh(farthest)}
    tensors = [points, grad.contiguous(), *moments, rate, count]
    rows = points.view(-1, points.size(-1))[:, 1:]
    constants = {"EPS": settings["eps"], "SIGN": settings["sign"], "R": settings["R"]}
    _launch(_for_adam, rows, tensors, len(rows) // rate.numel(), **decay, **constants, **limits)


def _contiguous(*tensors: Tensor) -> list[Tensor]:
    return [tensor.contiguous() for tensor in tensors]


def _rows(space: Tensor) -> Tensor:
    """As a matrix, without a copy where its rows lie evenly in memory, as they do in points."""
    rows = space.reshape(-1, space.size(-1))
    return rows if rows.stride(1) == 1 else rows.contiguous()


def _height(rows: Tensor) -> int:
    """Number of rows a program takes."""
    return max(1, TILE // _power_of_two(rows.size(1)))


def _programs(rows: Tensor) -> int:
    return -(-len(rows) // _height(rows))


def _launch(kernel: Launcher, rows: Tensor, tensors: list[Tensor], *numbers: int, **constants: Any) -> None:
    """Launch a kernel with a program for each tile of rows ``(N, n)``; their number is its first one."""
    n, B = rows.size(1), _height(rows)
    width = _power_of_two(n)
    sizes = {"n": n, "B": B, "NP": width, "num_warps": max(1, min(8, B * width // TILE_PER_WARP))}
    kernel((_programs(rows), 1), tensors, len(rows), *numbers, **constants, **sizes)


_for_lifted, _for_lifted_gradients = Launcher(_lifted), Launcher(_lifted_gradients)
_for_gated_points, _for_gated_points_gradients = Launcher(_gated_points), Launcher(_gated_points_gradients)
_for_mixed_norm, _for_mixed_norm_gradients = Launcher(_mixed_norm), Launcher(_mixed_norm_gradients)
_for_mixed_views, _for_mixed_views_gradients = Launcher(_mixed_views), Launcher(_mixed_views_gradients)
_for_adam = Launcher(_adam)
_for_distances, _for_distances_gradients = Launcher(_distances), Launcher(_distances_gradients)
