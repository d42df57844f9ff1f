"""Squared distances along edges on CUDA: Triton kernels, one program a chunk of one node's edges.

Chunks, and how the sums of a hub's chunks are added in order, are those of :mod:`hkconv.ops.cuda_walks`: no atomics,
and the same input gives the same bits. In Triton's interpreter the same functions take CPU tensors.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from hkconv.ops.backends import Launcher
from hkconv.ops.cuda_parts import TILE, TILE_PER_WARP, _arcosh1p, _points, _power_of_two, _relate, _time
from hkconv.ops.cuda_walks import _add_gradients_of_hubs, _by_source, _by_target, _chunk, _Rows, _Work, assert_inside
from hkconv.ops.neighbors import Neighbors


@triton.jit
def _forward(query, key, chunks, other, out, n: tl.constexpr, B: tl.constexpr, NP: tl.constexpr):
    """d² of a chunk of a target's edges."""
    node, first, last, _ = _chunk(chunks, tl.program_id(0))
    if node < 0:
        return
    i = tl.arange(0, NP)
    one = tl.zeros([1], tl.int32)
    own = _points(query, one + node, n, i, one == 0) + tl.zeros([B, NP], query.dtype.element_ty)
    own_time = _time(own)
    for start in range(first, last, B):
        e = start + tl.arange(0, B)
        valid = e < last
        there = _points(key, tl.load(other + e, mask=valid, other=0), n, i, valid)
        delta, _, _ = _relate(own, there, own_time, _time(there))
        distance = _arcosh1p(delta, tl.sqrt(delta) * tl.sqrt(delta + 2))
        tl.store(out + e, distance * distance, mask=valid)


@triton.jit
def _backward(
    points, other_points, grad, chunks, other, place, grad_node, hub_node,
    n: tl.constexpr, TO_SOURCE: tl.constexpr, B: tl.constexpr, NP: tl.constexpr,
):  # fmt: skip
    """Sums over a chunk of a node's edges, which are the node's gradient if there is no other chunk."""
    node, first, last, slot = _chunk(chunks, tl.program_id(0))
    if node < 0:
        return
    i = tl.arange(0, NP)
    one = tl.zeros([1], tl.int32)
    own = _points(points, one + node, n, i, one == 0) + tl.zeros([B, NP], points.dtype.element_ty)
    own_time = _time(own)
    klein = own / own_time[:, None]
    total = tl.zeros([B, NP], points.dtype.element_ty)
    for start in range(first, last, B):
        e = start + tl.arange(0, B)
        valid = e < last
        there = _points(other_points, tl.load(other + e, mask=valid, other=0), n, i, valid)
        at = tl.load(place + e, mask=valid, other=0) if TO_SOURCE else e
        delta, _, gap = _relate(own, there, own_time, _time(there))
        root = tl.sqrt(delta) * tl.sqrt(delta + 2)
        ratio = tl.where(root > 0, _arcosh1p(delta, root) / tl.where(root > 0, root, 1), 1)
        slope = 2 * tl.load(grad + at, mask=valid, other=0) * ratio
        total += tl.where(valid[:, None], slope[:, None] * ((own - there) - gap[:, None] * klein), 0)
    row = grad_node + node.to(tl.int64) * (n + 1) if slot < 0 else hub_node + slot.to(tl.int64) * (n + 1)
    tl.store(row, 0.0)
    tl.store(row + 1 + i, tl.sum(total, 0), mask=i < n)


def square_distances(query: Tensor, key: Tensor, neighbors: Neighbors) -> Tensor:
    """d² of each edge, in the order by target."""
    assert_inside(neighbors)
    by_target = _by_target(neighbors)
    out = query.new_empty(by_target.other.numel())
    if out.numel():
        tensors = [query, key, by_target.chunks, by_target.other, out]
        _launch_forward((by_target.chunks.size(0), 1), tensors, **_options(query, by_target))
    return out


def gradients(query: Tensor, key: Tensor, neighbors: Neighbors, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of :func:`square_distances` for queries and keys."""
    by_target, by_source = _by_target(neighbors), _by_source(neighbors)
    return (
        _gradient(by_target, query, key, grad, neighbors.by_source, to_source=False),
        _gradient(by_source, key, query, grad, neighbors.by_source, to_source=True),
    )


def _gradient(by: _Work, own: Tensor, other: Tensor, grad: Tensor, place: Tensor, to_source: bool) -> Tensor:
    found, hub = torch.empty_like(own), own.new_empty(by.slots, own.size(1))
    if found.numel():
        tensors = [own, other, grad, by.chunks, by.other, place, found, hub]
        _launch_backward((by.chunks.size(0), 1), tensors, TO_SOURCE=to_source, **_options(own, by))
        _add_gradients_of_hubs(by, _Rows(found, hub, found[:0], hub[:0]))
    return found


def _options(points: Tensor, by: _Work) -> dict[str, int]:
    """Constants the kernels are compiled for: tiles no longer than the usual neighborhood."""
    n = points.size(1) - 1
    width = _power_of_two(n)
    B = max(1, min(TILE // width, by.usual))
    return {"n": n, "B": B, "NP": width, "num_warps": max(1, min(8, B * width // TILE_PER_WARP))}


_launch_forward, _launch_backward = Launcher(_forward), Launcher(_backward)
