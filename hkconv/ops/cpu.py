r"""HKConv on the CPU: Numba kernels that walk over the edges of a group of nodes and keep everything else in cache.

Forward and backward are written out per edge, on the hyperboloid of curvature -1 (:mod:`hkconv.ops.fused` brings other
curvatures there). With :math:`u` a source, :math:`x` a target and the node-wise products
:math:`P_u = W_s u_s + b`, :math:`P_x = W_s x_s` an edge needs

.. math::
    h_k   &= a P_u - a c P_x + w_t, \quad a = 1/t', \quad [t', z_s] = u \ominus x = [1 + \delta,\ u_s - c x_s] \\
    \nu_k &= \operatorname{arcosh}(1 + \tfrac{t' p_t}{2} (|a z_s - p_s/p_t|^2 + (a - 1/p_t)^2)) \\
    m     &= \mathrm{HCent}(\{\ell_k h_k/|h_k|\}_k, \nu), \quad \ell_k = \lambda_k \sigma(v_k \cdot z + b'_k).

The direction :math:`h_k` has no scale, so it is taken in units of :math:`t'`, and the excess between :math:`z` and a
kernel point is written in their Klein coordinates; both stay finite and accurate
for all points that can be represented.

The kernels release the GIL and run in plain threads, each on its own nodes. Gradients of sources are gathered by
walking over the edges of each source, so nothing is written by two threads, and because the division into chunks
depends on the graph alone, the result is the same for any number of threads.
"""

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor

from hkconv.ops.edges import EdgeInputs
from hkconv.ops.neighbors import Neighbors

# Sums may be reordered, which SIMD needs. NaN and infinity keep their meaning, and divisions stay divisions.
JIT = {"nogil": True, "cache": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}
PART = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}, "forceinline": True}

# More chunks than threads even out their loads. Few, because each holds its own sums for the parameters.
CHUNKS = 16

# Handing work to another thread costs about 50 µs: what this many multiply-adds take.
WORTH_A_THREAD = 1 << 18


class Group(NamedTuple):
    """Edges sorted by one of their ends: those of node ``i`` are ``pointer[i]`` to ``pointer[i + 1]``.

    ``place`` is where an edge stands in the order by targets, in which weights are kept; empty in that order itself.
    """

    pointer: np.ndarray
    other: np.ndarray
    place: np.ndarray


class Inputs(NamedTuple):
    """Everything an edge reads, as :func:`hkconv.ops.fused.hk_edges` takes it."""

    source: np.ndarray
    target: np.ndarray
    source_direction: np.ndarray
    target_direction: np.ndarray
    source_gate: np.ndarray
    target_gate: np.ndarray
    time_direction: np.ndarray
    time_gate: np.ndarray
    scale: np.ndarray
    points: np.ndarray
    weight: np.ndarray


class Kernel(NamedTuple):
    """Kernel points in Klein coordinates, and their times."""

    klein: np.ndarray
    time: np.ndarray


class Scratch(NamedTuple):
    """What an edge computes on the way, one row a kernel point where it has two dimensions."""

    direction: np.ndarray
    direction_grad: np.ndarray
    message: np.ndarray
    message_grad: np.ndarray
    klein: np.ndarray
    feature_grad: np.ndarray
    norm: np.ndarray
    opening: np.ndarray
    length: np.ndarray
    share: np.ndarray
    slope: np.ndarray
    share_grad: np.ndarray
    length_grad: np.ndarray
    gate_grad: np.ndarray
    near_grad: np.ndarray


class Gradients(NamedTuple):
    """Where gradients go: rows of the nodes walked over, and a chunk's sums for what all edges share."""

    node: np.ndarray
    direction: np.ndarray
    gate: np.ndarray
    time_direction: np.ndarray
    time_gate: np.ndarray
    scale: np.ndarray
    points: np.ndarray
    weight: np.ndarray


