r"""Attention on the CPU: blocks of queries, each with all its keys as the edges of a small graph.

For a block a Numba kernel lists the keys that its queries see and their weights :math:`w_{ij}`; with these the edges go
through the kernels of :mod:`hkconv.ops.cpu`, or through HyboNet's average here. What is hidden by padding or by the
order of time costs nothing. The backward pass finds the weights of a block again. No more than one block a thread is
ever held, and its size does not depend on the length of the sequences.

As in :mod:`hkconv.ops.cpu` each thread has its own sums for what several blocks add to, which are then added in order:
the bits of the result depend on the number of threads alone.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hkconv.ops import cpu
from hkconv.ops.attention import PairGradients, Pairs
from hkconv.ops.compiling import njit
from hkconv.ops.cpu import (
    KERNEL,
    EdgeOrder,
    Given,
    Sums,
    _in_threads,
    _join,
    _project,
    _spread,
    _time,
    new_boost,
    relate,
)
from hkconv.ops.fused import EdgeInputs
from hkconv.ops.scores_cpu import distance_of

# Pairs of a block, or those of one query where these are more: their lists stay in the second-level cache.
PAIRS_AT_ONCE = 1 << 14


class Seen(NamedTuple):
    """Keys that each query sees: the first ``counts[row]`` of those from ``order[starts[row]]`` on."""

    counts: np.ndarray
    starts: np.ndarray
    order: np.ndarray


@njit(**KERNEL)
def list_pairs(seen, query, key, steepness, pointer, other, weight, log_total):
    """Keys of a block of queries, one after the other, their weights, and the logarithms of the weights' sums."""
    boost = new_boost(1, query)
    square = np.empty(seen.counts.max(), np.float64)
    pointer[0] = 0
    for row in range(query.shape[0]):
        first, count = pointer[row], seen.counts[row]
        pointer[row + 1] = first + count
        lowest, total = np.inf, 0.0
        for i in range(count):
            end = seen.order[seen.starts[row] + i]
            relate(query, row, key, end, boost, 0)
            distance, _ = distance_of(boost.delta[0])
            other[first + i], square[i] = end, distance * distance
            lowest = min(lowest, square[i])
        for i in range(count):
            square[i] = math.exp(-steepness * (square[i] - lowest))
            total += square[i]
        for i in range(count):
            weight[first + i] = square[i] / total
        log_total[row] = math.log(total) - steepness * lowest if count > 0 else 0.0


@njit(**KERNEL)
def pull_scores(order, weight, grad_weight, steepness, query, key, grad_query, grad_key):
    """Add the gradients of queries and keys, given those of the weights; returns that of the steepness."""
    boost = new_boost(1, query)
    n = query.shape[1] - 1
    total = np.empty(n, np.float64)
    by_steepness = 0.0
    for row in range(query.shape[0]):
        for i in range(n):
            total[i] = 0.0
        for e in range(order.pointer[row], order.pointer[row + 1]):
            end = order.other[e]
            relate(query, row, key, end, boost, 0)
            distance, root = distance_of(boost.delta[0])
            by_score = np.float64(weight[e]) * grad_weight[e]
            by_steepness -= by_score * distance * distance
            along_gap = -2.0 * steepness * by_score * (distance / root if root > 0.0 else 1.0)
            gap = along_gap * boost.time_gap[0]
            along_query, along_key = gap / boost.source_time[0], gap / boost.target_time[0]
            for i in range(n):
                here, there = np.float64(query[row, 1 + i]), np.float64(key[end, 1 + i])
                total[i] += along_gap * (here - there) - along_query * here
                grad_key[end, 1 + i] += along_gap * (there - here) + along_key * there
        for i in range(n):
            grad_query[row, 1 + i] = total[i]
    return by_steepness


@njit(**KERNEL)
def average(order, value, weight, out, mass):
    """HyboNet's aggregation: centroids of the values themselves, and their masses."""
    n = value.shape[1] - 1
    total = np.empty(n + 3, np.float64)
    for row in range(out.shape[0]):
        total[:] = 0.0
        for e in range(order.pointer[row], order.pointer[row + 1]):
            _join(total, np.float64(weight[e]), value[order.other[e], 1:])
        empty = order.pointer[row] == order.pointer[row + 1]
        _project(row, total, 0.0 if empty else 1.0, out, mass)


