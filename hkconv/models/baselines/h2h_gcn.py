"""H2H-GCN (Dai et al. 2021, A Hyperbolic-to-Hyperbolic Graph Convolutional Network): no tangent space in any layer."""

from collections.abc import Callable
from typing import Any

import geoopt
import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn import global_mean_pool

from hkconv.errors import InputError
from hkconv.geometry.centroid import project_mean
from hkconv.geometry.curvature import Curvature, curvature_radius
from hkconv.geometry.lorentz import lift
from hkconv.models.baselines.hyperbolic import HyperbolicBaseline, HyperbolicConv
from hkconv.models.tasks import known
from hkconv.nn import HDistance
from hkconv.ops.edge_sums import at_source, neighbor_sum, square_distance, target_sum
from hkconv.ops.neighbors import Neighbors


class H2HGCNConv(HyperbolicConv):
    r"""A layer of H2H-GCN :math:`\mathbb L^m \to \mathbb L^n`: a linear map that keeps the manifold, the Einstein
    midpoint of the neighbours and the node itself in the Klein model, and a ReLU in the Poincaré ball,

    .. math::
        y_j &= \begin{bmatrix} 1 & 0 \\ 0 & W \end{bmatrix} x_j, \qquad W^\top W = I, \\
        \kappa_i &= \frac{\sum_{j \in N(i) \cup \{i\}} \gamma_j\, \mathcal K(y_j)}
                         {\sum_{j \in N(i) \cup \{i\}} \gamma_j}, \qquad
        \gamma_j = \frac{1}{\sqrt{1 - |\mathcal K(y_j)|^2/R^2}}, \\
        x_i' &= \mathcal P^{-1}(\operatorname{relu}(\mathcal P(\mathcal K^{-1}(\kappa_i)))),

    where :math:`\mathcal K` and :math:`\mathcal P` are the projections to the Klein model and the Poincaré ball.

    None of the models is visited, because each has its boundary where float32 ends. As :math:`\gamma = y_t/R`, the
    midpoint is :math:`R \sum_j y_{j,s} / \sum_j y_{j,t}`, which is where the ray through :math:`\sum_j y_j` meets the
    Klein model: it is the centroid :math:`\mathrm{HCent}` with equal weights, exactly, and computed as
    :func:`hkconv.geometry.centroid.project_mean` computes it. With the excesses :math:`\delta_{ij}` of the neighbours
    over the mean :math:`\mu_i` taken from the Poincaré ball, its rounding error is that of
    :class:`~hkconv.models.HGCNConv`. The ReLU in the ball is

    .. math:: x_s \mapsto \operatorname{relu}(x_s) \Big/ \Big(1 + \frac{|\min(x_s, 0)|^2}{2R(R + x_t)}\Big).

    ``weight`` is a manifold parameter with the metric that Stiefel matrices inherit from their surroundings, which is
    the authors' too. They take plain gradient steps; train it with :class:`hkconv.RiemannianAdam`, for which all of
    :math:`W` is one point, or with an optimizer of geoopt.

    The authors' program activates with SELU, which lengthens vectors and can leave the ball: here with a ReLU, which
    cannot. It has no dropout: here it acts on the spatial coordinates of the input. An ``edge_weight`` multiplies
    :math:`\gamma`.

    Args:
        out_dim: dimension :math:`n \ge m` of the output points.
        dropout: probability of dropping a spatial coordinate of the input.

    Other arguments and shapes: as :class:`~hkconv.models.baselines.hyperbolic.HyperbolicConv`.
    """

    def __init__(self, in_dim: int, out_dim: int, *, dropout: float = 0.0, curvature: Curvature = -1.0):
        if not 1 <= in_dim <= out_dim:
            raise InputError(
                f"in_dim must be at least 1 and at most out_dim, or W cannot be orthogonal: got {in_dim} and {out_dim}"
            )
        super().__init__(in_dim, out_dim, dropout=dropout, curvature=curvature)
        self.weight = geoopt.ManifoldParameter(torch.empty(out_dim, in_dim), manifold=geoopt.EuclideanStiefel())
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """An orthogonal matrix, every one as likely as any other."""
        torch.nn.init.orthogonal_(self.weight)

    def map(self, x: Tensor) -> Tensor:
        space = F.dropout(x[:, 1:], self.dropout, self.training)
        # Time follows from the length, which W keeps: so no rounding of W leads off the manifold.
        return lift(F.linear(space, self.weight), self.curvature)

    def aggregate(self, y: Tensor, weight: Tensor | None, neighbors: Neighbors) -> Tensor:
        R = curvature_radius(self.curvature)
        total = neighbors.target_pointer.diff().to(y.dtype) if weight is None else target_sum(weight, neighbors)
        mean = lift(neighbor_sum(y[:, 1:], weight, neighbors) / total.unsqueeze(-1), self.curvature)
        f, mean_f = 1 + y[:, :1] / R, 1 + mean[:, :1] / R
        apart = square_distance(y[:, 1:] / (R * f), mean[:, 1:] / (R * mean_f), neighbors)
        # An excess is |beta_j - beta_i|^2 f_j f_i / 2; what belongs to the target waits for the sum.
        spread = apart * at_source(f.squeeze(-1), neighbors)
        spread = target_sum(spread if weight is None else weight * spread, neighbors) / (2 * total)
        return project_mean(mean, spread.unsqueeze(-1) * mean_f, self.curvature)[0]

    def activate(self, y: Tensor) -> Tensor:
        R = curvature_radius(self.curvature)
        time, space = y[:, :1], y[:, 1:]
        cut = space.clamp(max=0).square().sum(-1, keepdim=True) / (2 * R * (R + time))
        return lift(space.relu() / (1 + cut), self.curvature)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "H2HGCNConv":
        before = self.weight.dtype
        super()._apply(fn, recurse)
        if self.weight.dtype != before:
            self._orthogonalize()
        return self

    @torch.no_grad()
    def _orthogonalize(self) -> None:
        """Undo what another precision made of the weight; in float64, because half precision has no SVD."""
        self.weight.copy_(self.weight.manifold.projx(self.weight.double()))


