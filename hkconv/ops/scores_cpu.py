"""Squared distances along edges on the CPU: kernels of :mod:`hkconv.ops.native` over the edges of each node.

A node's sums depend on its own edges alone, so the result is the same for any number of threads.
"""

import torch
from torch import Tensor

from hkconv.ops import native
from hkconv.ops.cpu import WORTH_A_THREAD, edges_by_source, edges_by_target
from hkconv.ops.neighbors import Neighbors


def square_distances(query: Tensor, key: Tensor, neighbors: Neighbors) -> Tensor:
    """d² of each edge, in the order by target."""
    pointer, source = edges_by_target(neighbors, key, query)
    out = query.new_empty(source.numel())
    native.call_typed("square_distances", out.dtype, *_sizes(key, query), key, query, pointer, source, out)
    return out


def gradients(query: Tensor, key: Tensor, neighbors: Neighbors, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of :func:`square_distances` for queries and keys."""
    of_query, of_key = torch.zeros_like(query), torch.zeros_like(key)
    by_target, by_source = edges_by_target(neighbors, key, query), edges_by_source(neighbors, key, query)
    native.call_typed("pull_distances", grad.dtype, *_sizes(key, query), key, query, *by_target, None, grad, of_query)
    native.call_typed("pull_distances", grad.dtype, *_sizes(query, key), query, key, *by_source, grad, of_key)
    return of_query, of_key


def _sizes(source: Tensor, target: Tensor) -> tuple[int, ...]:
    return torch.get_num_threads(), WORTH_A_THREAD, source.size(0), target.size(0), target.size(1) - 1
