"""GraphSAGE (Hamilton et al. 2017), which keeps a node's own features apart from those of its neighbours."""

import torch
import torch_geometric.nn as pyg_nn
from torch import Tensor

from hkconv.models.baselines.baseline import Baseline


class GraphSAGE(Baseline):
    r"""GraphSAGE of :math:`L` layers with the mean aggregator,

    .. math::
        h_i^{(l)} = \operatorname{relu}\Big(W^{(l)} \tilde h_i^{(l-1)}
            + V^{(l)} \frac{1}{|N(i)|} \sum_{j \in N(i)} \tilde h_j^{(l-1)} + b^{(l)}\Big), \qquad
        \tilde h = \operatorname{dropout}(h),

    without the activation in the last layer; the mean of no neighbours is zero. The paper writes one matrix for both
    vectors side by side, which is the same. Three choices: all neighbours are used, not a sample of them; edges have no
    weights; and the :math:`h_i` are not divided by their norm, which in the last layer would confine the logits to a
    sphere.

    Arguments: as :class:`~hkconv.models.baselines.baseline.Baseline`.
    """

    uses_edge_weight = False

    def build(
        self, in_features: int, hidden_dim: int, out_features: int, num_layers: int, dropout: float
    ) -> torch.nn.Module:
        return pyg_nn.GraphSAGE(in_features, hidden_dim, num_layers, out_features, dropout)

    def encode(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        return self.network(x, edge_index)
