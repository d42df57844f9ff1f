"""Sums over edges that read nodes and write nodes, without a tensor of the size edges x coordinates between.

Measured for a sum of 17 coordinates over 5,201 nodes and 396,000 edges in float32, forward and backward:

====================================  ===============  ============  ====================
milliseconds                          CPU (two cores)  GPU (H200)    GPU, hubs as targets
====================================  ===============  ============  ====================
gather, index_add                     35               0.28          0.34
gather, PyG's scatter                 31               0.29          0.30
CSR matrix product                    31               0.60          1.43
the same, transpose kept, int32       1.9              0.22          0.21
``embedding_bag``, both orders kept   1.6              0.16          5.2
====================================  ===============  ============  ====================

The autograd of a CSR product transposes the matrix anew, hence the functions of our own. On a CPU the bag is as fast
as the product and does not need MKL; in float64 it takes nine times as long as the product, which is taken there. On a
GPU it walks through a hub's edges one by one, and is used only in a compiled graph, which can hold no sparse matrix,
and where results must repeat to the last bit, which cuSPARSE's do not. Inside ``torch.func`` edges are gathered and
added, which is what ``vmap`` knows how to do for many networks at once.
"""

import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.ops.backends import is_transformed
from hkconv.ops.neighbors import Neighbors

# That sparse matrices are in beta, and unchecked: nobody but this file meets them, and it sorts their indices itself.
warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")

# Edges at once where an edge needs all coordinates of both ends.
BLOCK = 2**14


def neighbor_sum(x: Tensor, weight: Tensor | None, neighbors: Neighbors) -> Tensor:
    r"""The sums :math:`\sum_j w_{ij} x_j` over the neighbors :math:`j` of each node, ``(N, d), (E,) -> (N, d)``."""
    if weight is not None and weight.dtype != x.dtype:  # under autocast one may be in half precision
        common = torch.promote_types(x.dtype, weight.dtype)
        x, weight = x.to(common), weight.to(common)
    if is_transformed():
        rows = x.index_select(0, neighbors.source.long())
        return _added(rows if weight is None else weight.unsqueeze(-1) * rows, neighbors)
    return _NeighborSum.apply(x, weight, neighbors)


def square_distance(x: Tensor, y: Tensor, neighbors: Neighbors) -> Tensor:
    r"""The squares :math:`|x_j - y_i|^2` along all edges :math:`j \to i`, ``(N, d), (N, d) -> (E,)``."""
    if is_transformed():
        source, target, _ = neighbors.edges()
        return (x.index_select(0, source) - y.index_select(0, target)).square().sum(-1)
    # A view, because a compiler does not take the same tensor twice.
    return _SquareDistance.apply(x, y.view_as(y), neighbors)


def at_source(x: Tensor, neighbors: Neighbors) -> Tensor:
    """Gather the values of the edges' sources, ``(N,) -> (E,)``."""
    return x.index_select(0, neighbors.source.long()) if is_transformed() else _AtSource.apply(x, neighbors)


def at_target(x: Tensor, neighbors: Neighbors) -> Tensor:
    """Gather the values of the edges' targets, ``(N,) -> (E,)``."""
    return x.index_select(0, neighbors.target.long()) if is_transformed() else _AtTarget.apply(x, neighbors)


def target_sum(x: Tensor, neighbors: Neighbors) -> Tensor:
    """The sums over all edges into each node, ``(E,) -> (N,)``."""
    return _added(x, neighbors) if is_transformed() else _TargetSum.apply(x, neighbors)


@torch.no_grad()
def target_max(x: Tensor, neighbors: Neighbors) -> Tensor:
    """The largest value of all edges into each node, without gradient, ``(E,) -> (N,)``."""
    if is_transformed():
        lowest = x.new_full((neighbors.size[1],), -torch.inf)
        return lowest.scatter_reduce(0, neighbors.target.long(), x, "amax")
    return torch.segment_reduce(x, "max", offsets=neighbors.target_pointer.long())


def _added(values: Tensor, neighbors: Neighbors) -> Tensor:
    """The sums of values of edges over the edges into each node."""
    return values.new_zeros(neighbors.size[1], *values.shape[1:]).index_add(0, neighbors.target.long(), values)


