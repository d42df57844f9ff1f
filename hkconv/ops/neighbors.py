"""The neighbor structure of a graph: edges as users hand them over, sorted once into CSR and CSC form and remembered.

Every operation along edges reads this one structure: the fused backends, and the sums of :mod:`hkconv.ops.edge_sums`.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.utils import is_torch_sparse_tensor, to_edge_index

from hkconv.errors import InputError
from hkconv.geometry.checks import check_tensor
from hkconv.ops.backends import is_transformed
from hkconv.ops.chunks import Chunks, chunks_of
from hkconv.ops.identity_cache import IdentityCache, is_capturing


class Edges(NamedTuple):
    """Directed edges: ``source[e]`` is a neighbor of ``target[e]``."""

    source: Tensor
    target: Tensor
    weight: Tensor | None


class Neighbors(NamedTuple):
    """Neighbor structure in CSR and CSC form, for S sources, T targets and E edges; all int32.

    Args:
        source, target: the ends of each edge, ``(E,)``, sorted by target.
        order: position of each of these edges in the user's ``edge_index``, ``(E,)``.
        target_pointer: the edges into target ``i`` are ``target_pointer[i]`` to ``target_pointer[i+1]``, ``(T+1,)``.
        by_source: positions of the edges above, sorted by source, ``(E,)``.
        target_by_source: their targets, ``(E,)``.
        source_pointer: the edges out of source ``j`` are ``source_pointer[j]`` to ``source_pointer[j+1]`` of these,
            ``(S+1,)``.
        target_chunks, target_hubs, source_chunks, source_hubs: both orders cut into
            :class:`~hkconv.ops.chunks.Chunks` on CUDA, empty elsewhere.
    """

    source: Tensor
    target: Tensor
    order: Tensor
    target_pointer: Tensor
    by_source: Tensor
    target_by_source: Tensor
    source_pointer: Tensor
    target_chunks: Tensor
    target_hubs: Tensor
    source_chunks: Tensor
    source_hubs: Tensor

    @property
    def size(self) -> tuple[int, int]:
        """Number of sources and of targets."""
        return self.source_pointer.numel() - 1, self.target_pointer.numel() - 1

    def edges(self, weight: Tensor | None = None) -> Edges:
        """The edges in the order by target; ``weight`` is in the user's order."""
        weight = None if weight is None else weight.index_select(0, self.order)
        return Edges(self.source.long(), self.target.long(), weight)


_inside, _structures, _flipped, _unfolded, _values, _looped_edges, _looped, _looped_weights, _checked_weights = (
    IdentityCache() for _ in range(9)
)


def neighbors(edge_index: Tensor, size: tuple[int, int] | int) -> Neighbors:
    """The compressed neighborhoods of a graph, to be passed to HKConv and HKN in place of ``edge_index``.

    Not needed for a graph that is used again and again: its structure is remembered as long as the same
    ``edge_index`` object is passed. Inside ``torch.compile`` nothing is remembered, so there it saves two sorts a
    layer.

    Args:
        edge_index: ``(2, E)`` of any integer type, PyG's ``EdgeIndex``, or a torch sparse matrix (targets, sources).
        size: number of sources and of targets, or one number of nodes for both.

    The values of a sparse matrix are not part of its structure: pass them as ``edge_weight``.
    """
    found = _sort(edge_index, (size, size) if isinstance(size, int) else (size[0], size[1]))
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
    check_tensor(edge_index, "edge_index")
    source, target, value = _read(edge_index, size)
    _inside.get(edge_index, size, lambda: _check_inside(source, target, size))
    return Edges(source, target, _checked_weight(value if edge_weight is None else edge_weight, source))


def read_neighbors(
    edge_index: Tensor | Neighbors, edge_weight: Tensor | None, size: tuple[int, int]
) -> tuple[Neighbors, Tensor | None]:
    """As :func:`find_neighbors`, but with the weights in the order by target."""
    found, weight = find_neighbors(edge_index, edge_weight, size)
    return found, None if weight is None else weight.index_select(0, found.order)


def find_neighbors(
    edge_index: Tensor | Neighbors, edge_weight: Tensor | None, size: tuple[int, int]
) -> tuple[Neighbors, Tensor | None]:
    """The compressed neighborhoods, remembered by the identity of ``edge_index``; weights in the user's order."""
    if isinstance(edge_index, Neighbors):
        _check_size(edge_index, size)
        return edge_index, _checked_weight(edge_weight, edge_index.source)
    check_tensor(edge_index, "edge_index")
    found = _structures.get(edge_index, size, lambda: _sort(edge_index, size))
    if edge_weight is None and is_torch_sparse_tensor(edge_index):
        edge_weight = _sparse_values(edge_index)
    return found, _checked_weight(edge_weight, found.source)


