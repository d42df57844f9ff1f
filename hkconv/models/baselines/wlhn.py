"""WLHN (Nikolentzos et al. 2023, Weisfeiler and Leman go Hyperbolic): the tree of colours, embedded as a tree."""

import torch
import torch_geometric.nn as pyg_nn
from torch import Tensor
from torch.nn import functional as F

from hkconv.errors import InputError
from hkconv.geometry.hyperboloid import safe_norm
from hkconv.geometry.lorentz import exp0, lift, log0, ominus, oplus, origin
from hkconv.geometry.maps import max_radius
from hkconv.models.readout import link_logits
from hkconv.models.tasks import check_network
from hkconv.nn import FermiDirac
from hkconv.nn.common import full_precision, reset_modules
from hkconv.ops.edge_sums import neighbor_sum
from hkconv.ops.neighbors import neighbors_with_loops

# Hidden layers of the classifier, as in the authors' program, whatever the width of the rest.
CLASSIFIER_WIDTHS = (128, 64)


class WLHN(torch.nn.Module):
    r"""Weisfeiler-Leman hyperbolic network: the colours that the Weisfeiler-Leman algorithm gives to nodes form a tree,
    since nodes of one colour after :math:`t + 1` rounds had one colour after :math:`t`. A graph isomorphism network
    plays the algorithm, its features playing the colours,

    .. math::
        h_i^{(0)} = \operatorname{relu}(W x_i + b), \qquad
        h_i^{(t+1)} = \operatorname{relu}\Big(\operatorname{MLP}^{(t)}
                      \Big(h_i^{(t)} + \sum_{j \in N(i)} h_j^{(t)}\Big)\Big),

    and the tree is embedded from its root, the origin :math:`o`, by Sarkar's construction with edges of length
    :math:`\tau`. Let :math:`I_z` be the reflection that swaps :math:`z` and :math:`o`, let :math:`S_{ab}` be the one
    that swaps the directions :math:`a` and :math:`b` at the origin, and :math:`q = -(1, \dots, 1)/\sqrt n`. Then

    .. math::
        z_i^{(0)} &= \exp_o(\tau u_i^{(0)}), \qquad
        z_i^{(t+1)} = I_z\big(S_{pq} \exp_o(\tau u_i^{(t+1)})\big), \qquad
        u_i^{(t)} = h_i^{(t)} / |h_i^{(t)}|, \\
        &\text{with } z = z_i^{(t)} \text{ and } p \text{ the direction of } I_z(z_i^{(t-1)}), \quad z^{(-1)} = o.

    Seen from a node of the tree its parent lies at :math:`q` and, since features are not negative, all children lie at
    a right angle to it or beyond. By task, with :math:`z_i` the leaves after the last round,

    - ``"node"``: :math:`\operatorname{MLP}(\log_o z_i)`;
    - ``"graph"``: :math:`\operatorname{MLP}(\sum_{i \in V} \log_o z_i)`;
    - ``"link"``: the Fermi-Dirac logit :math:`(r - d^2(z_u, z_v))/t`, which the paper does not have.

    What was chosen:

    - Sarkar's construction spreads the children that exist around their parent; the paper's lets the features of a
      colour choose its direction. So the place of a colour depends on the colour alone, a colour that no training graph
      has finds its place, and the batch mates of a graph do not move it, beyond what batch normalisation does in
      training. Nodes with equal rows of ``x`` start with equal colours.
    - The paper embeds each colour once, here each node is embedded: nodes of a colour coincide. The gradient flows
      through the construction, which the paper calls differentiable; the authors' program drops it where it collects
      the colours, and so trains its classifier alone.
    - A colour whose features all vanish has no direction; it goes straight on, to :math:`-q`.
    - Each MLP of a round is a linear map, ReLU, batch normalisation and a second linear map; the classifier has hidden
      layers of 128 and 64 features. Of the paper's two classifiers it is the one on :math:`\log_o`, which is here the
      true one, twice as long as artanh of the norm in the ball.
    - Dropout acts in the classifier alone, as in the authors' program: on the input it would change the colours.
    - An ``edge_weight`` multiplies the message of its edge.

    The construction runs in the Lorentz model, with the boost :math:`\ominus z`, which is :math:`I_z` followed by the
    reflection along :math:`z_s`.

    Args:
        in_features: number of feature columns.
        hidden_dim: width of the features and dimension :math:`n` of the points.
        num_classes: number of classes; ignored for links.
        num_layers: number of rounds; the tree has one level more below its root.
        dropout: probability of dropping an entry of a hidden layer of the classifier.
        task: ``"node"``, ``"graph"`` or ``"link"``.
        tau: length :math:`\tau` of the edges of the tree.

    Shapes: as :class:`~hkconv.models.HKN`.
    """

    def __init__(
        self,
        in_features: int,
        hidden_dim: int,
        num_classes: int | None,
        *,
        num_layers: int,
        dropout: float = 0.0,
        task: str = "node",
        tau: float = 1.0,
    ):
        super().__init__()
        check_network(self, task, num_classes, num_layers, hidden_dim, dropout)
        depth, limit = num_layers + 1, max_radius(torch.float32)
        if not 0 < tau * depth <= limit:
            raise InputError(f"tau must be positive and at most {limit / depth:.3g} for {depth} levels, got {tau:g}")
        self.hidden_dim, self.task, self.tau = hidden_dim, task, tau
        self.linear = torch.nn.Linear(in_features, hidden_dim)
        self.updates = torch.nn.ModuleList(_make_update(hidden_dim) for _ in range(num_layers))
        if task == "link":
            self.decoder = FermiDirac()
        else:
            widths = [hidden_dim, *CLASSIFIER_WIDTHS, num_classes]
            # As a float, because PyG takes a whole number for a list.
            self.classifier = pyg_nn.MLP(widths, dropout=float(dropout), norm=None)

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        reset_modules(module for module in self.modules() if module is not self)

    def encode(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The leaves of the tree that belong to the nodes, ``(N, hidden_dim+1)``."""
        h = self.linear(x).relu()
        neighbors, weight = neighbors_with_loops(edge_index, edge_weight, h.size(0), h.dtype)
        parent = origin(self.hidden_dim, dtype=h.dtype, device=h.device).expand(h.size(0), -1)
        point = exp0(F.pad(self.tau * _direction(h), (1, 0)))
        for update in self.updates:
            h = update(neighbor_sum(h, weight, neighbors)).relu()
            parent, point = point, place_child(_direction(h), point, parent, self.tau)
        return point

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        *,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        pairs: Tensor | None = None,
    ) -> Tensor:
        """Logits of the task, in and out as :class:`hkconv.models.HKN`."""
        with full_precision(x) as (x,):
            points = self.encode(x, edge_index, edge_weight)
        if self.task == "link":
            return link_logits(self.decoder, points, pairs)
        features = log0(points)[:, 1:]
        if self.task == "graph":
            features = pyg_nn.global_add_pool(features, batch, batch_size)
        return self.classifier(features)

    def __repr__(self) -> str:
        width, layers = self.hidden_dim, len(self.updates)
        return f"{self.__class__.__name__}({self.task}, {self.linear.in_features}, {width}, num_layers={layers})"


def place_child(direction: Tensor, point: Tensor, parent: Tensor, tau: float) -> Tensor:
    r"""One step of Sarkar's construction: the child at distance ``tau`` of ``point`` in a direction that is given as if
    the parent lay at :math:`q = -(1, \dots, 1)/\sqrt n`.

    Args:
        direction: unit vectors :math:`u`, ``(N, n)``.
        point: where the child grows, ``(N, n+1)``, away from the origin.
        parent: of ``point``, ``(N, n+1)``.
        tau: length of the edge.

    Shapes: ``(N, n), (N, n+1), (N, n+1) -> (N, n+1)``.
    """
    axis = point[:, 1:] / safe_norm(point[:, 1:])
    to_parent = ominus(parent, point)[:, 1:]
    to_parent = to_parent / safe_norm(to_parent)
    q = torch.full_like(direction, -(direction.size(-1) ** -0.5))
    # I_z w = (S_z w) (+) z with S_z the reflection along z, and p = S_z to_parent: so S_z can act on u and q instead.
    turned = _reflect(_reflect(direction, axis), to_parent - _reflect(q, axis))
    return lift(oplus(exp0(F.pad(tau * turned, (1, 0))), point)[:, 1:])


def _reflect(v: Tensor, normal: Tensor) -> Tensor:
    """Reflect at the hyperplane across ``normal``, of any length; where it is zero, there is nothing to reflect."""
    square = (normal * normal).sum(-1, keepdim=True)
    return v - 2 * (v * normal).sum(-1, keepdim=True) / torch.where(square == 0, 1, square) * normal


def _direction(h: Tensor) -> Tensor:
    """Unit vectors along features; the middle of the positive orthant where all features vanish."""
    norm = safe_norm(h)
    zero = norm == 0
    return torch.where(zero, h.size(-1) ** -0.5, h / torch.where(zero, 1, norm))


def _make_update(width: int) -> pyg_nn.MLP:
    # A graph of one node has no variance; it is normalised with what was seen before.
    return pyg_nn.MLP([width] * 3, norm="batch_norm", norm_kwargs={"allow_single_element": True}, act_first=True)
