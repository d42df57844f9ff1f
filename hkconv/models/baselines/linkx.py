"""LINKX (Lim et al. 2021), which takes a node's row of the adjacency matrix as further features."""

import torch
import torch_geometric.nn as pyg_nn
from torch import Tensor

from hkconv.errors import InputError
from hkconv.models.baselines.baseline import Baseline, BaselineSizes


class LINKX(Baseline):
    r"""Linear maps of adjacency and features, mixed, then a perceptron of :math:`L` layers,

    .. math::
        H_A = A W_A + b_A, \qquad H_X = X W_X + b_X, \qquad
        Z = \operatorname{MLP}_L(\operatorname{relu}([H_A, H_X] W + b + H_A + H_X)),

    where a hidden layer of the :math:`\operatorname{MLP}` ends with ReLU, batch normalisation and dropout, and
    :math:`A_{ij}` is the weight of the edge from :math:`j` to :math:`i`: as everywhere here, a node sees the edges into
    it. :math:`H_A` and :math:`H_X` may be perceptrons in the paper; here they have one layer, as by default in PyG.

    :math:`W_A` has a row for each node, so the network belongs to one graph and has the node task alone. In training, a
    graph of one node is normalised by the running statistics, see :class:`~hkconv.models.baselines.gin.GIN`.

    Arguments: as :class:`~hkconv.models.baselines.baseline.Baseline`, and

    Args:
        num_nodes: number of nodes of the graph.
    """

    tasks = ("node",)
    uses_num_nodes = True
    whole_graph_for = "rows of the adjacency matrix"

    def build(  # type: ignore[override]  # num_nodes is always among the options, see uses_num_nodes
        self, sizes: BaselineSizes, *, num_nodes: int
    ) -> torch.nn.Module:
        if num_nodes < 1:
            raise InputError(f"num_nodes must be at least 1, got {num_nodes}")
        network = pyg_nn.LINKX(num_nodes, *sizes[:4], dropout=sizes.dropout)
        for module in network.modules():
            if isinstance(module, pyg_nn.BatchNorm):
                module.allow_single_element = True
        return network

    def encode(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        if x.size(0) != self.network.num_nodes:
            raise InputError(f"x must have a row for each of the {self.network.num_nodes} nodes, got {x.size(0)} rows")
        return self.network(x, edge_index, edge_weight)