@njit(**PART)
def _scratch(inputs):
    _, K, n = inputs.source_direction.shape
    m = inputs.source.shape[1]
    dtype = inputs.source.dtype
    return Scratch(
        np.empty((K, n), dtype),
        np.empty((K, n), dtype),
        np.empty(n, dtype),
        np.empty(n, dtype),
        np.empty(m, dtype),
        np.empty(m, dtype),
        np.empty(K, dtype),
        np.empty(K, dtype),
        np.empty(K, dtype),
        np.empty(K, dtype),
        np.empty(K, dtype),
        np.empty(K, dtype),
        np.empty(K, dtype),
        np.empty(K, dtype),
        np.empty(K, dtype),
    )


@njit(**PART)
def _kernel(points):
    K, m = points.shape
    klein = np.empty_like(points)
    time = np.empty(K, np.float64)
    for k in range(K):
        time[k] = _time(points, k)
        for i in range(m):
            klein[k, i] = points[k, i] / time[k]
    return Kernel(klein, time)


@njit(**PART)
def _time(space, row):
    square = 1.0
    for i in range(space.shape[1]):
        square += np.float64(space[row, i]) * np.float64(space[row, i])
    return math.sqrt(square)


@njit(nogil=True, forceinline=True)  # without reassociation, which would turn (1 + y) - 1 into y
def _log1p(y):
    """log(1 + y) at half the price of math.log1p: Kahan's form."""
    w = 1.0 + y
    return y if w == 1.0 else math.log(w) * (y / (w - 1.0))


@njit(**PART)
def _look(source, u, target, x, x_time, klein):
    """Fill ``klein`` with the Klein coordinates of u ⊖ x; returns δ, c - 1, u_t and u_t - x_t (geometry.relative)."""
    m = klein.size
    square, product, gap, u_square, facing_u, facing_x = 0.0, 0.0, 0.0, 1.0, 0.0, 0.0
    for i in range(m):
        ui, xi = np.float64(source[u, i]), np.float64(target[x, i])
        d = ui - xi
        square += d * d
        product += ui * xi
        u_square += ui * ui
        gap += d * (ui + xi)
        facing_u += ui * d
        facing_x += xi * d
    u_time = math.sqrt(u_square)
    gap /= u_time + x_time
    if square == 0.0:
        delta = 0.0
    elif product > -1.0:
        across = 0.0
        if u_time < x_time:
            part = facing_u / square
            for i in range(m):
                ui = np.float64(source[u, i])
                rest = ui - part * (ui - np.float64(target[x, i]))
                across += rest * rest
        else:
            part = facing_x / square
            for i in range(m):
                xi = np.float64(target[x, i])
                rest = xi - part * (np.float64(source[u, i]) - xi)
                across += rest * rest
        delta = square / (1.0 + u_time * x_time + product) * (1.0 + across)
    else:
        delta = u_time * x_time - product - 1.0
    excess = (gap + delta) / (1.0 + x_time)
    unit = 1.0 / (1.0 + delta)
    for i in range(m):
        ui, xi = np.float64(source[u, i]), np.float64(target[x, i])
        klein[i] = ((ui - xi) - excess * xi) * unit
    return delta, excess, u_time, gap


@njit(**PART)
def _correlate(kernel, unit, scratch):
    """Fill ``share`` with ν_k/Σν and ``slope`` with p_t dν_k/dδ_k; returns Σν, or 0 where all ν vanish."""
    K, m = kernel.klein.shape
    total = 0.0
    for k in range(K):
        near = scratch.klein.dtype.type(0)
        for i in range(m):
            gap = scratch.klein[i] - kernel.klein[k, i]
            near += gap * gap
        gap_time = unit - 1.0 / kernel.time[k]
        delta = (near + gap_time * gap_time) * (0.5 * kernel.time[k] / unit)
        root = math.sqrt(delta) * math.sqrt(delta + 2.0)
        distance = _log1p(delta + root)
        scratch.share[k] = distance
        scratch.slope[k] = kernel.time[k] / root if root > 0.0 else 0.0
        total += distance
    for k in range(K):
        scratch.share[k] = scratch.share[k] / total if total > 0.0 else 1.0 / K
    return total


