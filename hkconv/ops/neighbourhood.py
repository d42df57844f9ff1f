"""The edges of a graph with self loops, sorted once for the sums in both directions and then remembered."""

from dataclasses import dataclass

import torch
from torch import Tensor

from hkconv.ops.identity_cache import IdentityCache
from hkconv.ops.neighbors import Neighbors, read_edges, sort_edges


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """The directed edges of ``A + I``, sorted by target. An existing self loop is counted beside the added one.

    Or, from :func:`sort_ends` and :func:`without_loops`, the edges given there and no others.

    Args:
        source, target: the ends of each edge, ``(E,)``.
        order: where each stands among the given edges followed by the added loops, ``(E,)``.
        start: the first edge into each node and, last, the number of edges, ``(N+1,)``.
        by_source: the positions of the edges sorted by source, ``(E,)``.
        source_start: the first edge out of each node in that order, ``(N+1,)``.
        target_by_source: the targets in that order, ``(E,)``.
        given_weight: the values of a sparse matrix in the order of its edges, or None.
        weight_cache: remembers sorted weights; None in a compiled graph.
    """

    source: Tensor
    target: Tensor
    order: Tensor
    start: Tensor
    by_source: Tensor
    source_start: Tensor
    target_by_source: Tensor
    given_weight: Tensor | None
    weight_cache: IdentityCache | None

    @property
    def num_nodes(self) -> int:
        return self.start.numel() - 1

    def weights(self, edge_weight: Tensor | None, dtype: torch.dtype) -> Tensor | None:
        """The weights of the sorted edges, 1 for the added loops, ``(E,)``; None where all are 1."""
        given = self.given_weight if edge_weight is None else edge_weight
        if given is None or self.weight_cache is None:
            return None if given is None else self._sort_weights(given, dtype)
        return self.weight_cache.get(given, dtype, lambda: self._sort_weights(given, dtype))

    def _sort_weights(self, given: Tensor, dtype: torch.dtype) -> Tensor:
        loops = torch.ones(self.num_nodes, dtype=dtype, device=given.device)
        return torch.cat([given.to(dtype), loops]).index_select(0, self.order)


_neighbourhoods = IdentityCache()


def neighbourhood(edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int) -> Neighbourhood:
    """The neighbourhood of a graph, sorted when its ``edge_index`` is first seen.

    Args:
        edge_index: edges as :func:`hkconv.ops.neighbors.read_edges` takes them.
        edge_weight: checked here, used in :meth:`Neighbourhood.weights`.
        num_nodes: number of nodes.
    """
    tag = (num_nodes, None if edge_weight is None else edge_weight.shape)
    return _neighbourhoods.get(edge_index, tag, lambda: _sort(edge_index, edge_weight, num_nodes))


def _sort(edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int) -> Neighbourhood:
    edges = read_edges(edge_index, edge_weight, (num_nodes, num_nodes))
    nodes = torch.arange(num_nodes, device=edges.source.device)
    given_weight = edges.weight if edge_weight is None else None
    return sort_ends(torch.cat([edges.source, nodes]), torch.cat([edges.target, nodes]), num_nodes, given_weight)


def sort_ends(source: Tensor, target: Tensor, num_nodes: int, given_weight: Tensor | None = None) -> Neighbourhood:
    """The neighbourhood of edges that are known to lie within ``num_nodes``, without any further loop."""
    found = sort_edges(source, target, (num_nodes, num_nodes))
    return _under_names(found, given_weight, None if torch.compiler.is_compiling() else IdentityCache())


_loopless = IdentityCache()


def without_loops(found: Neighbors) -> Neighbourhood:
    """The same edges, none added, under the names that sums over neighbours read; sources and targets may differ."""
    # A copy, for what a cache keeps must not hold the tensor it goes by.
    return _loopless.get(found.order, None, lambda: _under_names(found._replace(order=found.order.clone())))


def _under_names(
    found: Neighbors, given_weight: Tensor | None = None, weight_cache: IdentityCache | None = None
) -> Neighbourhood:
    return Neighbourhood(
        source=found.source,
        target=found.target_by_target().int(),
        order=found.order,
        start=found.target_pointer,
        by_source=found.place,
        source_start=found.source_pointer,
        target_by_source=found.target,
        given_weight=given_weight,
        weight_cache=weight_cache,
    )
