"""The rows of the adjacency matrix as further features of the embedding, mixed as in LINKX (Lim et al. 2021)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.errors import InputError
from hkconv.geometry.curvature import Curvature
from hkconv.nn import HEmbedding
from hkconv.ops.edge_sums import neighbor_sum
from hkconv.ops.neighbors import Neighbors, find_neighbors


class StructureEmbedding(HEmbedding):
    r"""Hyperbolic embedding of features and neighbours, which LINKX's first layers bring together:

    .. math::
        h^X_i = W x_i + b, \quad h^A_i = d_i^{-1/2} \sum_j A_{ij} w_j, \quad
        h_i = \max(0, M [h^A_i; h^X_i] + m + h^A_i + h^X_i), \quad x^{(0)}_i = \exp_o([0, V h_i + v])

    in which :math:`A_{ij}` is the weight of the edge from :math:`j` to :math:`i`, :math:`d_i` the number of these
    edges, and :math:`w_j` is learned for each node.

    LINKX has no factor :math:`d_i^{-1/2}`. Here the length of the sum becomes a distance from the origin: without the
    factor a hub with a thousand neighbours would lie so far out that its coordinates overflow. Training drives the
    other nodes out too, on Chameleon to 26 R within twelve epochs: ``reach`` is made for this.

    Since the :math:`w_j` belong to the nodes of one graph, it is transductive: it cannot be used for another graph, nor
    for nodes that come later, and renumbering the nodes asks for renumbering the rows of :math:`w`.

    Args:
        in_features: number of Euclidean features.
        dim: dimension of the points.
        num_nodes: number of nodes of the graph.
        reach, curvature: as in :class:`~hkconv.nn.HEmbedding`.

    Shapes:
        - **x**: ``(num_nodes, in_features)``; **edge_index**, **edge_weight**: as in :class:`~hkconv.nn.HKConv`
        - **output**: ``(num_nodes, dim+1)``
    """

    def __init__(
        self,
        in_features: int,
        dim: int,
        num_nodes: int,
        *,
        reach: float | None = None,
        curvature: Curvature = -1.0,
    ):
        super().__init__(in_features, dim, reach=reach, curvature=curvature)
        if num_nodes < 1:
            raise InputError(f"num_nodes must be at least 1, got {num_nodes}")
        self.node_weight = torch.nn.Parameter(torch.empty(num_nodes, dim))
        self.mix = torch.nn.Linear(2 * dim, dim)
        self.out = torch.nn.Linear(dim, dim)
        self.reset_nodes()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.mix.reset_parameters()
        self.out.reset_parameters()
        self.reset_nodes()

    def reset_nodes(self) -> None:
        """Draw the rows of the nodes as those of a torch linear layer with an input for each node."""
        bound = self.node_weight.size(0) ** -0.5
        torch.nn.init.uniform_(self.node_weight, -bound, bound)

    def forward(  # type: ignore[override]  # features alone do not place a node here
        self, x: Tensor, edge_index: Tensor | Neighbors, edge_weight: Tensor | None = None
    ) -> Tensor:
        num_nodes = self.node_weight.size(0)
        if x.size(0) != num_nodes:
            raise InputError(f"x must have a row for each of the {num_nodes} nodes, got {x.size(0)} rows")
        found, weight = find_neighbors(edge_index, edge_weight, (num_nodes, num_nodes))
        features, rows = self.tangent(x), _sum_rows(self.node_weight, found, weight)
        mixed = F.relu(self.mix(torch.cat([rows, features], dim=-1)) + rows + features)
        return self.place(self.out(mixed))

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.in_features}, {self.dim}, num_nodes={self.node_weight.size(0)})"


def _sum_rows(rows: Tensor, found: Neighbors, weight: Tensor | None) -> Tensor:
    entries = None if weight is None else weight.index_select(0, found.order).to(rows.dtype)
    degree = found.target_pointer.diff().clamp(min=1).to(rows.dtype)
    return neighbor_sum(rows, entries, found) * degree.rsqrt().unsqueeze(1)