class _NeighborSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, neighbors: Neighbors) -> Tensor:
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight)
        ctx.neighbors = neighbors
        return _sum_into(x, weight, neighbors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        neighbors = ctx.neighbors
        grad_x = _sum_out_of(grad, weight, neighbors) if ctx.needs_input_grad[0] else None
        grad_weight = None
        if ctx.needs_input_grad[1]:
            blocks = _blocks(neighbors)
            grad_weight = torch.cat([_row_sum(x.index_select(0, j) * grad.index_select(0, i)) for j, i in blocks])
        return grad_x, grad_weight, None


class _SquareDistance(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, neighbors: Neighbors) -> Tensor:
        ctx.save_for_backward(x, y)
        ctx.neighbors = neighbors
        blocks = _blocks(neighbors)
        return torch.cat([_row_sum((x.index_select(0, j) - y.index_select(0, i)).square()) for j, i in blocks])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, y = ctx.saved_tensors
        # A column of ones collects the sums of the gradient itself, which multiply the node's own coordinates.
        of_targets = _sum_out_of(F.pad(y, (0, 1), value=1.0), grad, ctx.neighbors)
        of_sources = _sum_into(F.pad(x, (0, 1), value=1.0), grad, ctx.neighbors)
        grad_x = 2 * (of_targets[:, -1:] * x - of_targets[:, :-1])
        grad_y = 2 * (of_sources[:, -1:] * y - of_sources[:, :-1])
        return grad_x, grad_y, None


class _AtSource(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, neighbors: Neighbors) -> Tensor:
        ctx.neighbors = neighbors
        return x.index_select(0, neighbors.source)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _sum_out_of(grad.new_ones(ctx.neighbors.size[1], 1), grad, ctx.neighbors).squeeze(-1), None


class _AtTarget(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, neighbors: Neighbors) -> Tensor:
        ctx.neighbors = neighbors
        return x.index_select(0, neighbors.target)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return target_sum(grad, ctx.neighbors), None


class _TargetSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, neighbors: Neighbors) -> Tensor:
        ctx.neighbors = neighbors
        return _sum_into(x.new_ones(neighbors.size[0], 1), x, neighbors).squeeze(-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return at_target(grad, ctx.neighbors), None


def _sum_into(x: Tensor, weight: Tensor | None, neighbors: Neighbors) -> Tensor:
    """Sum the rows of the sources over the edges into each node."""
    return _weighted_sums(x, neighbors.source, neighbors.target_pointer, weight)


def _sum_out_of(x: Tensor, weight: Tensor | None, neighbors: Neighbors) -> Tensor:
    """Sum the rows of the targets over the edges out of each node."""
    weight = None if weight is None else weight.index_select(0, neighbors.by_source)
    return _weighted_sums(x, neighbors.target_by_source, neighbors.source_pointer, weight)


def _weighted_sums(x: Tensor, index: Tensor, start: Tensor, weight: Tensor | None) -> Tensor:
    """Row ``i`` is the sum of ``weight[e] * x[index[e]]`` from ``e = start[i]`` to ``start[i + 1]``."""
    if _takes_bags(x):
        return F.embedding_bag(index, x, start, mode="sum", per_sample_weights=weight, include_last_offset=True)
    weight = x.new_ones(index.numel()) if weight is None else weight
    size = (start.numel() - 1, x.size(0))
    return torch.sparse_csr_tensor(start, index, weight, size, check_invariants=False) @ x


def _takes_bags(x: Tensor) -> bool:
    if torch.compiler.is_compiling():
        return True
    if x.is_cuda:
        return torch.are_deterministic_algorithms_enabled()
    # The bag of float64 gathers all edges first, and takes nine times as long.
    return x.dtype != torch.float64 or not torch.backends.mkl.is_available()


def _blocks(neighbors: Neighbors) -> Iterable[tuple[Tensor, Tensor]]:
    """Sources and targets of the edges, on a CPU so many at once that their coordinates stay in the cache."""
    if neighbors.source.is_cuda or torch.compiler.is_compiling():
        return [(neighbors.source, neighbors.target)]
    return zip(neighbors.source.split(BLOCK), neighbors.target.split(BLOCK))


def _row_sum(x: Tensor) -> Tensor:
    """The sum of each short row, as a product, which takes half the time of ``sum``."""
    return x @ x.new_ones(x.size(-1))
