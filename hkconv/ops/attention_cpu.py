r"""Attention on the CPU: blocks of queries, each with all its keys as the edges of a small graph.

For a block the kernels of :mod:`hkconv.ops.native` list the keys that its queries see and their weights :math:`w_{ij}`;
with these the edges go the way of :mod:`hkconv.ops.cpu`, or through HyboNet's average. What is hidden by padding or by
the order of time costs nothing. The backward pass finds the weights of a block again. No more than one block a thread
is ever held, and its size does not depend on the length of the sequences.

As in :mod:`hkconv.ops.cpu` each thread has its own sums for what several blocks add to, which are then added in order:
the bits of the result depend on the number of threads alone.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hkconv.ops import native
from hkconv.ops.attention import Kernel, KernelGradients, PairGradients, Pairs

# Pairs of a block, or those of one query where these are more: their lists stay in the second-level cache.
PAIRS_AT_ONCE = 1 << 14


class Seen(NamedTuple):
    """Keys that each query sees: the first ``counts[row]`` of those from ``order[starts[row]]`` on."""

    counts: np.ndarray
    starts: np.ndarray
    order: np.ndarray


def attend(pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
    """Aggregated points ``(H, B, T, n+1)``, their masses, and the logarithms of the sums of exponentials."""
    out, mass = torch.empty_like(pairs.query), torch.empty_like(pairs.query[..., 0])
    log_total = torch.empty_like(mass)
    common = _common(pairs)
    for head in range(out.size(0)):
        results = out[head], mass[head], log_total[head]
        native.call_typed("attend", out.dtype, torch.get_num_threads(), *common, *_head(pairs, head), *results)
    return out, mass, log_total


def gradients(
    pairs: Pairs, outputs: tuple[Tensor, Tensor, Tensor], grad_out: Tensor, points_too: bool
) -> PairGradients:
    """Gradients of :func:`attend`, given its outputs and the gradient of its points."""
    threads, common, kernel = torch.get_num_threads(), _common(pairs), pairs.kernel
    parts = max(1, min(threads, common.blocks))

    def copies(like: Tensor) -> Tensor:
        """Sums of one head for each thread."""
        return like.new_zeros(parts, *like.shape[1:])

    query, key, value = (torch.zeros_like(x) for x in (pairs.query, pairs.key, pairs.value))
    steepness = torch.zeros((), dtype=torch.float64)
    of_kernel = None
    if kernel is not None:
        nodes = (torch.zeros_like(x) for x in (kernel.own, kernel.value_product, kernel.own_product))
        shared = (torch.zeros_like(x, dtype=torch.float64) for x in (kernel.time, kernel.scale, kernel.points))
        of_kernel = KernelGradients(*nodes, *shared)
    for head in range(grad_out.size(0)):
        to_key, to_value = copies(pairs.key), copies(pairs.value)
        given = outputs[0][head], outputs[1][head], grad_out[head]
        results: list[Tensor | None] = [query[head], to_key, to_value, steepness, *[None] * 6]
        if of_kernel is not None:
            own, value_product, own_product, time, scale, points = of_kernel
            to_product = copies(value_product)
            of_head = own[head], to_product, own_product[head], time[head], scale[head]
            results[4:] = [*of_head, points if points_too else None]
        arguments = *common, *_head(pairs, head), *given, *results
        native.call_typed("pull_attention", grad_out.dtype, parts, threads, *arguments)
        key[head], value[head] = to_key[0], to_value[0]
        if of_kernel is not None:
            value_product[head] = to_product[0]
    found = PairGradients(query, key, value, steepness.to(grad_out.dtype))
    if of_kernel is None:
        return found
    if not points_too:
        of_kernel = of_kernel._replace(points=grad_out.new_zeros(0))
    return found._replace(**{name: x.to(grad_out.dtype) for name, x in of_kernel._asdict().items()})


class _Common(NamedTuple):
    """Arguments that all heads share: sizes, bounds of the blocks of queries, and what these see."""

    blocks: int
    queries: int
    keys: int
    kernels: int
    dim: int
    bounds: Tensor
    counts: Tensor
    starts: Tensor
    order: Tensor
    steepness: float


def _common(pairs: Pairs) -> _Common:
    seen = _seen(pairs)
    bounds = torch.tensor([0, *(block.stop for block in _blocks(seen))])
    queries, keys = (x[0, ..., 0].numel() for x in (pairs.query, pairs.key))
    kernels = 0 if pairs.kernel is None else len(pairs.kernel.points)
    counts, starts, order = (torch.from_numpy(array) for array in seen)
    dim, steepness = pairs.query.size(-1) - 1, pairs.steepness.item()
    return _Common(bounds.numel() - 1, queries, keys, kernels, dim, bounds, counts, starts, order, steepness)


def _head(pairs: Pairs, number: int) -> list[Tensor | None]:
    points = [x[number] for x in (pairs.query, pairs.key, pairs.value)]
    if pairs.kernel is None:
        return [*points, *[None] * len(Kernel._fields)]
    *by_head, kernel_points = pairs.kernel
    return [*points, *(x[number].contiguous() for x in by_head), kernel_points]


def _seen(pairs: Pairs) -> Seen:
    (batch, queries), keys = pairs.query.shape[1:3], pairs.key.size(2)
    valid = np.ones((batch, keys), bool) if pairs.padding is None else ~pairs.padding.numpy()
    up_to = np.zeros((batch, keys + 1), np.int64)
    np.cumsum(valid, axis=1, out=up_to[:, 1:])
    last = np.full(queries, keys, np.int64)
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
