"""Neighbourhoods as users hand them over, and the compressed form in which the fused backends walk over them."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.utils import is_torch_sparse_tensor, to_edge_index

from hkconv.errors import InputError
from hkconv.ops.chunks import Chunks, chunks_of
from hkconv.ops.identity_cache import IdentityCache


class Edges(NamedTuple):
    """Directed edges: ``source[e]`` is a neighbour of ``target[e]``."""

    source: Tensor
    target: Tensor
    weight: Tensor | None


class Neighbors(NamedTuple):
    """Edges sorted by target, and the way from there to the order by source; all in int32.

    The edges into target ``i`` are ``target_pointer[i]`` to ``target_pointer[i+1]``, and come from the nodes
    ``source[...]``. The edges out of source ``j`` are ``source_pointer[j]`` to ``source_pointer[j+1]``, go to the nodes
    ``target[...]`` and stand at ``place[...]`` in the order by target. ``order`` is where an edge of the order by
    target stood in the user's ``edge_index``. On CUDA both orders are cut into :class:`~hkconv.ops.chunks.Chunks`.
    """

    target_pointer: Tensor
    source: Tensor
    order: Tensor
    source_pointer: Tensor
    target: Tensor
    place: Tensor
    target_chunks: Tensor
    target_hubs: Tensor
    source_chunks: Tensor
    source_hubs: Tensor

    @property
    def size(self) -> tuple[int, int]:
        """Number of sources and of targets."""
        return self.source_pointer.numel() - 1, self.target_pointer.numel() - 1

    def target_by_target(self) -> Tensor:
        """The target of each edge, in the order by target."""
        degree = self.target_pointer.diff()
        return torch.arange(degree.numel(), device=degree.device).repeat_interleave(
            degree, output_size=self.source.numel()
        )

    def edges(self, weight: Tensor | None = None) -> Edges:
        """The edges in the order by target; ``weight`` is in the user's order."""
        weight = None if weight is None else weight.index_select(0, self.order)
        return Edges(self.source.long(), self.target_by_target(), weight)


def neighbors(edge_index: Tensor, size: tuple[int, int] | int) -> Neighbors:
    """The compressed neighbourhoods of a graph, to be passed to HKConv and HKN in place of ``edge_index``.

    Not needed for a graph that is used again and again: its structure is remembered as long as the same
    ``edge_index`` object is passed. Inside ``torch.compile`` nothing is remembered, so there it saves two sorts a
    layer.

    Args:
        edge_index: ``(2, E)`` of any integer type, PyG's ``EdgeIndex``, or a torch sparse matrix (targets, sources).
        size: number of sources and of targets, or one number of nodes for both.

    The values of a sparse matrix are not part of its structure: pass them as ``edge_weight``.
    """
    counts = (size, size) if isinstance(size, int) else (size[0], size[1])
    source, target, _ = _read(edge_index, None, counts)
    for index, count, name in ((source, counts[0], "sources"), (target, counts[1], "targets")):
        _raise_if_outside(index, count, f"edge_index ({name})")
    found = sort_edges(source, target, counts)
    # Looking at values is allowed here, so the lists of hubs need not keep room for all that there might be.
    hubs = {name: _used(getattr(found, name)) for name in ("target_hubs", "source_hubs")}
    return found._replace(**hubs)


def _used(rows: Tensor) -> Tensor:
    return rows[rows[:, 0] >= 0]


def read_edges(edge_index: Tensor | Neighbors, edge_weight: Tensor | None, size: tuple[int, int]) -> Edges:
    """Edges of a graph with ``size = (sources, targets)`` nodes, checked.

    As everywhere in PyG, a sparse matrix is the transposed adjacency: row = target, column = source.
    Its values act as edge weights unless ``edge_weight`` is given.
    """
    if isinstance(edge_index, Neighbors):
        _check_size(edge_index, size)
        return edge_index.edges(_checked_weight(edge_weight, edge_index.source))
    return _read(edge_index, edge_weight, size)


def read_neighbors(
    edge_index: Tensor | Neighbors, edge_weight: Tensor | None, size: tuple[int, int]
) -> tuple[Neighbors, Tensor | None]:
    """As :func:`find_neighbors`, but with the weights in the order by target."""
    found, weight = find_neighbors(edge_index, edge_weight, size)
    return found, None if weight is None else weight.index_select(0, found.order)


def find_neighbors(
    edge_index: Tensor | Neighbors, edge_weight: Tensor | None, size: tuple[int, int]
) -> tuple[Neighbors, Tensor | None]:
    """The compressed neighbourhoods, remembered by the identity of ``edge_index``; weights in the user's order."""
    if isinstance(edge_index, Neighbors):
        _check_size(edge_index, size)
        return edge_index, _checked_weight(edge_weight, edge_index.source)
    found = _structures.get(edge_index, size, lambda: _sort(edge_index, edge_weight, size))
    if edge_weight is None and is_torch_sparse_tensor(edge_index):
        edge_weight = _sparse_entries(edge_index)[1]
    return found, _checked_weight(edge_weight, found.source)


_structures, _flipped, _looped = IdentityCache(), IdentityCache(), IdentityCache()


def _sort(edge_index: Tensor, edge_weight: Tensor | None, size: tuple[int, int]) -> Neighbors:
    source, target, _ = _read(edge_index, edge_weight, size)
    return sort_edges(source, target, size)


def flip(found: Neighbors) -> Neighbors:
    """The same edges from target to source, remembered while ``found`` lives; weights keep the user's order."""
    # By the one tensor of `found` that the flipped structure has no use for.
    return _flipped.get(found.order, None, lambda: _flip(found))


