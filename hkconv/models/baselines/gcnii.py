"""GCNII (Chen et al. 2020, Simple and Deep Graph Convolutional Networks), a graph convolution that can be deep."""

import torch
import torch_geometric.nn as pyg_nn
from torch import Tensor

from hkconv.errors import InputError
from hkconv.models.baselines.baseline import Baseline, BaselineSizes
from hkconv.models.baselines.normalized_edges import normalized_edges


class GCNII(Baseline):
    r"""A linear layer, :math:`L` convolutions with a residual to the first, and a linear layer,

    .. math::
        H^{(0)} &= \operatorname{relu}(\tilde X W_{in} + b_{in}), \qquad
        Z = \tilde H^{(L)} W_{out} + b_{out}, \qquad \tilde H = \operatorname{dropout}(H), \\
        H^{(l)} &= \operatorname{relu}\Big(\big((1 - \alpha) \hat D^{-1/2} \hat A \hat D^{-1/2} \tilde H^{(l-1)}
            + \alpha H^{(0)}\big) \big((1 - \beta_l) I + \beta_l W^{(l)}\big)\Big), \qquad
        \beta_l = \log\Big(\frac{\theta}{l} + 1\Big), \quad \hat A = A + I.

    This is the form with one matrix a layer, not GCNII*. The paper's stronger weight decay for the :math:`W^{(l)}` is a
    matter of the optimizer.

    Arguments: as :class:`~hkconv.models.baselines.baseline.Baseline`, and

    Args:
        alpha: share :math:`\alpha` of the first layer in each later one, from 0 to 1.
        theta: how far the :math:`W^{(l)}` count, above 0; the paper calls it :math:`\lambda`.
    """

    def build(self, sizes: BaselineSizes, *, alpha: float = 0.1, theta: float = 0.5) -> torch.nn.Module:
        if not 0 <= alpha <= 1:
            raise InputError(f"alpha must lie in [0, 1], got {alpha}")
        if theta <= 0:
            raise InputError(f"theta must be above 0, got {theta}")
        convs = [
            pyg_nn.GCN2Conv(sizes.hidden_dim, alpha, theta, layer + 1, normalize=False)
            for layer in range(sizes.num_layers)
        ]
        return torch.nn.ModuleDict(
            {
                "first": torch.nn.Linear(sizes.in_features, sizes.hidden_dim),
                "convs": torch.nn.ModuleList(convs),
                "last": torch.nn.Linear(sizes.hidden_dim, sizes.out_features),
            }
        )

    def encode(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        first = h = self.network["first"](x).relu()
        edges = normalized_edges(edge_index, edge_weight, x.size(0), x.dtype)
        for conv in self.network["convs"]:
            h = conv(self.dropout(h), first, *edges).relu()
        return self.network["last"](self.dropout(h))