class CentroidClassifier(torch.nn.Module):
    r"""A softmax classifier on the distances to learned centroids :math:`c_1, \dots, c_m`,

    .. math::
        \text{node: } A\, \psi(x_i) + b, \qquad
        \text{graph: } A\, \frac{1}{|V|} \sum_{i \in V} \psi(x_i) + b, \qquad
        \psi(x) = [d(x, c_1), \dots, d(x, c_m)].

    Args:
        in_dim: dimension of the points.
        num_centroids: number :math:`m` of centroids.
        num_classes: number of classes.
        task: ``"node"`` or ``"graph"``.

    Shapes:
        - **points**: ``(N, in_dim+1)``; **batch**: ``(N,)``, **batch_size**: number of graphs (graph task)
        - **output**: logits ``(N, num_classes)`` or ``(batch_size, num_classes)``
    """

    def __init__(self, in_dim: int, num_centroids: int, num_classes: int, task: str):
        super().__init__()
        if num_centroids < 1:
            raise InputError(f"num_centroids must be at least 1, got {num_centroids}")
        self.task = task
        self.distance = HDistance(in_dim, num_centroids)
        self.linear = torch.nn.Linear(num_centroids, num_classes)

    def forward(self, points: Tensor, batch: Tensor | None, batch_size: int | None) -> Tensor:
        distances = self.distance(points)
        if self.task == "graph":
            distances = global_mean_pool(distances, batch, batch_size)
        return self.linear(distances)


class H2HGCN(HyperbolicBaseline):
    r"""H2H-GCN: :math:`\exp_o(Wx + b)`, then ``num_layers`` :class:`H2HGCNConv`, then by task

    - ``"node"``, ``"graph"``: :class:`CentroidClassifier`, as in the paper. The head of
      :class:`~hkconv.models.HKN` is not the same: for nodes it is the case of one centroid a class and
      :math:`A = -I/T`, for graphs it takes the distances of one point, the centroid of all nodes.
    - ``"link"``: the Fermi-Dirac logit :math:`(r - d^2(u, v))/t` of each pair, as HKN.

    Every layer ends with its ReLU, the last one too, and the curvature is -1, as in the authors' program. That ties
    one :math:`W` to all layers, if asked; here each has its own. It takes 200 centroids; here there are 32, because the
    distances cost more time than all layers and with more of them validation accuracy was no better. Since :math:`W`
    keeps lengths, points stay as far out as the features put them: large features want normalising.

    Args:
        num_centroids: number of centroids; not used for links.

    Other arguments: as :class:`~hkconv.models.baselines.baseline.Baseline`; shapes: as :class:`~hkconv.models.HKN`.
    """

    def __init__(
        self,
        in_features: int,
        hidden_dim: int,
        num_classes: int | None,
        *,
        task: str = "node",
        num_centroids: int = 32,
        **sizes: Any,
    ):
        def make_classifier() -> CentroidClassifier:
            return CentroidClassifier(hidden_dim, num_centroids, known(num_classes), task)

        super().__init__(in_features, hidden_dim, num_classes, task=task, make_classifier=make_classifier, **sizes)

    def make_layer(self, number: int, num_layers: int, dim: int, dropout: float) -> H2HGCNConv:
        return H2HGCNConv(dim, dim, dropout=dropout)
