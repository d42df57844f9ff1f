"""Neighbourhoods as users hand them over: ``edge_index``, PyG's ``EdgeIndex``, or a sparse adjacency matrix."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.utils import is_torch_sparse_tensor, to_edge_index

from hkconv.errors import InputError


class Edges(NamedTuple):
    """Directed edges: ``source[e]`` is a neighbour of ``target[e]``."""

    source: Tensor
    target: Tensor
    weight: Tensor | None


def read_edges(edge_index: Tensor, edge_weight: Tensor | None, size: tuple[int, int]) -> Edges:
    """Edges of a graph with ``size = (sources, targets)`` nodes, checked.

    As everywhere in PyG, a sparse matrix is the transposed adjacency: row = target, column = source.
    Its values act as edge weights unless ``edge_weight`` is given.
    """
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
    return _with_weight(source, target, edge_weight)


def _from_sparse(matrix: Tensor, edge_weight: Tensor | None, size: tuple[int, int]) -> Edges:
    if tuple(matrix.shape) != (size[1], size[0]):
        raise InputError(
            f"a sparse neighbourhood matrix must have shape (targets, sources) = ({size[1]}, {size[0]}), "
            f"got {tuple(matrix.shape)}"
        )
    (target, source), value = to_edge_index(matrix)
    return _with_weight(source, target, value if edge_weight is None else edge_weight)


def _with_weight(source: Tensor, target: Tensor, weight: Tensor | None) -> Edges:
    if weight is not None and weight.shape != source.shape:
        raise InputError(f"edge_weight must have shape ({source.numel()},), got {tuple(weight.shape)}")
    if weight is not None and _may_read(weight) and not (weight >= 0).all():
        raise InputError("edge_weight must be non-negative and not NaN: a centroid has no negative weights")
    return Edges(source, target, weight)


def _check_range(index: Tensor, size: int, name: str) -> None:
    if not _may_read(index):
        return
    low, high = index.aminmax()
    if low < 0 or high >= size:
        raise InputError(f"{name} must lie in [0, {size}), got values from {int(low)} to {int(high)}")


def _may_read(values: Tensor) -> bool:
    """Whether looking at values is free: elsewhere it would synchronise a GPU or break a compiled graph."""
    return not torch.compiler.is_compiling() and values.device.type == "cpu" and values.numel() > 0