@njit(**PART)
def _direct(inputs, u, x, delta, excess, relative, scratch):
    """Fill ``direction`` h, ``norm`` |h|, ``opening`` σ and ``length`` ℓ for every kernel point."""
    K, n = scratch.direction.shape
    cast = scratch.direction.dtype.type
    stretch, reach = 1.0 + excess, 1.0 + delta
    from_source, from_target = cast(1.0 / reach), cast(stretch / reach)
    for k in range(K):
        square = cast(0)
        gate = np.float64(inputs.source_gate[u, k])
        if relative:
            gate += reach * inputs.time_gate[k] - stretch * inputs.target_gate[x, k]
            for j in range(n):
                h = (
                    from_source * inputs.source_direction[u, k, j]
                    - from_target * inputs.target_direction[x, k, j]
                    + inputs.time_direction[k, j]
                )
                scratch.direction[k, j] = h
                square += h * h
        else:
            for j in range(n):
                h = inputs.source_direction[u, k, j]
                scratch.direction[k, j] = h
                square += h * h
        opening = 1.0 / (1.0 + math.exp(-gate))
        scratch.norm[k] = math.sqrt(square)
        scratch.opening[k] = opening
        scratch.length[k] = inputs.scale[k] * opening


@njit(**PART)
def _message(scratch):
    """Fill ``message`` with the spatial part of the centroid over the kernel points; returns its time and its mass."""
    K, n = scratch.direction.shape
    message = scratch.message
    message[:] = 0
    time = 0.0
    for k in range(K):
        length = np.float64(scratch.length[k])
        time += scratch.share[k] * (math.sqrt(1.0 + length * length) if scratch.norm[k] > 0 else 1.0)
        part = message.dtype.type(_factor(scratch, k))
        for j in range(n):
            message[j] += part * scratch.direction[k, j]
    square = message.dtype.type(0)
    for j in range(n):
        square += message[j] * message[j]
    mass = math.sqrt(time * time - square)
    inverse = message.dtype.type(1.0 / mass)
    for j in range(n):
        message[j] *= inverse
    return math.sqrt(1.0 + square / (mass * mass)), mass


@njit(**PART)
def _factor(scratch, k):
    """What turns h_k into its part of the message's sum: share ℓ/|h|, and 0 where h = 0, the origin."""
    return scratch.share[k] * scratch.length[k] / scratch.norm[k] if scratch.norm[k] > 0 else 0.0


@njit(**PART)
def _forward_edge(inputs, kernel, u, x, x_time, relative, scratch):
    """Everything of one edge; returns the message's time and mass, δ, c - 1, u_t, u_t - x_t and Σν."""
    delta, excess, u_time, gap = _look(inputs.source, u, inputs.target, x, x_time, scratch.klein)
    unit = 1.0 / (1.0 + delta)
    total = _correlate(kernel, unit, scratch)
    _direct(inputs, u, x, delta, excess, relative, scratch)
    time, mass = _message(scratch)
    return time, mass, delta, excess, u_time, gap, total


@njit(**PART)
def _total_weight(weight, group, node):
    first, last = group.pointer[node], group.pointer[node + 1]
    total = float(last - first)
    if weight.size:
        total = 0.0
        for e in range(first, last):
            total += weight[e]
    return total


@njit(**JIT)
def forward(first, last, by_target, inputs, relative, out, mass):
    """Aggregate at the targets ``first`` to ``last``."""
    kernel, scratch = _kernel(inputs.points), _scratch(inputs)
    n = out.shape[1]
    space = np.empty(n, np.float64)
    for x in range(first, last):
        total = _total_weight(inputs.weight, by_target, x)
        x_time = _time(inputs.target, x)
        space[:] = 0.0
        time = 0.0
        for e in range(by_target.pointer[x], by_target.pointer[x + 1]):
            share = (inputs.weight[e] if inputs.weight.size else 1.0) / total
            edge = _forward_edge(inputs, kernel, by_target.other[e], x, x_time, relative, scratch)
            time += share * edge[0]
            for j in range(n):
                space[j] += share * scratch.message[j]
        square = 0.0
        for j in range(n):
            square += space[j] * space[j]
        unit_mass = math.sqrt(time * time - square) if total > 0.0 else 1.0
        mass[x] = unit_mass
        for j in range(n):
            out[x, j] = space[j] / unit_mass


