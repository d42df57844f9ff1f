"""Squared distances along edges on the CPU: Numba kernels over the edges of each node, as :mod:`hkconv.ops.cpu`.

A node's sums depend on its own edges alone, so the result is the same for any number of threads.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor

from hkconv.ops.cpu import KERNEL, PART, Group, _look, in_chunks
from hkconv.ops.neighbors import Neighbors


class Seen(NamedTuple):
    """Room for what the two ends of one edge are to each other, as ``Block`` in :mod:`hkconv.ops.cpu`."""

    klein: np.ndarray
    look: np.ndarray


@njit(**PART)
def _room(points):
    return Seen(np.empty((1, points.shape[1] - 1), points.dtype), np.empty((5, 1), np.float64))


@njit(**PART)
def _distance(delta):
    """d = arcosh(1 + δ) and sinh d."""
    root = math.sqrt(delta) * math.sqrt(delta + 2.0)
    return math.log1p(delta + root), root


@njit(**KERNEL)
def forward(first, last, by_target, query, key, out):
    """d² of the edges into the targets ``first`` to ``last``."""
    seen = _room(query)
    for node in range(first, last):
        for e in range(by_target.pointer[node], by_target.pointer[node + 1]):
            _look(query, node, key, by_target.other[e], seen, 0)
            distance, _ = _distance(seen.look[0, 0])
            out[e] = distance * distance


@njit(**KERNEL)
def backward(first, last, group, own, other, grad, grad_own):
    """Gradients of the nodes ``first`` to ``last`` at one end of the edges, zero in time."""
    seen = _room(own)
    n = own.shape[1] - 1
    total = np.empty(n, np.float64)
    for node in range(first, last):
        for i in range(n):
            total[i] = 0.0
        for e in range(group.pointer[node], group.pointer[node + 1]):
            end = group.other[e]
            _look(own, node, other, end, seen, 0)
            distance, root = _distance(seen.look[0, 0])
            along_gap = 2.0 * grad[group.place[e] if group.place.size else e]
            if root > 0.0:
                along_gap *= distance / root
            along_own = along_gap * seen.look[3, 0] / seen.look[2, 0]
            for i in range(n):
                here, there = np.float64(own[node, 1 + i]), np.float64(other[end, 1 + i])
                total[i] += along_gap * (here - there) - along_own * here
        grad_own[node, 0] = 0.0
        for i in range(n):
            grad_own[node, 1 + i] = total[i]


def square_distances(query: Tensor, key: Tensor, neighbors: Neighbors) -> Tensor:
    """d² of each edge, in the order by target."""
    by_target = Group(neighbors.target_pointer.numpy(), neighbors.source.numpy(), np.empty(0, np.int32))
    out = query.new_empty(by_target.other.size)
    arrays = query.numpy(), key.numpy(), out.numpy()
    in_chunks(by_target, query.size(1), lambda first, last: forward(first, last, by_target, *arrays))
    return out


def gradients(query: Tensor, key: Tensor, neighbors: Neighbors, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of :func:`square_distances` for queries and keys."""
    by_target = Group(neighbors.target_pointer.numpy(), neighbors.source.numpy(), np.empty(0, np.int32))
    by_source = Group(neighbors.source_pointer.numpy(), neighbors.target_by_source.numpy(), neighbors.by_source.numpy())
    return _gradient(by_target, query, key, grad), _gradient(by_source, key, query, grad)


def _gradient(group: Group, own: Tensor, other: Tensor, grad: Tensor) -> Tensor:
    found = torch.empty_like(own)
    arrays = own.numpy(), other.numpy(), grad.numpy(), found.numpy()
    in_chunks(group, own.size(1), lambda first, last: backward(first, last, group, *arrays))
    return found