def _sort(edge_index: Tensor, size: tuple[int, int]) -> Neighbors:
    source, target, _ = _read(edge_index, size)
    _check_inside(source, target, size)
    if _is_deferred(source):
        # The assertion may come after what reads these indices, and these must not reach out of memory until then.
        source, target = (index.clamp(0, max(0, count - 1)) for index, count in zip((source, target), size))
    return sort_edges(source, target, size)


def flip(found: Neighbors) -> Neighbors:
    """The same edges from target to source, remembered while ``found`` lives; weights keep the user's order."""
    # By the one tensor of `found` that the flipped structure has no use for.
    return _flipped.get(found.order, None, lambda: _flip(found))


def _flip(found: Neighbors) -> Neighbors:
    return Neighbors(
        source=found.target_by_source,
        target=found.source.index_select(0, found.by_source),
        order=found.order.index_select(0, found.by_source),
        target_pointer=found.source_pointer,
        by_source=found.by_source.argsort().int(),
        target_by_source=found.source,
        source_pointer=found.target_pointer,
        target_chunks=found.source_chunks,
        target_hubs=found.source_hubs,
        source_chunks=found.target_chunks,
        source_hubs=found.target_hubs,
    )


def unfold(found: Neighbors) -> Neighbors:
    """The same edges, each with a source of its own: edge ``e`` in the order by target comes from source ``e``.

    Remembered while ``found`` lives; weights are in the order by target.
    """
    return _unfolded.get(found.order, None, lambda: _unfold(found))


def _unfold(found: Neighbors) -> Neighbors:
    count = found.source.numel()
    pointer = torch.arange(count + 1, dtype=torch.int32, device=found.source.device)
    edge = pointer[:count]
    source_chunks, source_hubs = _chunks(pointer, count)
    return found._replace(
        source=edge,
        order=edge,
        by_source=edge,
        target_by_source=found.target,
        source_pointer=pointer,
        source_chunks=source_chunks,
        source_hubs=source_hubs,
    )


def with_loops(
    edge_index: Tensor | Neighbors, edge_weight: Tensor | None, num_nodes: int
) -> tuple[Tensor, Tensor | None]:
    """The edges of ``A + I`` and their weights, 1 for the added loops; an existing loop counts beside the added one.

    Remembered by the identity of ``edge_index``, so that the structure of the returned edges is found again too.
    """
    size = (num_nodes, num_nodes)
    key = edge_index.order if isinstance(edge_index, Neighbors) else edge_index
    looped = _looped_edges.get(
        key, num_nodes, lambda: torch.stack(_append_loops(read_edges(edge_index, None, size), num_nodes))
    )
    if edge_weight is None and (isinstance(edge_index, Neighbors) or not is_torch_sparse_tensor(edge_index)):
        return looped, None
    weight = read_edges(edge_index, edge_weight, size).weight
    return looped, None if weight is None else torch.cat([weight, weight.new_ones(num_nodes)])


def neighbors_with_loops(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int, dtype: torch.dtype
) -> tuple[Neighbors, Tensor | None]:
    """The structure of ``A + I`` and its weights in the order by target, None where all are 1.

    Both are remembered by the identity of the tensors they come from. An existing loop counts beside the added one,
    which weighs 1.
    """
    size = (num_nodes, num_nodes)

    def build() -> tuple[Neighbors, Tensor | None]:
        edges = read_edges(edge_index, None, size)
        weight = edges.weight
        if weight is not None and not weight.requires_grad:
            weight = weight.detach()  # a view of a sparse matrix would keep it alive, and so itself
        return sort_edges(*_append_loops(edges, num_nodes), size), weight

    found, given = _looped.get(edge_index, num_nodes, build)
    weight = given if edge_weight is None else _check_shape(edge_weight, found.order.numel() - num_nodes)
    if weight is None:
        return found, None

    def arrange() -> Tensor:
        loops = torch.ones(num_nodes, dtype=dtype, device=weight.device)
        return torch.cat([_check_sign(weight).to(dtype), loops]).index_select(0, found.order)

    if torch.compiler.is_compiling():
        return found, arrange()
    return found, _looped_weights.get(found.order, None, IdentityCache).get(weight, dtype, arrange)


def _append_loops(edges: Edges, num_nodes: int) -> tuple[Tensor, Tensor]:
    nodes = torch.arange(num_nodes, device=edges.source.device)
    return torch.cat([edges.source, nodes]), torch.cat([edges.target, nodes])


