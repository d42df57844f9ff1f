"""The graph convolutional network of Kipf and Welling (2017), the plainest network that does see edges."""

from itertools import pairwise

import torch
from torch_geometric.nn import GCNConv

from hkconv.models.baselines.convolutional import Convolutional


class GCN(Convolutional):
    r"""A graph convolutional network of :math:`L` layers,

    .. math::
        H^{(l)} = \operatorname{relu}(\hat D^{-1/2} \hat A \hat D^{-1/2} \tilde H^{(l-1)} W^{(l)} + b^{(l)}), \qquad
        \tilde H = \operatorname{dropout}(H), \quad \hat A = A + I, \quad \hat D_{ii} = \textstyle\sum_j \hat A_{ij},

    without the activation in the last layer, followed by :class:`~hkconv.models.baselines.baseline.TaskHead`.
    Arguments: as :class:`~hkconv.models.baselines.convolutional.Convolutional`.
    """

    def convolutions(self, widths: list[int], dropout: float) -> torch.nn.Module:
        return torch.nn.ModuleDict({"convs": torch.nn.ModuleList(GCNConv(*pair) for pair in pairwise(widths))})
