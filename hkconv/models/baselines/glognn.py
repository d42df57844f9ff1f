"""GloGNN and GloGNN++ (Li et al. 2022, Finding Global Homophily in Graph Neural Networks When Meeting Heterophily)."""

from typing import Any

import torch
import torch_geometric.nn as pyg_nn
from torch import Tensor
from torch_geometric.nn.models.linkx import SparseLinear

from hkconv.errors import InputError
from hkconv.models.baselines.baseline import Baseline, BaselineSizes
from hkconv.models.baselines.normalized_edges import normalized_edges
from hkconv.ops.edge_sums import neighbor_sum
from hkconv.ops.neighbors import Neighbors, neighbors_with_loops


class GlobalHomophily(torch.nn.Module):
    r"""The network of :class:`GloGNN`, from node features and adjacency rows to what the head takes.

    Args:
        sizes: of the features, of the two perceptrons and of :math:`H`; number of mixings and rate of dropout.
        num_nodes, alpha, beta1, beta2, gamma, hops: as :class:`GloGNN`.
        weighs_columns: whether the importance :math:`\Sigma` of the columns is learned.

    Shapes:
        - **x**: ``(num_nodes, in_features)``
        - **edge_index**: ``(2, E)``
        - **edge_weight**: non-negative ``(E,)``; added self loops weigh 1
        - **output**: ``(num_nodes, out_features)``
    """

    def __init__(
        self,
        sizes: BaselineSizes,
        *,
        num_nodes: int,
        alpha: float = 0.5,
        beta1: float = 1.0,
        beta2: float = 1.0,
        gamma: float = 0.2,
        hops: int = 2,
        weighs_columns: bool,
    ):
        super().__init__()
        _check(num_nodes, alpha, beta1, beta2, gamma, hops)
        in_features, hidden_dim, out_features, self.num_layers, dropout = sizes
        self.num_nodes = num_nodes
        self.alpha, self.beta1, self.beta2, self.gamma = alpha, beta1, beta2, gamma
        self.of_features = pyg_nn.MLP([in_features, hidden_dim, out_features], dropout=dropout, norm=None)
        self.of_rows = SparseLinear(num_nodes, hidden_dim)
        self.of_structure = torch.nn.Sequential(
            torch.nn.ReLU(), torch.nn.Dropout(dropout), torch.nn.Linear(hidden_dim, out_features)
        )
        #: How much each power of the adjacency counts, λ.
        self.hop_weight = torch.nn.Parameter(torch.empty(hops))
        #: The diagonal of Σ, or None where it is the identity.
        self.importance = torch.nn.Parameter(torch.empty(out_features)) if weighs_columns else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Let all powers and all columns count the same again; the perceptrons are modules of their own."""
        torch.nn.init.constant_(self.hop_weight, 1 / self.hop_weight.numel())
        if self.importance is not None:
            torch.nn.init.ones_(self.importance)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        if x.size(0) != self.num_nodes:
            raise InputError(f"x must have a row for each of the {self.num_nodes} nodes, got {x.size(0)} rows")
        neighbors, weight = neighbors_with_loops(edge_index, edge_weight, self.num_nodes, x.dtype)
        normalized = normalized_edges(edge_index, edge_weight, self.num_nodes, x.dtype)[1]
        normalized = normalized.index_select(0, neighbors.order)
        structure = self.of_structure(self._map_rows(weight, neighbors))
        h0 = h = (1 - self.alpha) * self.of_features(x) + self.alpha * structure
        for _ in range(self.num_layers):
            h = self.aggregate(h, h0, normalized, neighbors)
        return h

    def _map_rows(self, weight: Tensor | None, neighbors: Neighbors) -> Tensor:
        """Apply :attr:`of_rows`, as ``(A + I) W - W + b``: a fifth of the time for 400,000 edges."""
        return neighbor_sum(self.of_rows.weight, weight, neighbors) - self.of_rows.weight + self.of_rows.bias

    def aggregate(self, h: Tensor, h0: Tensor, normalized: Tensor, neighbors: Neighbors) -> Tensor:
        r"""One layer :math:`(1-\gamma) Z^* H + \gamma H^{(0)}`, linear in the number of nodes and edges.

        Args:
            h, h0: :math:`H^{(l)}` and :math:`H^{(0)}`, ``(N, d)``.
            normalized: the entries of :math:`\hat A`, in the order of ``neighbors``.
            neighbors: the structure of :math:`\hat A`.
        """
        keep = 1 - self.gamma
        q, share = self._solve(h)
        spread, walked = torch.zeros_like(h), q
        for weight in self.hop_weight:
            walked = neighbor_sum(walked, normalized, neighbors)
            spread = spread + weight * walked
        aggregated = keep * (h - self.gamma * h0) @ share + self.beta2 * spread
        return keep * aggregated + self.gamma * h0

    def _solve(self, h: Tensor) -> tuple[Tensor, Tensor]:
        r""":math:`Q = H M^{-1}` and :math:`\Sigma^2 H^\top Q`.

        In float64, because columns of :math:`M^{-1}` cancel in :math:`Q` by the ratio of the largest eigenvalue of
        :math:`H^\top H`, which grows with the number of nodes, to :math:`\beta_1 + \beta_2`.
        """
        exact = h.double()
        gram = exact.T @ exact
        if self.importance is not None:
            gram = self.importance.double().square().unsqueeze(-1) * gram
        identity = torch.eye(gram.size(0), dtype=gram.dtype, device=gram.device)
        matrix = (1 - self.gamma) ** 2 * gram + (self.beta1 + self.beta2) * identity
        # The eigenvalues of the matrix are at least β1 + β2 > 0; checking would make a GPU wait. A square right side is
        # solved by triangles; with 256 to 1,024 rows PyTorch would call MAGMA, which no CUDA graph can record.
        inverse = torch.linalg.solve_ex(matrix, identity).result
        return (exact @ inverse).to(h.dtype), (gram @ inverse).to(h.dtype)


class GloGNN(Baseline):
    r"""GloGNN: features and adjacency rows give a first answer, and each layer mixes the answers of all nodes by
    coefficients :math:`Z` that may be negative,

    .. math::
        H^{(0)} &= (1 - \alpha)\,\mathrm{MLP}_1(X) + \alpha\,\mathrm{MLP}_2(A), \qquad
        H^{(l+1)} = (1 - \gamma)\,Z^* H^{(l)} + \gamma H^{(0)}, \\
        Z^* &= \arg\min_Z \big\|\big(H - (1 - \gamma) Z H - \gamma H^{(0)}\big) \Sigma\big\|_F^2 + \beta_1 \|Z\|_F^2
               + \beta_2 \Big\|Z - \sum_{k=1}^K \lambda_k \hat A^k\Big\|_F^2 \\
            &= \Big((1 - \gamma) (H - \gamma H^{(0)}) \Sigma^2 H^\top + \beta_2 \sum_k \lambda_k \hat A^k\Big)
               \Big((1 - \gamma)^2 H \Sigma^2 H^\top + (\beta_1 + \beta_2) I_N\Big)^{-1}

    with :math:`\hat A = \hat D^{-1/2} (A + I) \hat D^{-1/2}` as in GCN and learned :math:`\lambda`. Here
    :math:`\Sigma = I`. Nothing of the size :math:`N \times N` is made. With the small matrix
    :math:`M = (1 - \gamma)^2 \Sigma^2 H^\top H + (\beta_1 + \beta_2) I_d`,

    .. math::
        \big((1 - \gamma)^2 H \Sigma^2 H^\top + (\beta_1 + \beta_2) I_N\big) H = H M, \quad\text{hence}\quad
        Z^* H = (1 - \gamma) (H - \gamma H^{(0)}) \Sigma^2 H^\top Q + \beta_2 \sum_k \lambda_k \hat A^k Q, \quad
        Q = H M^{-1},

    which is what Woodbury's formula gives, without its difference of two large terms.

    Chosen here: :math:`\mathrm{MLP}_1` and :math:`\mathrm{MLP}_2` have two layers each and give the logits, so that
    :math:`H` has as many columns as there are classes (for links: ``hidden_dim``); all layers share
    :math:`\lambda`, which starts at :math:`1/K`, and :math:`\Sigma`; dropout acts on the features and on the hidden
    layers of the perceptrons. The paper searches the hyper-parameters for each dataset; the defaults are middle values.

    Adjacency rows speak of the nodes of one graph, so that there is no graph task.

    Arguments: as :class:`~hkconv.models.baselines.baseline.Baseline` with ``num_layers`` mixings, and

    Args:
        num_nodes: number :math:`N` of nodes of the graph.
        alpha: share of the adjacency rows in the first answer, from 0 to 1.
        beta1: how much :math:`Z` is drawn to zero.
        beta2: how much :math:`Z` is drawn to the neighbourhoods.
        gamma: share of the first answer in each later one, from 0 to 1 (excluded).
        hops: number :math:`K` of powers of the adjacency.
    """

    tasks = ("node", "link")
    uses_num_nodes = True
    whole_graph_for = "rows of the adjacency matrix"
    weighs_columns = False

    def build(self, sizes: BaselineSizes, **options: Any) -> torch.nn.Module:
        return GlobalHomophily(sizes, weighs_columns=self.weighs_columns, **options)

    def encode(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        return self.network(x, edge_index, edge_weight)


class GloGNNPlusPlus(GloGNN):
    r"""GloGNN++: :class:`GloGNN` with a learned diagonal matrix :math:`\Sigma` that says how much each column of
    :math:`H` counts where :math:`Z` is fitted.

    Here it stands in the objective, squared, so that :math:`Z^*` is its minimum for any :math:`\Sigma`, and starts at
    :math:`I`, as GloGNN. Arguments: as :class:`GloGNN`.
    """

    weighs_columns = True


def _check(num_nodes: int, alpha: float, beta1: float, beta2: float, gamma: float, hops: int) -> None:
    for name, value in (("num_nodes", num_nodes), ("hops", hops)):
        if value < 1:
            raise InputError(f"{name} must be at least 1, got {value}")
    if not 0 <= alpha <= 1:
        raise InputError(f"alpha must lie in [0, 1], got {alpha}")
    if not 0 <= gamma < 1:
        raise InputError(f"gamma must lie in [0, 1), got {gamma}")
    if beta1 < 0 or beta2 < 0 or beta1 + beta2 == 0:
        raise InputError(f"beta1 and beta2 must be non-negative and not both 0, got {beta1} and {beta2}")
