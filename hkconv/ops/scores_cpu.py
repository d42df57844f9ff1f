"""Squared distances along edges on the CPU: Numba kernels over the edges of each node, as :mod:`hkconv.ops.cpu`.

A node's sums depend on its own edges alone, so the result is the same for any number of threads.
"""

import math

import numpy as np
import torch
from torch import Tensor

from hkconv.ops.compiling import njit
from hkconv.ops.cpu import KERNEL, PART, EdgeOrder, in_chunks, new_boost, order_by_source, order_by_target, relate
from hkconv.ops.neighbors import Neighbors


@njit(**PART)
def distance_of(delta):
    """d = arcosh(1 + δ) and sinh d."""
    root = math.sqrt(delta) * math.sqrt(delta + 2.0)
    return math.log1p(delta + root), root


@njit(**KERNEL)
def forward(first, last, by_target, query, key, out):
    """d² of the edges into the targets ``first`` to ``last``."""
    boost = new_boost(1, query)
    for node in range(first, last):
        for e in range(by_target.pointer[node], by_target.pointer[node + 1]):
            relate(query, node, key, by_target.other[e], boost, 0)
            distance, _ = distance_of(boost.delta[0])
            out[e] = distance * distance


@njit(**KERNEL)
def backward(first, last, order, own, other, grad, grad_own):
    """Gradients of the nodes ``first`` to ``last`` at one end of the edges, zero in time."""
    boost = new_boost(1, own)
    n = own.shape[1] - 1
    total = np.empty(n, np.float64)
    for node in range(first, last):
        for i in range(n):
            total[i] = 0.0
        for e in range(order.pointer[node], order.pointer[node + 1]):
            end = order.other[e]
            relate(own, node, other, end, boost, 0)
            distance, root = distance_of(boost.delta[0])
            along_gap = 2.0 * grad[order.position[e] if order.position.size else e]
            if root > 0.0:
                along_gap *= distance / root
            along_own = along_gap * boost.time_gap[0] / boost.source_time[0]
            for i in range(n):
                here, there = np.float64(own[node, 1 + i]), np.float64(other[end, 1 + i])
                total[i] += along_gap * (here - there) - along_own * here
        grad_own[node, 0] = 0.0
        for i in range(n):
            grad_own[node, 1 + i] = total[i]


def square_distances(query: Tensor, key: Tensor, neighbors: Neighbors) -> Tensor:
    """d² of each edge, in the order by target."""
    by_target = order_by_target(neighbors)
    out = query.new_empty(by_target.other.size)
    arrays = query.numpy(), key.numpy(), out.numpy()
    in_chunks(by_target, query.size(1), lambda first, last: forward(first, last, by_target, *arrays))
    return out


def gradients(query: Tensor, key: Tensor, neighbors: Neighbors, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of :func:`square_distances` for queries and keys."""
    return (
        _gradient(order_by_target(neighbors), query, key, grad),
        _gradient(order_by_source(neighbors), key, query, grad),
    )


def _gradient(order: EdgeOrder, own: Tensor, other: Tensor, grad: Tensor) -> Tensor:
    found = torch.empty_like(own)
    arrays = own.numpy(), other.numpy(), grad.numpy(), found.numpy()
    in_chunks(order, own.size(1), lambda first, last: backward(first, last, order, *arrays))
    return found
