"""A multilayer perceptron: what the features alone can do, without any edge."""

import torch
import torch_geometric.nn as pyg_nn
from torch import Tensor

from hkconv.models.baselines.baseline import Baseline


class MLP(Baseline):
    r"""A perceptron of :math:`L` layers on every node by itself, which ignores the edges,

    .. math::
        h^{(l)} = \operatorname{relu}(W^{(l)} \operatorname{dropout}(h^{(l-1)}) + b^{(l)}), \qquad
        z = W^{(L)} \operatorname{dropout}(h^{(L-1)}) + b^{(L)},

    followed by :class:`~hkconv.models.baselines.baseline.TaskHead`.
    Arguments: as :class:`~hkconv.models.baselines.baseline.Baseline`.
    """

    def build(
        self, in_features: int, hidden_dim: int, out_features: int, num_layers: int, dropout: float
    ) -> torch.nn.Module:
        widths = [in_features, *[hidden_dim] * (num_layers - 1), out_features]
        return pyg_nn.MLP(widths, dropout=dropout, norm=None)

    def encode(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        return self.network(x)