def _flip(found: Neighbors) -> Neighbors:
    return Neighbors(
        target_pointer=found.source_pointer,
        source=found.target,
        order=found.order.index_select(0, found.place),
        source_pointer=found.target_pointer,
        target=found.source,
        place=found.place.argsort().int(),
        target_chunks=found.source_chunks,
        target_hubs=found.source_hubs,
        source_chunks=found.target_chunks,
        source_hubs=found.target_hubs,
    )


def with_loops(
    edge_index: Tensor | Neighbors, edge_weight: Tensor | None, num_nodes: int
) -> tuple[Tensor, Tensor | None]:
    """The edges and, beside those that are there, one from each node to itself, which weighs 1.

    Remembered by the identity of ``edge_index``, so that the structure of what comes back is found again too.
    """

    def build() -> Tensor:
        source, target, _ = read_edges(edge_index, None, (num_nodes, num_nodes))
        nodes = torch.arange(num_nodes, device=source.device)
        return torch.stack([torch.cat([source, nodes]), torch.cat([target, nodes])])

    key = edge_index.order if isinstance(edge_index, Neighbors) else edge_index
    looped = _looped.get(key, num_nodes, build)
    if edge_weight is None and (isinstance(edge_index, Neighbors) or not is_torch_sparse_tensor(edge_index)):
        return looped, None
    weight = read_edges(edge_index, edge_weight, (num_nodes, num_nodes)).weight
    return looped, None if weight is None else torch.cat([weight, weight.new_ones(num_nodes)])


def sort_edges(source: Tensor, target: Tensor, size: tuple[int, int]) -> Neighbors:
    """The structure of edges that are known to lie within ``size``."""
    if source.numel() >= 2**31:
        raise InputError(f"at most 2^31 - 1 edges fit, got {source.numel()}")
    target, order = target.int().sort(stable=True)
    source = source.int().index_select(0, order)
    by_source, place = source.sort(stable=True)
    target_pointer, source_pointer = _pointer(target, size[1]), _pointer(by_source, size[0])
    return Neighbors(
        target_pointer,
        source,
        order.int(),
        source_pointer,
        target.index_select(0, place),
        place.int(),
        *_chunks(target_pointer, source.numel()),
        *_chunks(source_pointer, source.numel()),
    )


def _chunks(pointer: Tensor, edges: int) -> Chunks:
    if pointer.device.type == "cpu":
        return Chunks(pointer.new_empty(0, 4), pointer.new_empty(0, 3))
    return chunks_of(pointer, edges)


def _pointer(sorted_index: Tensor, size: int) -> Tensor:
    bounds = torch.arange(size + 1, dtype=sorted_index.dtype, device=sorted_index.device)
    return torch.searchsorted(sorted_index, bounds, out_int32=True)


def _read(edge_index: Tensor, edge_weight: Tensor | None, size: tuple[int, int]) -> Edges:
    if is_torch_sparse_tensor(edge_index):
        return _from_sparse(edge_index, edge_weight, size)
    if isinstance(edge_index, EdgeIndex):
        edge_index = edge_index.as_tensor()
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise InputError(f"edge_index must have shape (2, edges), got {tuple(edge_index.shape)}")
    if edge_index.dtype not in {torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8}:
        raise InputError(f"edge_index must hold integers, got {edge_index.dtype}")
    source, target = edge_index.long()
    _check_range(source, size[0], "edge_index[0] (sources)")
    _check_range(target, size[1], "edge_index[1] (targets)")
    return Edges(source, target, _checked_weight(edge_weight, source))


def _from_sparse(matrix: Tensor, edge_weight: Tensor | None, size: tuple[int, int]) -> Edges:
    if tuple(matrix.shape) != (size[1], size[0]):
        raise InputError(
            f"a sparse neighbourhood matrix must have shape (targets, sources) = ({size[1]}, {size[0]}), "
            f"got {tuple(matrix.shape)}"
        )
    (target, source), value = _sparse_entries(matrix)
    return Edges(source, target, _checked_weight(value if edge_weight is None else edge_weight, source))


def _sparse_entries(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Indices (targets, sources) and values; not by PyG's function for COO, which would mark it as coalesced."""
    if matrix.layout == torch.sparse_coo:
        matrix = matrix.coalesce()
        return matrix.indices(), matrix.values()
    return to_edge_index(matrix)


def _check_size(found: Neighbors, size: tuple[int, int]) -> None:
    if found.size != size:
        raise InputError(f"these neighbors are of a graph with (sources, targets) = {found.size}, x has {size} points")


def _checked_weight(weight: Tensor | None, source: Tensor) -> Tensor | None:
    if weight is not None and weight.shape != source.shape:
        raise InputError(f"edge_weight must have shape ({source.numel()},), got {tuple(weight.shape)}")
    if weight is not None and _may_read(weight) and not (weight >= 0).all():
        raise InputError("edge_weight must be non-negative and not NaN: a centroid has no negative weights")
    return weight


def _check_range(index: Tensor, size: int, name: str) -> None:
    if _may_read(index):
        _raise_if_outside(index, size, name)


def _raise_if_outside(index: Tensor, size: int, name: str) -> None:
    if index.numel() == 0:
        return
    low, high = index.aminmax()
    if low < 0 or high >= size:
        raise InputError(f"{name} must lie in [0, {size}), got values from {int(low)} to {int(high)}")


def _may_read(values: Tensor) -> bool:
    """Whether looking at values is free: elsewhere it would synchronise a GPU or break a compiled graph."""
    return not torch.compiler.is_compiling() and values.device.type == "cpu" and values.numel() > 0
