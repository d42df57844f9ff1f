"""A multilayer perceptron: what the features alone can do, without any edge."""

import torch
import torch_geometric.nn as pyg_nn
from torch import Tensor

from hkconv.models.baselines.baseline import Baseline, BaselineSizes


class MLP(Baseline):
    r"""A perceptron of :math:`L` layers on every node by itself, which ignores the edges,

    .. math::
        h^{(l)} = \operatorname{relu}(W^{(l)} \operatorname{dropout}(h^{(l-1)}) + b^{(l)}), \qquad
        z = W^{(L)} \operatorname{dropout}(h^{(L-1)}) + b^{(L)},

    followed by :class:`~hkconv.models.baselines.baseline.TaskHead`.
    Arguments: as :class:`~hkconv.models.baselines.baseline.Baseline`.
    """

    def build(self, sizes: BaselineSizes) -> torch.nn.Module:
        return pyg_nn.MLP(sizes.widths, dropout=sizes.dropout, norm=None)

    def encode(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        return self.network(x)
