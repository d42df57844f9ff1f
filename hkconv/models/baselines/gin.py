"""The graph isomorphism network of Xu et al. (2019), which tells apart whatever the Weisfeiler-Leman test does."""

import torch
import torch_geometric.nn as pyg_nn
from torch import Tensor

from hkconv.models.baselines.baseline import Baseline, BaselineSizes
from hkconv.models.baselines.convolutional import sum_of_messages
from hkconv.ops.edge_sums import neighbor_sum
from hkconv.ops.neighbors import neighbors_with_loops


class GIN(Baseline):
    r"""A graph isomorphism network of :math:`L` layers, each a perceptron of two layers after a sum,

    .. math::
        h_i^{(l)} = \operatorname{MLP}^{(l)}\Big(h_i^{(l-1)} + \sum_{j \in N(i)} h_j^{(l-1)}\Big), \qquad
        \operatorname{MLP}(h) = \phi(W_2\, \phi(W_1 h + b_1) + b_2), \quad
        \phi = \operatorname{relu} \circ \operatorname{batchnorm}.

    This is the paper's GIN-0, its best: the node itself counts as much as a neighbour. The readout of a graph is a
    linear classifier for each layer, the input included, on the sums over nodes,

    .. math::
        \sum_{l=0}^L \Big(W^{(l)} \sum_{i \in V} h_i^{(l)}\Big) + b
        = [W^{(0)} \cdots W^{(L)}] \sum_{i \in V} [h_i^{(0)}; \dots; h_i^{(L)}] + b.

    The paper has graph tasks alone. For nodes and links a linear map of :math:`h^{(L)}` takes the place of the readout.
    Dropout acts on the features and on the input of the last linear map: the paper has it in the readout alone. Edges
    have no weights.

    In training, a batch of one node has no variance: it is normalised by the running statistics, which it leaves as
    they are.

    With attributes of edges it is the GINE of Hu et al. (2020, Strategies for Pre-training Graph Neural Networks): the
    sum over neighbours is that of :math:`\operatorname{relu}(h_j^{(l-1)} + V^{(l)} e_{ij})`.

    Arguments: as :class:`~hkconv.models.baselines.baseline.Baseline`, and

    Args:
        edge_dim: number of attributes of an edge, or None.
    """

    uses_edge_weight = False
    reads_edges = True

    def build(self, sizes: BaselineSizes, *, edge_dim: int | None = None) -> torch.nn.Module:
        hidden_dim, widths = sizes.hidden_dim, sizes.widths[:-1]
        mlps = [
            pyg_nn.MLP([width, hidden_dim, hidden_dim], norm_kwargs={"allow_single_element": True}, plain_last=False)
            for width in widths
        ]
        network = torch.nn.ModuleDict({"convs": torch.nn.ModuleList(GINSum(mlp) for mlp in mlps)})
        if self.head.task != "graph":
            network["last"] = torch.nn.Linear(hidden_dim, sizes.out_features)
        if edge_dim is not None:
            network["of_edges"] = torch.nn.ModuleList(torch.nn.Linear(edge_dim, width, bias=False) for width in widths)
        return network

    def encode(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None, edge_attr: Tensor | None = None
    ) -> Tensor:
        layers = [x]
        for number, conv in enumerate(self.network["convs"]):
            h = layers[-1]
            if edge_attr is None:
                layers.append(conv(h, edge_index))
            else:
                of_edges = self.network["of_edges"][number](edge_attr)
                layers.append(conv.nn(h + sum_of_messages(h, edge_index, of_edges)))
        if self.head.task == "graph":
            return torch.cat(layers, dim=-1)
        return self.network["last"](self.dropout(layers[-1]))

    def pooled_features(self, in_features: int, hidden_dim: int, num_layers: int) -> int:
        return in_features + num_layers * hidden_dim

    def pool(self, z: Tensor, batch: Tensor | None, batch_size: int | None) -> Tensor:
        return self.dropout(pyg_nn.global_add_pool(z, batch, batch_size))


class GINSum(pyg_nn.GINConv):
    """PyG's layer, which on a CPU makes no tensor of edges x features for the sum of a network's input.

    Features may be many: that tensor takes 3.3 GB on Squirrel. The sums have PyG's order and so the same bits; those of
    gradients would not, so that layers further on, which are narrow, are left to PyG.
    """

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]  # no bipartite graphs here
        if x.requires_grad or x.is_cuda or torch.compiler.is_compiling():
            return super().forward(x, edge_index)
        return self.nn(neighbor_sum(x, None, neighbors_with_loops(edge_index, None, x.size(0), x.dtype)[0]))
