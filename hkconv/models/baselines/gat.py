"""The graph attention network of Veličković et al. (2018)."""

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn import GATConv

from hkconv.errors import InputError
from hkconv.models.baselines.convolutional import Convolutional


class GAT(Convolutional):
    r"""A graph attention network of :math:`L` layers with :math:`K` heads, each

    .. math::
        h_i' = \sum_{j \in N(i) \cup \{i\}} \alpha_{ij} W h_j, \qquad
        \alpha_{ij} = \operatorname{softmax}_j \operatorname{LeakyReLU}_{0.2}(p \cdot W h_i + q \cdot W h_j).

    Hidden layers are :math:`\operatorname{elu}(\|_k h^{(k)} + b)`, their heads side by side; the last layer is the mean
    of its heads, :math:`\frac 1K \sum_k h^{(k)} + b`. Dropout acts on the input of every layer and on :math:`\alpha`.
    A self loop that is there already is not doubled; edges have no weights.

    Arguments: as :class:`~hkconv.models.baselines.convolutional.Convolutional`, and

    Args:
        heads: the number :math:`K`, in all layers; with more than one layer it must divide ``hidden_dim``, the width of
            all heads together.
    """

    uses_edge_weight = False
    # PyG takes self loops out in every pass, and how many edges are left only the GPU knows.
    needs_host = True

    def convolutions(self, widths: list[int], dropout: float, *, heads: int = 8) -> torch.nn.Module:
        *hidden, last = pairwise(widths)
        if heads < 1 or any(width % heads for _, width in hidden):
            raise InputError(f"heads must be at least 1 and divide hidden_dim, got {heads} heads for {widths[1]}")
        convs = [GATConv(width, out // heads, heads, dropout=dropout) for width, out in hidden]
        convs.append(GATConv(*last, heads, concat=False, dropout=dropout))
        return torch.nn.ModuleDict({"convs": torch.nn.ModuleList(convs)})

    def activation(self, x: Tensor) -> Tensor:
        return F.elu(x)
