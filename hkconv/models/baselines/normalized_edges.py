"""The normalised adjacencies of graph convolutions, computed once a graph instead of once a layer."""

import torch
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_self_loops

from hkconv.ops.identity_cache import IdentityCache

_normalized, _directed = IdentityCache(), IdentityCache()


def normalized_edges(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int, dtype: torch.dtype, *, doubled: bool = True
) -> tuple[Tensor, Tensor]:
    r"""The edges of :math:`\hat A = A + I` and their values in :math:`\hat D^{-1/2} \hat A \hat D^{-1/2}`.

    Unweighted edges are remembered while the same tensor comes back unchanged.

    Args:
        edge_index: ``(2, E)``, source to target.
        edge_weight: non-negative ``(E,)``, or None where all are 1.
        num_nodes: number of nodes N.
        dtype: of the values, where no weights are given.
        doubled: count an existing self loop beside the added one; else it stands for it, as in PyG's layers. How many
            edges are left then only the device knows: the host waits for it, once a graph.

    Returns:
        ``(2, E+N)`` and ``(E+N,)``, or fewer if loops are not doubled.
    """

    def normalize() -> tuple[Tensor, Tensor]:
        given = add_self_loops(edge_index, edge_weight, 1.0, num_nodes) if doubled else (edge_index, edge_weight)
        return gcn_norm(*given, num_nodes, add_self_loops=not doubled, dtype=dtype)

    if edge_weight is not None:
        return normalize()
    return _normalized.get(edge_index, (num_nodes, dtype, doubled), normalize)


def directed_values(edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int, dtype: torch.dtype) -> Tensor:
    r"""The values of the edges in :math:`D_{out}^{-1/2} A D_{in}^{-1/2}`, zero where all weights of a node are.

    Arguments as :func:`normalized_edges`; no self loops are added. Unweighted edges are remembered likewise.

    Returns:
        ``(E,)``.
    """

    def normalize() -> Tensor:
        ones = torch.ones(edge_index.size(1), dtype=dtype, device=edge_index.device)
        weight = ones if edge_weight is None else edge_weight.to(dtype)
        value = weight
        for ends in edge_index:
            degree = weight.new_zeros(num_nodes).index_add(0, ends, weight)
            # A node whose weights are all zero has no degree to divide by.
            value = value * torch.where(degree > 0, degree, 1).rsqrt().index_select(0, ends)
        return value

    return normalize() if edge_weight is not None else _directed.get(edge_index, (num_nodes, dtype), normalize)
