r"""Attention on CUDA: Triton kernels that walk over the keys of a query, or over the queries of a key, in tiles.

The mathematics of a pair is that of :mod:`hkconv.ops.cuda`. Forward, a program takes one query and keeps the highest
score so far, to which the sums of its weights and messages are relative. Backward, pairs are computed again: a first
walk gives each query its gradients and those of what all pairs share, a second gives each key its own. Nothing is
written by two programs, so that the same input gives the same bits, and nothing of the size of all pairs is stored.

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
from hkconv.ops.cuda import (
    TILE,
    TILE_PER_WARP,
    _arcosh1p,
    _backward_message,
    _correlate,
    _directions,
    _gates,
    _join,
    _kernel_points,
    _message,
    _points,
    _power_of_two,
    _relate,
    _spread,
    _store_centroid,
    _store_products,
    _time,
    _together,
    _transform,
)

# Programs that share the queries of a backward pass, each with sums of its own for what all pairs share: enough for
# every multiprocessor of a large GPU to hold as many as its registers allow, several times over.
PROGRAMS = 4224


@triton.jit
def _score(q, k, q_time, k_time):
    """d² of each pair, d/sinh d, and q_t - k_t."""
    delta, _, gap = _relate(q, k, q_time, k_time)
    root = tl.sqrt(delta) * tl.sqrt(delta + 2)
    distance = _arcosh1p(delta, root)
    return distance * distance, tl.where(root > 0, distance / tl.where(root > 0, root, 1), 1), gap


@triton.jit(do_not_specialize=["rows", "T", "S"])
def _forward(
    query, key, value, own, value_product, own_product, bias, time_weight, scale, points, steepness, padding,
    out, mass, log_total,
    rows, T, S, n: tl.constexpr, K: tl.constexpr, P: tl.constexpr, KERNEL: tl.constexpr, PADDED: tl.constexpr,
    CAUSAL: tl.constexpr, B: tl.constexpr, KP: tl.constexpr, NP: tl.constexpr,
):  # fmt: skip
    """The centroid of the messages to one query of one head."""
    item, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    batch = item // T
    row = head * rows + item
    base = (head * (rows // T) + batch) * S
    last = S
    if CAUSAL:
        last = tl.minimum(S, item - batch * T + S - T + 1)
    k, j = tl.arange(0, KP), tl.arange(0, NP)
    one = tl.zeros([1], tl.int64)
    yes = one == 0
    q = _points(query, one + row, n, j, yes)
    everywhere = tl.zeros([B], q.dtype)
    q_time = _time(q) + everywhere
    factor = tl.load(steepness)
    if KERNEL:
        p = _kernel_points(points, K, n, k, j)
        p_time = _time(p)
        lengths = tl.load(scale + head * K + k, mask=k < K, other=0)
        b, bg = _directions(bias, one + head, K, n, P, k, j, yes), _gates(bias, one + head, K, n, P, k, yes)
        wt = _directions(time_weight, one + head, K, n, P, k, j, yes)
        vt = _gates(time_weight, one + head, K, n, P, k, yes)
        x = _points(own, one + row, n, j, yes)
        x_time = _time(x) + everywhere
        px, gx = (
            _directions(own_product, one + row, K, n, P, k, j, yes),
            _gates(own_product, one + row, K, n, P, k, yes),
        )
    space = tl.zeros([B, NP], q.dtype)
    far = tl.zeros([B], q.dtype)
    rest = tl.zeros([B], q.dtype)
    spread = tl.zeros([B], q.dtype)
    total = tl.zeros([B], q.dtype)
    highest = tl.sum(total, 0) - float("inf")
    for start in range(0, last, B):
        e = start + tl.arange(0, B)
        valid = e < last
        if PADDED:
            valid = valid & (tl.load(padding + batch * S + e, mask=valid, other=1) == 0)
        index = base + e
        there = _points(key, index, n, j, valid)
        square, _, _ = _score(q, there, q_time, _time(there))
        score = tl.where(valid, -factor * square, float("-inf"))
        higher = tl.maximum(highest, tl.max(score, 0))
        level = tl.where(higher == float("-inf"), 0, higher)  # nothing seen so far
        w, shrink = tl.exp(score - level), tl.exp(highest - level)
        highest = higher
        u = _points(value, index, n, j, valid)
        u_time = _time(u)
        if KERNEL:
            delta, c_minus_1, _ = _relate(u, x, u_time, x_time)
            feature = (u - x) - c_minus_1[:, None] * x
            _, share, _, _ = _correlate(feature, 1 / (1 + delta), p, p_time, k < K, K)
            pu = _directions(value_product, index, K, n, P, k, j, valid)
            gu = _gates(value_product, index, K, n, P, k, valid)
            direction, norm, _, length = _transform(
                pu, px, b, wt, gu, gx, bg, vt, u_time, delta, c_minus_1, lengths, True
            )
            u, u_time, _ = _message(direction, norm, length, share)
        space, far, rest, spread = _join(space * shrink, far * shrink, rest * shrink, spread * shrink, u, u_time, w)
        total = total * shrink + w
    sum_of_weights = tl.sum(total, 0)
    all_space, all_far, all_rest, all_spread = _together(space, far, rest, spread)
    _store_centroid(out, mass, row, all_space, all_far, all_rest, all_spread, sum_of_weights, n, j)
    seen = sum_of_weights > 0
    tl.store(log_total + row, tl.where(seen, highest + tl.log(tl.where(seen, sum_of_weights, 1)), 0))


@triton.jit(do_not_specialize=["rows", "T", "S"])
def _backward(
    query, key, value, own, value_product, own_product, bias, time_weight, scale, points, steepness, padding,
    out, mass, log_total, grad_out, grad_mean, grad_score_point, grad_point, grad_product, grad_steepness, shared,
    rows, T, S, n: tl.constexpr, K: tl.constexpr, P: tl.constexpr, KERNEL: tl.constexpr, PADDED: tl.constexpr,
    CAUSAL: tl.constexpr, B: tl.constexpr, KP: tl.constexpr, NP: tl.constexpr, TO_KEY: tl.constexpr,
    POINTS: tl.constexpr,
):  # fmt: skip
    """Gradients of queries, their own values and what all pairs share; then (``TO_KEY``) of keys and values."""
    head = tl.program_id(1).to(tl.int64)
    k, j = tl.arange(0, KP), tl.arange(0, NP)
    one = tl.zeros([1], tl.int64)
    yes = one == 0
    factor = tl.load(steepness)
    spread = tl.zeros([B], factor.dtype)
    everywhere = tl.zeros([B, NP], factor.dtype)
    if KERNEL:
        p = _kernel_points(points, K, n, k, j)
        p_time = _time(p)
        lengths = tl.load(scale + head * K + k, mask=k < K, other=0)
        b, bg = _directions(bias, one + head, K, n, P, k, j, yes), _gates(bias, one + head, K, n, P, k, yes)
        wt = _directions(time_weight, one + head, K, n, P, k, j, yes)
        vt = _gates(time_weight, one + head, K, n, P, k, yes)
        by_wt = tl.zeros([B, KP, NP], factor.dtype)
        by_vt = tl.zeros([B, KP], factor.dtype)
        by_scale = tl.zeros([B, KP], factor.dtype)
        by_points = tl.zeros([B, KP, NP], factor.dtype)
    for item in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = head * rows + item
        first = 0
        if TO_KEY:
            batch = item // S
            place = item - batch * S
            base = (head * (rows // S) + batch) * T
            last = T
            if CAUSAL:
                first = tl.minimum(T, tl.maximum(0, place + T - S))
            if PADDED:
                last = tl.where(tl.load(padding + item) == 0, last, first)
            here = _points(key, one + row, n, j, yes)
            at = _points(value, one + row, n, j, yes)
        else:
            batch = item // T
            place = item - batch * T
            base = (head * (rows // T) + batch) * S
            last = S
            if CAUSAL:
                last = tl.minimum(S, place + S - T + 1)
            here = _points(query, one + row, n, j, yes)
            at = here
            if KERNEL:
                at = _points(own, one + row, n, j, yes)
            own_log = tl.load(log_total + row)
            mean_time, mean_space, _ = _spread(out, mass, grad_out, mass, row, own_log * 0 + 1, n, j, False)
            # For the walk over the keys.
            tl.store(grad_mean + row * (n + 1), mean_time)
            tl.store(grad_mean + row * (n + 1) + 1 + j, mean_space, mask=j < n)
        here_time, at_time = _time(here) + spread, _time(at) + spread
        if KERNEL:
            product = value_product if TO_KEY else own_product
            at_product = _directions(product, one + row, K, n, P, k, j, yes)
            at_gate = _gates(product, one + row, K, n, P, k, yes)
            by_own_direction = tl.zeros([B, KP, NP], factor.dtype)
            by_own_gate = tl.zeros([B, KP], factor.dtype)
        by_score_point = everywhere
        by_point = everywhere
        by_steepness = spread
        for start in range(first, last, B):
            e = start + tl.arange(0, B)
            valid = e < last
            if PADDED and not TO_KEY:
                valid = valid & (tl.load(padding + batch * S + e, mask=valid, other=1) == 0)
            index = base + e
            there = _points(query if TO_KEY else key, index, n, j, valid)
            there_time = _time(there)
            # Both ends of a pair enter alike, but for the sign of the gap between their times.
            square, ratio, gap = _score(here, there, here_time, there_time)
            log = tl.load(log_total + index, mask=valid, other=0) if TO_KEY else own_log + spread
            w = tl.where(valid, tl.exp(-factor * square - log), 0)
            if TO_KEY:
                grad_space = _points(grad_mean, index, n, j, valid)
                grad_time = tl.load(grad_mean + index * (n + 1), mask=valid, other=0)
                u, u_time = at + everywhere, at_time
            else:
                grad_space = mean_space[None, :] + everywhere
                grad_time = mean_time + spread
                u = _points(value, index, n, j, valid)
                u_time = _time(u)
            if KERNEL:
                if TO_KEY:
                    x = _points(own, index, n, j, valid)
                    x_time = _time(x)
                    pu = at_product + tl.zeros([B, KP, NP], factor.dtype)
                    gu = at_gate + tl.zeros([B, KP], factor.dtype)
                    px = _directions(own_product, index, K, n, P, k, j, valid)
                    gx = _gates(own_product, index, K, n, P, k, valid)
                else:
                    x, x_time = at + everywhere, at_time
                    pu = _directions(value_product, index, K, n, P, k, j, valid)
                    gu = _gates(value_product, index, K, n, P, k, valid)
                    px, gx = at_product, at_gate
                delta, c_minus_1, time_gap = _relate(u, x, u_time, x_time)
                unit = 1 / (1 + delta)
                feature = (u - x) - c_minus_1[:, None] * x
                klein_gap, share, slope, total = _correlate(feature, unit, p, p_time, k < K, K)
                direction, norm, opening, length = _transform(
                    pu, px, b, wt, gu, gx, bg, vt, u_time, delta, c_minus_1, lengths, True
                )
                by_direction, by_length, by_gate, by_share, along = _backward_message(
                    direction, norm, opening, length, share, grad_space, grad_time, w
                )
                by_distance = by_share - tl.sum(share * by_share, 1)[:, None]
                near = tl.where((total > 0)[:, None], by_distance / tl.where(total > 0, total, 1)[:, None] * slope, 0)
                near = tl.where((k < K)[None, :], near, 0)
                by_feature = tl.sum(near[:, :, None] * klein_gap, 1)
                by_stretch = -tl.sum(by_feature * x, 1)
                by_stretch -= unit * tl.sum(tl.sum(by_direction * px, 2), 1) + tl.sum(by_gate * gx, 1)
                by_reach = unit * tl.sum(tl.sum(by_direction * wt, 2), 1) + tl.sum(by_gate * vt, 1)
                by_gap = by_stretch / (1 + x_time)
                by_delta = by_reach + by_gap
                stretch = 1 + c_minus_1
                if TO_KEY:
                    radial = (by_gap - by_delta * time_gap) / u_time
                    by_point += by_feature + radial[:, None] * u + by_delta[:, None] * (u - x)
                    by_own_direction += unit[:, None, None] * by_direction
                    by_own_gate += by_gate
                else:
                    radial = (by_delta * time_gap - by_gap - by_gap * c_minus_1) / x_time
                    by_point += radial[:, None] * x - stretch[:, None] * by_feature - by_delta[:, None] * (u - x)
                    by_own_direction -= (stretch * unit)[:, None, None] * by_direction
                    by_own_gate -= stretch[:, None] * by_gate
                    by_scale += by_length * opening
                    by_wt += by_direction
                    by_vt += by_gate * (1 + delta)[:, None]
                    if POINTS:
                        pull = near * ((1 + delta)[:, None] / p_time[None, :])
                        by_points -= pull[:, :, None] * klein_gap
            else:
                along = grad_time * u_time + tl.sum(grad_space * u, 1)
                if TO_KEY:
                    by_point += w[:, None] * (grad_space + (grad_time / u_time)[:, None] * u)
            by_score = w * along
            pull_score = -2 * factor * by_score * ratio
            by_score_point += pull_score[:, None] * ((here - there) - (gap / here_time)[:, None] * here)
            by_steepness -= by_score * square
        target = grad_score_point + row * (n + 1)
        tl.store(target, 0.0)
        tl.store(target + 1 + j, tl.sum(by_score_point, 0), mask=j < n)
        if TO_KEY or KERNEL:
            target = grad_point + row * (n + 1)
            tl.store(target, 0.0)
            tl.store(target + 1 + j, tl.sum(by_point, 0), mask=j < n)
        if KERNEL:
            _store_products(grad_product + row * P, tl.sum(by_own_direction, 0), tl.sum(by_own_gate, 0), K, n, P, k, j)
        if not TO_KEY:
            tl.store(grad_steepness + row, tl.sum(by_steepness, 0))
    if KERNEL and not TO_KEY:
        mine = shared + (head * tl.num_programs(0) + tl.program_id(0)) * (P + K * (n + 2))
        _store_products(mine, tl.sum(by_wt, 0), tl.sum(by_vt, 0), K, n, P, k, j)
        tl.store(mine + P + k, tl.sum(by_scale, 0), mask=k < K)
        if POINTS:
            inside = (k < K)[:, None] & (j < n)[None, :]
            tl.store(mine + P + K + k[:, None] * (n + 1) + 1 + j[None, :], tl.sum(by_points, 0), mask=inside)


def attend(pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
    """Aggregated points ``(H, B, T, n+1)``, their masses, and the logarithms of the sums of exponentials."""
    out, mass = torch.empty_like(pairs.query), torch.empty_like(pairs.query[..., 0])
    log_total = torch.empty_like(mass)
    if mass.numel():
        H, B, T = mass.shape
        tensors = [*_pointers(pairs), out, mass, log_total]
        _launch_forward((B * T, H), tensors, B * T, T, pairs.key.size(2), **_options(pairs))
    return out, mass, log_total


def gradients(
    pairs: Pairs, outputs: tuple[Tensor, Tensor, Tensor], grad_out: Tensor, points_too: bool
) -> PairGradients:
    """Gradients of :func:`attend`, given its outputs and the gradient of its points."""
    H, B, T, coordinates = pairs.query.shape
    S, options = pairs.key.size(2), _options(pairs)
    K, P = options["K"], options["P"]
    programs = min(B * T, max(1, PROGRAMS // H))
    query, key, value = (torch.empty_like(x) for x in (pairs.query, pairs.key, pairs.value))
    by_steepness = torch.empty_like(outputs[1])
    own, value_product, own_product, shared = query, query, query, query
    if pairs.kernel is not None:
        own, value_product = torch.empty_like(pairs.kernel.own), torch.empty_like(pairs.kernel.value_product)
        own_product = torch.empty_like(pairs.kernel.own_product)
        # The time of kernel points has no gradient, and stays zero.
        shared = query.new_zeros(H, programs, P + K * (coordinates + 1))
    given = [*_pointers(pairs), *outputs, grad_out, torch.empty_like(grad_out)]
    if B * T:
        tensors = [*given, query, own, own_product, by_steepness, shared]
        _launch_backward((programs, H), tensors, B * T, T, S, TO_KEY=False, POINTS=points_too, **options)
    if B * S:
        tensors = [*given, key, value, value_product, by_steepness, shared]
        _launch_backward((B * S, H), tensors, B * S, T, S, TO_KEY=True, POINTS=False, **options)
    found = PairGradients(query, key, value, by_steepness.sum())
    if pairs.kernel is None:
        return found
    time, scale, points = shared.sum(1).split([P, K, K * coordinates], dim=-1)
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


def _options(pairs: Pairs) -> dict[str, int | bool]:
    kernels = 0 if pairs.kernel is None else pairs.kernel.points.size(0)
    return _constants(pairs.query.size(-1) - 1, kernels, pairs.padding is not None, pairs.causal)


@lru_cache(maxsize=64)
def _constants(n: int, kernels: int, padded: bool, causal: bool) -> dict[str, int | bool]:
    """Constants the kernels are compiled for."""
    K = max(kernels, 1)
    KP, NP = _power_of_two(K), _power_of_two(n)
    B = max(1, TILE // (KP * NP))
    sizes = {"n": n, "K": K, "P": K * (n + 1), "KERNEL": kernels > 0, "PADDED": padded, "CAUSAL": causal}
    warps = max(1, min(8, B * KP * NP // TILE_PER_WARP))
    return {**sizes, "B": B, "KP": KP, "NP": NP, "num_warps": warps}


_launch_forward, _launch_backward = Launcher(_forward), Launcher(_backward)
