"""Walks over the edges of nodes on CUDA: chunks, the sums of those of one node, and a look at all indices before.

Nodes with many edges are split into chunks (:func:`hkconv.ops.chunks.chunks_of`), whose sums go to a buffer of their
own and are then added in order. There are no atomics: the same input gives the same bits.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from hkconv.ops.backends import Launcher
from hkconv.ops.chunks import chunks_of, slots_for, usual_degree
from hkconv.ops.cuda_parts import _power_of_two
from hkconv.ops.identity_cache import IdentityCache
from hkconv.ops.neighbors import Neighbors

# Entries of a structure that a program looks through before kernels follow it.
LOOK = 1024
_asserted = IdentityCache()


@triton.jit
def _chunk(chunks, item):
    """Node, first and last edge, and slot of a chunk; see :class:`hkconv.ops.chunks.Chunks`."""
    chunk = chunks + item * 4
    return tl.load(chunk), tl.load(chunk + 1), tl.load(chunk + 2), tl.load(chunk + 3)


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
    source, target, target_by_source, by_source, by_target_chunks, by_source_chunks,
    edges, sources, targets, target_chunks, source_chunks, LOOK: tl.constexpr,
):  # fmt: skip
    """Assert that no index of a structure leads out of memory: kernels follow it blindly."""
    e = tl.program_id(0) * LOOK + tl.arange(0, LOOK)
    u = tl.load(source + e, mask=e < edges, other=0)
    x = tl.load(target_by_source + e, mask=e < edges, other=0)
    y = tl.load(target + e, mask=e < edges, other=0)
    place = tl.load(by_source + e, mask=e < edges, other=0)
    tl.device_assert((u >= 0) & ((u < sources) | (e >= edges)), "hkconv: no source of this graph")
    tl.device_assert((x >= 0) & ((x < targets) | (e >= edges)), "hkconv: no target of this graph")
    tl.device_assert((y >= 0) & ((y < targets) | (e >= edges)), "hkconv: no target of this graph")
    tl.device_assert((place >= 0) & ((place < edges) | (e >= edges)), "hkconv: no edge of this graph")
    _assert_chunks(by_target_chunks, e, target_chunks, targets, edges)
    _assert_chunks(by_source_chunks, e, source_chunks, sources, edges)


def assert_inside(neighbors: Neighbors) -> None:
    """Assert on the device, without waiting for it, that a structure is one of its graph; once, until it is changed."""
    chunks = neighbors.target_chunks, neighbors.source_chunks
    ends = neighbors.source, neighbors.target, neighbors.target_by_source
    tensors = [*ends, neighbors.by_source, *chunks]
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


class _Rows(NamedTuple):
    """Gradients of nodes and of their products, and room for those of the chunks of hubs."""

    node: Tensor
    hub_node: Tensor
    product: Tensor
    hub_product: Tensor


def _gradient_rows(node: Tensor, product: Tensor | None, by: _Work) -> _Rows:
    product = node.new_empty(0, 0) if product is None else product
    rooms = ((torch.empty_like(value), value.new_empty(by.slots, value.size(1))) for value in (node, product))
    return _Rows(*next(rooms), *next(rooms))


def _add_gradients_of_hubs(by: _Work, rows: _Rows) -> None:
    if by.hubs.size(0) == 0:
        return
    widths = {"node_width": rows.node.size(1), "product_width": rows.product.size(1)}
    block = min(1024, _power_of_two(max(widths.values())))
    tensors = [by.hubs, rows.hub_node, rows.node, rows.hub_product, rows.product]
    _launch_add_hubs((by.hubs.size(0), 2), tensors, **widths, PRODUCT=rows.product.numel() > 0, BLOCK=block)


_launch_assert_inside, _launch_add_hubs = Launcher(_assert_inside), Launcher(_add_hubs)