@njit(**JIT)
def spread(first, last, by_target, weight, out, mass, grad_out, grad_mass, grad_mean, grad_weight):
    """From gradients of the aggregated points to those of their weighted means, one row a target, time first.

    With mean = mass · out and out = mean/mass, mass² = mean_t² - |mean_s|²; each divided by the sum of the weights.
    ``grad_weight`` gets what does not depend on the edge: the part of the normalisation.
    """
    n = out.shape[1]
    for x in range(first, last):
        total = _total_weight(weight, by_target, x)
        square, along = 1.0, 0.0
        for j in range(n):
            square += np.float64(out[x, j]) * out[x, j]
            along += np.float64(out[x, j]) * grad_out[x, j]
        time = math.sqrt(square)
        scale = 1.0 / total if total > 0.0 else 0.0
        by_mass = grad_mass[x] - along / mass[x]
        grad_mean[x, 0] = scale * by_mass * time
        for j in range(n):
            grad_mean[x, 1 + j] = scale * (grad_out[x, j] / mass[x] - by_mass * out[x, j])
        if weight.size:
            # Σ_j mean_j grad_j: of degree one in the mean, so only the mass itself is left of it.
            level = -scale * (by_mass * mass[x] + along)
            for e in range(by_target.pointer[x], by_target.pointer[x + 1]):
                grad_weight[e] = level


@njit(**PART)
def _backward_edge(inputs, kernel, u, x, x_time, edge, weight, grad_mean, relative, scratch):
    """Gradients of one edge's message, from that of the target's weighted mean.

    Fills ``direction_grad`` (of h), ``gate_grad``, ``length_grad``, ``near_grad`` (of the excesses to the kernel
    points, times p_t) and ``feature_grad`` (of z_s through these). Returns the gradients of c and of δ that the
    products carry, that of c - 1 in all, and the slope along the edge's weight.
    """
    K, n = scratch.direction.shape
    time, mass, delta = edge[0], edge[1], edge[2]
    cast = scratch.direction.dtype.type
    along = np.float64(grad_mean[x, 0]) * time
    for j in range(n):
        along += grad_mean[x, 1 + j] * scratch.message[j]
    factor, level = cast(weight / mass), cast(along)
    for j in range(n):
        scratch.message_grad[j] = factor * (grad_mean[x, 1 + j] + level * scratch.message[j])
    by_time = weight / mass * (grad_mean[x, 0] - along * time)
    unit = 1.0 / (1.0 + delta)
    by_stretch, by_reach = 0.0, 0.0
    for k in range(K):
        dot = cast(0)
        for j in range(n):
            dot += scratch.message_grad[j] * scratch.direction[k, j]
        part, back = _backward_length(k, dot, by_time, scratch)
        for j in range(n):
            scratch.direction_grad[k, j] = part * scratch.message_grad[j] - back * scratch.direction[k, j]
        if relative:
            on_target, on_time = cast(0), cast(0)
            for j in range(n):
                on_target += scratch.direction_grad[k, j] * inputs.target_direction[x, k, j]
                on_time += scratch.direction_grad[k, j] * inputs.time_direction[k, j]
            by_stretch -= unit * on_target + scratch.gate_grad[k] * inputs.target_gate[x, k]
            by_reach += unit * on_time + scratch.gate_grad[k] * inputs.time_gate[k]
    _backward_correlation(kernel, edge[6], scratch)
    by_excess = by_stretch
    for i in range(inputs.target.shape[1]):
        by_excess -= np.float64(scratch.feature_grad[i]) * inputs.target[x, i]
    return by_excess, by_reach, along