def sort_edges(source: Tensor, target: Tensor, size: tuple[int, int]) -> Neighbors:
    """The structure of edges that are known to lie within ``size``."""
    if source.numel() >= 2**31:
        raise InputError(f"at most 2^31 - 1 edges fit, got {source.numel()}")
    target, order = target.int().sort(stable=True)
    source = source.int().index_select(0, order)
    sorted_source, by_source = source.sort(stable=True)
    target_pointer, source_pointer = _pointer(target, size[1]), _pointer(sorted_source, size[0])
    return Neighbors(
        source,
        target,
        order.int(),
        target_pointer,
        by_source.int(),
        target.index_select(0, by_source),
        source_pointer,
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


def _read(edge_index: Tensor, size: tuple[int, int]) -> Edges:
    """Edges in the order given, with the values of a sparse matrix as weights; their range is not checked."""
    if is_torch_sparse_tensor(edge_index):
        return _from_sparse(edge_index, size)
    if isinstance(edge_index, EdgeIndex):
        edge_index = edge_index.as_tensor()
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise InputError(f"edge_index must have shape (2, edges), got {tuple(edge_index.shape)}")
    if edge_index.dtype not in {torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8}:
        raise InputError(f"edge_index must hold integers, got {edge_index.dtype}")
    source, target = edge_index.long()
    return Edges(source, target, None)


def _from_sparse(matrix: Tensor, size: tuple[int, int]) -> Edges:
    if tuple(matrix.shape) != (size[1], size[0]):
        raise InputError(
            f"a sparse neighborhood matrix must have shape (targets, sources) = ({size[1]}, {size[0]}), "
            f"got {tuple(matrix.shape)}"
        )
    (target, source), value = _sparse_entries(matrix)
    return Edges(source, target, value)


def _sparse_entries(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Indices (targets, sources) and values; not by PyG's function for COO, which would mark it as coalesced."""
    if matrix.layout == torch.sparse_coo:
        matrix = matrix.coalesce()
        return matrix.indices(), matrix.values()
    return to_edge_index(matrix)


def _sparse_values(matrix: Tensor) -> Tensor:
    """Values of a sparse matrix, the same tensor each time, so that it is checked once."""
    if matrix.requires_grad:
        return _sparse_entries(matrix)[1]
    return _values.get(matrix, None, lambda: _sparse_entries(matrix)[1].detach())


def _check_size(found: Neighbors, size: tuple[int, int]) -> None:
    if found.size != size:
        raise InputError(f"these neighbors are of a graph with (sources, targets) = {found.size}, x has {size} points")

    def check() -> None:
        for ends, count in zip((found.source, found.target), size):
            _check_range(ends, count, f"these neighbors must lie in [0, {count}), as hkconv.neighbors makes them")

    # Once, until it is written to: whoever holds it may have changed it since. Inside torch.func nobody may look.
    if not is_transformed():
        _inside.get(found.source, size, check)


def _checked_weight(weight: Tensor | None, source: Tensor) -> Tensor | None:
    return None if weight is None else _check_sign(_check_shape(weight, source.numel()))


def _check_shape(weight: Tensor, edges: int) -> Tensor:
    if weight.shape != (edges,):
        raise InputError(f"edge_weight must have shape ({edges},), got {tuple(weight.shape)}")
    return weight


def _check_sign(weight: Tensor) -> Tensor:
    """Refuse weights that a centroid cannot have: negative, infinite or NaN; once a tensor.

    Those that are learned are looked at only where that is free: a guard of the training sees what becomes of them.
    """
    if not weight.requires_grad or _may_read(weight):
        wanted = "edge_weight must be non-negative and finite"
        _checked_weights.get(weight, None, lambda: _check_range(weight, torch.inf, wanted))
    return weight


def _check_inside(source: Tensor, target: Tensor, size: tuple[int, int]) -> None:
    """Refuse indices that are not those of a node."""
    _check_range(source, size[0], f"edge_index[0] (sources) must lie in [0, {size[0]})")
    _check_range(target, size[1], f"edge_index[1] (targets) must lie in [0, {size[1]})")


def _check_range(values: Tensor, end: float, wanted: str) -> None:
    """Refuse values outside of [0, end), and NaN; a compiled or captured graph cannot wait for them, and asserts."""
    if _is_deferred(values):
        torch._assert_async(((values >= 0) & (values < end)).all(), f"hkconv: {wanted}")
    elif values.numel():
        low, high = values.detach().aminmax()  # NaN if there is one
        if not ((low >= 0) & (high < end)):
            raise InputError(f"{wanted}, got values from {low.item()} to {high.item()}")


def _is_deferred(values: Tensor) -> bool:
    return torch.compiler.is_compiling() or is_capturing(values)


def _may_read(values: Tensor) -> bool:
    """True where reading values is free: elsewhere it would synchronize a GPU or break a compiled graph."""
    return not torch.compiler.is_compiling() and values.device.type == "cpu"