@njit(**KERNEL)
def pull_average(order, value, weight, given, grad_mean, grad_weight, grad_value):
    """Gradients of :func:`average`: those of the weights, and what is added to those of the values."""
    rows, n = given.out.shape[0], value.shape[1] - 1
    _spread(0, rows, order, weight, given, grad_mean, grad_weight)
    for row in range(rows):
        for e in range(order.pointer[row], order.pointer[row + 1]):
            j, w = order.other[e], np.float64(weight[e])
            time = _time(value, j)
            slope = grad_mean[row, 0] / time
            along = grad_mean[row, 0] * time
            for i in range(1, n + 1):
                along += np.float64(grad_mean[row, i]) * value[j, i]
                grad_value[j, i] += w * (grad_mean[row, i] + slope * value[j, i])
            grad_weight[e] += along


class Head(NamedTuple):
    """The arrays of one head, sequences one after the other; ``kernel`` is empty for HyboNet's aggregation."""

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    kernel: tuple[np.ndarray, ...]


class QueryBlock(NamedTuple):
    """A block of queries, ``rows`` of them, and its pairs."""

    rows: slice
    order: EdgeOrder
    weight: np.ndarray
    log_total: np.ndarray


def attend(pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
    """Aggregated points ``(H, B, T, n+1)``, their masses, and the logarithms of the sums of exponentials."""
    out, mass = torch.empty_like(pairs.query), torch.empty_like(pairs.query[..., 0])
    log_total = torch.empty_like(mass)
    seen, steepness = _seen(pairs), pairs.steepness.item()
    blocks = _blocks(seen)
    for number in range(out.size(0)):
        head = _head(pairs, number)
        results = [_rows(tensor[number]) for tensor in (out, mass, log_total)]

        def walk(rows: slice, head: Head = head, results: list[np.ndarray] = results) -> None:
            block = _list(rows, seen, head, steepness)
            points, masses, logs = (array[rows] for array in results)
            logs[:] = block.log_total
            if head.kernel:
                arrays = _arrays(head, block)
                cpu.forward(0, len(masses), block.order, arrays, True, points, masses)
            else:
                average(block.order, head.value, block.weight, points, masses)

        _in_threads(_threads_for(blocks), walk, [(rows,) for rows in blocks])
    return out, mass, log_total


def gradients(
    pairs: Pairs, outputs: tuple[Tensor, Tensor, Tensor], grad_out: Tensor, points_too: bool
) -> PairGradients:
    """Gradients of :func:`attend`, given its outputs and the gradient of its points."""
    seen, steepness = _seen(pairs), pairs.steepness.item()
    blocks = _blocks(seen)
    found = []
    for number in range(grad_out.size(0)):
        given = [_rows(tensor[number]) for tensor in (*outputs[:2], grad_out)]
        found.append(_head_gradients(_head(pairs, number), given, seen, blocks, steepness, points_too))
    stacked = [torch.from_numpy(np.stack(arrays)) for arrays in zip(*found)]
    query, key, value, by_steepness, *of_kernel = stacked
    of_points = PairGradients(
        query.view_as(pairs.query),
        key.view_as(pairs.key),
        value.view_as(pairs.value),
        by_steepness.sum().to(grad_out.dtype),
    )
    if pairs.kernel is None:
        return of_points
    own, value_product, own_product, time, scale, points = of_kernel
    return of_points._replace(
        own=own.view_as(pairs.kernel.own),
        value_product=value_product.view_as(pairs.kernel.value_product),
        own_product=own_product.view_as(pairs.kernel.own_product),
        time=time,
        scale=scale,
        points=points.sum(0),
    )


def _head_gradients(
    head: Head, given: list[np.ndarray], seen: Seen, blocks: list[slice], steepness: float, points_too: bool
) -> list[np.ndarray]:
    """Gradients in the order of :class:`PairGradients`."""
    threads = _threads_for(blocks)
    grad_query = np.zeros_like(head.query)
    to_key, to_value = ([np.zeros_like(points) for _ in range(threads)] for points in (head.key, head.value))
    by_steepness = np.zeros(len(blocks))
    own: list[np.ndarray] = []
    to_product: list[np.ndarray] = []
    shared: list[np.ndarray] = []
    if head.kernel:
        own_points, value_product, own_product, _, time, scale, points = head.kernel
        own = [np.zeros_like(own_points), np.zeros_like(own_product)]
        to_product = [np.zeros_like(value_product) for _ in range(threads)]
        shared = [
            np.zeros((len(blocks), *array.shape), array.dtype)
            for array in (time, scale, points if points_too else points[:0])
        ]

    def walk(part: int) -> None:
        for number in range(part, len(blocks), threads):
            rows = blocks[number]
            block = _list(rows, seen, head, steepness)
            out, mass, grad_out = (array[rows] for array in given)
            mine = Given(out, mass, grad_out, np.zeros_like(mass))
            grad_weight, grad_mean = np.zeros_like(block.weight), np.empty_like(mine.out)
            if head.kernel:
                to_own, to_own_product = (array[rows] for array in own)
                time, scale, points = (sums[number] for sums in shared)
                products = to_product[part], to_own, to_own_product
                sums = Sums(to_value[part], *products, grad_weight, time, scale, points)
                arrays = _arrays(head, block)
                cpu.backward(0, len(mine.mass), block.order, False, arrays, True, mine, grad_mean, sums)
            else:
                pull_average(block.order, head.value, block.weight, mine, grad_mean, grad_weight, to_value[part])
            by_steepness[number] = pull_scores(
                block.order, block.weight, grad_weight, steepness, head.query[rows], head.key, grad_query[rows],
                to_key[part],
            )  # fmt: skip

    _in_threads(threads, walk, [(part,) for part in range(threads)])
    found = [grad_query, cpu._added(to_key), cpu._added(to_value), by_steepness.sum()]
    if not head.kernel:
        return found
    # Of the sums over many blocks, in which float32 would lose digits.
    totals = [sums.sum(0, dtype=np.float64).astype(sums.dtype) for sums in shared]
    return [*found, own[0], cpu._added(to_product), own[1], *totals]


def _seen(pairs: Pairs) -> Seen:
    (batch, queries), keys = pairs.query.shape[1:3], pairs.key.size(2)
    valid = np.ones((batch, keys), bool) if pairs.padding is None else ~pairs.padding.numpy()
    up_to = np.zeros((batch, keys + 1), np.int64)
    np.cumsum(valid, axis=1, out=up_to[:, 1:])
    last = np.full(queries, keys)
    if pairs.causal:
        last = np.clip(np.arange(queries) + keys - queries + 1, 0, keys)
    starts = np.concatenate([[0], np.cumsum(up_to[:, -1])[:-1]])
    return Seen(up_to[:, last].ravel(), np.repeat(starts, queries), np.flatnonzero(valid.ravel()).astype(np.int32))


def _blocks(seen: Seen) -> list[slice]:
    """Queries that follow each other, with about ``PAIRS_AT_ONCE`` pairs, or with so many queries."""
    ends = np.cumsum(seen.counts + 1)
    blocks, first = [], 0
    while first < ends.size:
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + PAIRS_AT_ONCE, side="right")))
        blocks.append(slice(first, last))
        first = last
    return blocks