@njit(**PART)
def _backward_length(k, dot, by_time, scratch):
    """Gradients of share, length and gate of kernel point k; returns the coefficients of message_grad and of -h."""
    cast = scratch.direction.dtype.type
    norm, length = np.float64(scratch.norm[k]), np.float64(scratch.length[k])
    if norm == 0.0:
        scratch.share_grad[k] = by_time
        scratch.length_grad[k] = scratch.gate_grad[k] = 0
        return cast(0), cast(0)
    time = math.sqrt(1.0 + length * length)
    slope = dot / norm
    scratch.share_grad[k] = by_time * time + length * slope
    by_length = scratch.share[k] * (slope + by_time * length / time)
    scratch.length_grad[k] = by_length
    scratch.gate_grad[k] = by_length * length * (1.0 - scratch.opening[k])
    part = scratch.share[k] * length / norm
    return cast(part), cast(part * slope / norm)


@njit(**PART)
def _backward_correlation(kernel, total, scratch):
    """Fill ``near_grad`` and ``feature_grad`` from the gradients of the shares."""
    K, m = kernel.klein.shape
    mean = 0.0
    for k in range(K):
        mean += scratch.share[k] * scratch.share_grad[k]
    scratch.feature_grad[:] = 0
    for k in range(K):
        near = (scratch.share_grad[k] - mean) / total * scratch.slope[k] if total > 0.0 else 0.0
        scratch.near_grad[k] = near
        near = scratch.klein.dtype.type(near)
        for i in range(m):
            scratch.feature_grad[i] += near * (scratch.klein[i] - kernel.klein[k, i])


@njit(**JIT)
def backward_to_targets(first, last, by_target, inputs, relative, grad_mean, gradients):
    """Gradients of the targets ``first`` to ``last``, of the weights of their edges and of what all edges share."""
    kernel, scratch = _kernel(inputs.points), _scratch(inputs)
    for x in range(first, last):
        x_time = _time(inputs.target, x)
        for e in range(by_target.pointer[x], by_target.pointer[x + 1]):
            u = by_target.other[e]
            weight = inputs.weight[e] if inputs.weight.size else 1.0
            edge = _forward_edge(inputs, kernel, u, x, x_time, relative, scratch)
            by_excess, by_reach, along = _backward_edge(
                inputs, kernel, u, x, x_time, edge, weight, grad_mean, relative, scratch
            )
            if inputs.weight.size:
                gradients.weight[e] += along
            _to_target(inputs, u, x, x_time, edge, by_excess, by_reach, scratch, gradients.node)
            _to_shared(kernel, 1.0 + edge[2], relative, scratch, gradients)
            if relative:
                unit = (1.0 + edge[3]) / (1.0 + edge[2])
                _add_directions(-unit, -(1.0 + edge[3]), scratch, gradients, x)


@njit(**JIT)
def backward_to_sources(first, last, by_source, inputs, relative, grad_mean, gradients):
    """Gradients of the sources ``first`` to ``last``."""
    kernel, scratch = _kernel(inputs.points), _scratch(inputs)
    for u in range(first, last):
        for e in range(by_source.pointer[u], by_source.pointer[u + 1]):
            x = by_source.other[e]
            x_time = _time(inputs.target, x)
            weight = inputs.weight[by_source.place[e]] if inputs.weight.size else 1.0
            edge = _forward_edge(inputs, kernel, u, x, x_time, relative, scratch)
            by_excess, by_reach, _ = _backward_edge(
                inputs, kernel, u, x, x_time, edge, weight, grad_mean, relative, scratch
            )
            _to_source(inputs, u, x, x_time, edge, by_excess, by_reach, scratch, gradients.node)
            unit = 1.0 / (1.0 + edge[2]) if relative else 1.0
            _add_directions(unit, 1.0, scratch, gradients, u)


