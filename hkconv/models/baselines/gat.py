"""The graph attention network of Veličković et al. (2018)."""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn import GATConv

from hkconv.errors import InputError
from hkconv.models.baselines.baseline import BaselineSizes
from hkconv.models.baselines.convolutional import Convolutional


class GAT(Convolutional):
    r"""A graph attention network of :math:`L` layers with :math:`K` heads, each

    .. math::
        h_i' = \sum_{j \in N(i) \cup \{i\}} \alpha_{ij} W h_j, \qquad
        \alpha_{ij} = \operatorname{softmax}_j \operatorname{LeakyReLU}_{0.2}(p \cdot W h_i + q \cdot W h_j).

    Hidden layers are :math:`\operatorname{elu}(\|_k h^{(k)} + b)`, their heads side by side; the last layer is the mean
    of its heads, :math:`\frac 1K \sum_k h^{(k)} + b`. Dropout acts on the input of every layer and on :math:`\alpha`.
    A self loop that is there already is not doubled; edges have no weights. Attributes of edges add
    :math:`r \cdot V e_{ij}` to what LeakyReLU is taken of; a self loop has the mean of those of the incoming edges.

    Arguments: as :class:`~hkconv.models.baselines.convolutional.Convolutional`, and

    Args:
        heads: the number :math:`K`, in all layers; with more than one layer it must divide ``hidden_dim``, the width of
            all heads together.
        edge_dim: number of attributes of an edge, or None.
    """

    reads_edges = True
    uses_edge_weight = False
    # PyG takes self loops out in every pass, and how many edges are left only the GPU knows.
    needs_host = True

    def convolutions(
        self, sizes: BaselineSizes, *, heads: int = 8, edge_dim: int | None = None
    ) -> list[torch.nn.Module]:
        *hidden, last = pairwise(sizes.widths)
        if heads < 1 or any(width % heads for _, width in hidden):
            raise InputError(f"heads must be at least 1 and divide hidden_dim, got {heads} heads for {sizes.widths[1]}")
        shared: dict[str, Any] = {"dropout": sizes.dropout, "edge_dim": edge_dim}
        convs = [GATConv(width, out // heads, heads, **shared) for width, out in hidden]
        return [*convs, GATConv(*last, heads, concat=False, **shared)]

    def activation(self, x: Tensor) -> Tensor:
        return F.elu(x)