def _list(rows: slice, seen: Seen, head: Head, steepness: float) -> QueryBlock:
    query = head.query[rows]
    mine = Seen(seen.counts[rows], seen.starts[rows], seen.order)
    pairs = int(mine.counts.sum())
    pointer, other = np.empty(len(query) + 1, np.int32), np.empty(pairs, np.int32)
    weight, log_total = np.empty(pairs, query.dtype), np.empty(len(query), query.dtype)
    list_pairs(mine, query, head.key, steepness, pointer, other, weight, log_total)
    return QueryBlock(rows, EdgeOrder(pointer, other, np.empty(0, np.int32)), weight, log_total)


def _head(pairs: Pairs, number: int) -> Head:
    query, key, value = (_rows(x[number]) for x in (pairs.query, pairs.key, pairs.value))
    if pairs.kernel is None:
        return Head(query, key, value, ())
    *by_head, kernel_points = pairs.kernel
    own, value_product, own_product, bias, time, scale = (_rows(tensor[number]) for tensor in by_head)
    return Head(query, key, value, (own, value_product, own_product, bias, time, scale, kernel_points.numpy()))


def _rows(tensor: Tensor) -> np.ndarray:
    """Positions of all sequences, one after the other; the parameters of a head as they are."""
    return (tensor.flatten(0, 1) if tensor.dim() > 2 else tensor.flatten()).numpy()


def _arrays(head: Head, block: QueryBlock) -> EdgeInputs:
    own, value_product, own_product, bias, time, scale, points = head.kernel
    own, own_product = own[block.rows], own_product[block.rows]
    n = head.value.shape[1] - 1
    return EdgeInputs._make([head.value, own, value_product, own_product, bias, time, scale, points, block.weight, n])


def _threads_for(blocks: list[slice]) -> int:
    return max(1, min(torch.get_num_threads(), len(blocks)))