@njit(**PART)
def _add_directions(direction_factor, gate_factor, scratch, gradients, node):
    K, n = scratch.direction.shape
    factor = scratch.direction.dtype.type(direction_factor)
    for k in range(K):
        gradients.gate[node, k] += gate_factor * scratch.gate_grad[k]
        for j in range(n):
            gradients.direction[node, k, j] += factor * scratch.direction_grad[k, j]


@njit(**PART)
def _to_source(inputs, u, x, x_time, edge, by_excess, by_reach, scratch, grad):
    """∂/∂u_s of δ is D - (u_t - x_t) u_s/u_t, of u_t it is u_s/u_t: written so that nothing large cancels."""
    _, _, _, _, u_time, gap, _ = edge
    by_gap = by_excess / (1.0 + x_time)
    by_delta = by_reach + by_gap
    radial = (by_gap - by_delta * gap) / u_time
    for i in range(grad.shape[1]):
        ui, xi = np.float64(inputs.source[u, i]), np.float64(inputs.target[x, i])
        grad[u, i] += scratch.feature_grad[i] + radial * ui + by_delta * (ui - xi)


@njit(**PART)
def _to_target(inputs, u, x, x_time, edge, by_excess, by_reach, scratch, grad):
    _, _, _, excess, _, gap, _ = edge
    by_gap = by_excess / (1.0 + x_time)
    by_delta = by_reach + by_gap
    radial = (by_delta * gap - by_gap - by_gap * excess) / x_time
    for i in range(grad.shape[1]):
        ui, xi = np.float64(inputs.source[u, i]), np.float64(inputs.target[x, i])
        grad[x, i] += radial * xi - (1.0 + excess) * scratch.feature_grad[i] - by_delta * (ui - xi)


@njit(**PART)
def _to_shared(kernel, reach, relative, scratch, gradients):
    K, n = scratch.direction.shape
    for k in range(K):
        gradients.scale[k] += scratch.length_grad[k] * scratch.opening[k]
        if relative:
            gradients.time_gate[k] += reach * scratch.gate_grad[k]
            for j in range(n):
                gradients.time_direction[k, j] += scratch.direction_grad[k, j]
        if gradients.points.size:
            factor = gradients.points.dtype.type(scratch.near_grad[k] * reach / kernel.time[k])
            for i in range(scratch.klein.size):
                gradients.points[k, i] -= factor * (scratch.klein[i] - kernel.klein[k, i])


def hk_edges(inputs: EdgeInputs, neighbors: Neighbors) -> tuple[Tensor, Tensor]:
    """The operator's kernel for CPU tensors, see :mod:`hkconv.ops.edges`."""
    arrays, by_target, _ = _arrays(inputs, neighbors)
    out = inputs.target.new_empty(inputs.target.size(0), inputs.source_direction.size(2))
    mass = inputs.target.new_empty(inputs.target.size(0))
    walk = partial(_walk_forward, by_target, arrays, inputs.relative, out.numpy(), mass.numpy())
    _in_chunks(by_target, arrays, walk)
    return out, mass


def _walk_forward(by_target, arrays, relative, out, mass, first, last, chunk):
    forward(first, last, by_target, arrays, relative, out, mass)


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
    arrays, by_target, by_source = _arrays(inputs, neighbors)
    relative = inputs.relative
    given = [tensor.numpy() for tensor in (out, mass, grad_out, grad_mass)]
    grad_mean = np.empty((out.size(0), out.size(1) + 1), arrays.source.dtype)
    to_target, to_source = _target_gradients(arrays, points_too), _source_gradients(arrays)

    def walk_targets(first: int, last: int, chunk: int) -> None:
        spread(first, last, by_target, arrays.weight, *given, grad_mean, to_target.weight)
        own = to_target._replace(**{name: getattr(to_target, name)[chunk] for name in _SHARED})
        backward_to_targets(first, last, by_target, arrays, relative, grad_mean, own)

    def walk_sources(first: int, last: int, chunk: int) -> None:
        backward_to_sources(first, last, by_source, arrays, relative, grad_mean, to_source)

    _in_chunks(by_target, arrays, walk_targets)
    _in_chunks(by_source, arrays, walk_sources)
    shared = {name: getattr(to_target, name).sum(0) for name in _SHARED}
    found = EdgeInputs(
        source=to_source.node,
        target=to_target.node,
        source_direction=to_source.direction,
        target_direction=to_target.direction,
        source_gate=to_source.gate,
        target_gate=to_target.gate,
        weight=to_target.weight,
        **shared,
    )
    return [torch.from_numpy(gradient) for gradient in found]


