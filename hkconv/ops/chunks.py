"""Neighborhoods cut into chunks of bounded length, so that one hub does not keep a GPU waiting."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

# A chunk holds about four usual neighborhoods, so that few nodes are split, within these bounds.
SHORTEST, LONGEST = 128, 1024


class Chunks(NamedTuple):
    """Work for the programs of a GPU, made without looking at a value: sizes are bounds, unused rows have node -1.

    Args:
        chunks: int32 ``(C, 4)``: node, first and last edge, and the slot for its sums, -1 if the node has no other.
        hubs: int32 ``(H, 3)``: each node of several chunks, with its first and last slot.
    """

    chunks: Tensor
    hubs: Tensor


def chunks_of(pointer: Tensor, edges: int) -> Chunks:
    """Cut the neighborhoods ``pointer[i]`` to ``pointer[i+1]`` into chunks."""
    nodes = pointer.numel() - 1
    length = _chunk_length(nodes, edges)
    degree = pointer.diff()
    parts = (degree + (length - 1)).div(length, rounding_mode="floor").clamp(min=1)
    split = parts > 1
    part_pointer, slot_pointer = _counted(parts), _counted(torch.where(split, parts, 0))
    # d edges make ceil(d/length) <= 1 + (d - 1)/length chunks.
    item = torch.arange(nodes + edges // length, device=pointer.device)
    node = torch.searchsorted(part_pointer, item, right=True) - 1
    used = node < nodes
    node = node.clamp(max=max(0, nodes - 1))
    part = item - part_pointer[node]
    first = pointer[node] + part * length
    last = torch.where(used, torch.minimum(first + length, pointer[node + 1]), first)
    slot = torch.where(split[node], slot_pointer[node] + part, -1)
    chunks = torch.stack([torch.where(used, node, -1), first, last, slot], dim=1)
    return Chunks(chunks.int(), _hubs(split, slot_pointer, edges // (length + 1)))


def slots_for(nodes: int, edges: int) -> int:
    """Bound on the number of chunks of hubs: those of d > length edges have at most 2 d/length."""
    return 2 * (edges // _chunk_length(nodes, edges))


def usual_degree(nodes: int, edges: int) -> int:
    """A power of two near the mean number of edges of a node."""
    return 1 << max(0, round(edges / max(1, nodes)) - 1).bit_length()


def _chunk_length(nodes: int, edges: int) -> int:
    return min(LONGEST, max(SHORTEST, 4 * usual_degree(nodes, edges)))


def _hubs(split: Tensor, slot_pointer: Tensor, most: int) -> Tensor:
    rank = torch.arange(1, most + 1, device=split.device)
    node = torch.searchsorted(split.cumsum(0), rank)
    used = node < split.numel()
    node = node.clamp(max=max(0, split.numel() - 1))
    rows = [torch.where(used, node, -1), slot_pointer[node], slot_pointer[node + 1]]
    return torch.stack(rows, dim=1).int()


def _counted(count: Tensor) -> Tensor:
    return F.pad(count.cumsum(0), (1, 0))