_SHARED = ("time_direction", "time_gate", "scale", "points")


def _arrays(inputs: EdgeInputs, neighbors: Neighbors) -> tuple[Inputs, Group, Group]:
    dtype = inputs.source.numpy().dtype
    absent = {
        "target_direction": np.empty((0, 0, 0), dtype),
        "target_gate": np.empty((0, 0), dtype),
        "time_direction": np.empty((0, 0), dtype),
        "time_gate": np.empty(0, dtype),
        "weight": np.empty(0, dtype),
    }
    arrays = Inputs(
        **{
            name: absent[name] if value is None else value.detach().contiguous().numpy()
            for name, value in inputs._asdict().items()
        }
    )
    by_target = Group(neighbors.target_pointer.numpy(), neighbors.source.numpy(), np.empty(0, np.int32))
    by_source = Group(neighbors.source_pointer.numpy(), neighbors.target.numpy(), neighbors.place.numpy())
    return arrays, by_target, by_source


def _target_gradients(arrays: Inputs, points_too: bool) -> Gradients:
    dtype = arrays.source.dtype
    return Gradients(
        node=np.zeros_like(arrays.target),
        direction=np.zeros_like(arrays.target_direction),
        gate=np.zeros_like(arrays.target_gate),
        time_direction=np.zeros((CHUNKS, *arrays.time_direction.shape), dtype),
        time_gate=np.zeros((CHUNKS, *arrays.time_gate.shape), dtype),
        scale=np.zeros((CHUNKS, *arrays.scale.shape), dtype),
        points=np.zeros((CHUNKS, *(arrays.points.shape if points_too else (0, 0))), dtype),
        weight=np.zeros_like(arrays.weight),
    )


def _source_gradients(arrays: Inputs) -> Gradients:
    none = np.empty(0, arrays.source.dtype)
    return Gradients(
        node=np.zeros_like(arrays.source),
        direction=np.zeros_like(arrays.source_direction),
        gate=np.zeros_like(arrays.source_gate),
        time_direction=none.reshape(0, 0),
        time_gate=none,
        scale=none,
        points=none.reshape(0, 0),
        weight=none,
    )


def _in_chunks(group: Group, arrays: Inputs, walk: Callable[[int, int, int], None]) -> None:
    """Call ``walk(first, last, chunk)`` for chunks of nodes with about equally many edges, in torch's threads."""
    nodes, edges = group.pointer.size - 1, group.other.size
    levels = np.arange(1, CHUNKS) * (edges + nodes) // CHUNKS
    bounds = [0, *np.searchsorted(group.pointer[1:] + np.arange(1, nodes + 1), levels).tolist(), nodes]
    chunks = [(first, last, chunk) for chunk, (first, last) in enumerate(pairwise(bounds)) if first < last]
    threads = min(torch.get_num_threads(), len(chunks))
    if threads <= 1 or edges * arrays.source_direction[:1].size < WORTH_A_THREAD:
        for chunk in chunks:
            walk(*chunk)
    else:
        # Consumed, so that an error in a thread is raised here.
        list(_pool(os.getpid(), threads).map(lambda chunk: walk(*chunk), chunks))


@lru_cache(maxsize=1)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Worker threads of this process: a fork has none of its parent's."""
    return ThreadPoolExecutor(threads, thread_name_prefix="hkconv")
