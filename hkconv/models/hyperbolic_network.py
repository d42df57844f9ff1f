"""What every hyperbolic network here shares: the embedding before its layers and the head after them."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.errors import InputError
from hkconv.models.tasks import check_supported, check_task
from hkconv.nn import FermiDirac, HDistance, HEmbedding, MassScaling
from hkconv.nn.centroid import pool_with_mass

# Fresh points and centres lie within about one unit of each other. A tenth of that as temperature spreads the
# logits over about ten, as in a linear classifier; with 1 the first hundred epochs go into growing the distances.
INITIAL_TEMPERATURE = 0.1


class HyperbolicNetwork(torch.nn.Module):
    r"""The embedding :math:`\exp_o(Wx + b)`, then ``num_layers`` layers from points to points, then by task

    - ``"node"``: logits :math:`-d(x, c_j)/T` to one learned centre :math:`c_j` a class, :math:`T` learned;
    - ``"graph"``: the same for the centroid of all nodes of a graph;
    - ``"link"``: the Fermi-Dirac logit :math:`(r - d^2(u, v))/t` of each pair.

    Args:
        in_features: Euclidean features of a node.
        hidden_dim: dimension of all hyperbolic layers.
        num_classes: number of classes; not used for links.
        make_layer: the layer of a number, from 0; called as ``layer(points, edge_index, edge_weight)``.
        num_layers: number of layers.
        task: ``"node"``, ``"graph"`` or ``"link"``.
        dropout: rate on the input features.
        pool_mass: let the pooling of the graph task keep its mass.
        make_classifier: makes what answers node and graph tasks instead of the nearest centres; called as
            ``classifier(points, batch, batch_size)``.
        curvature: negative curvature of all points.

    Shapes:
        - **x**: ``(N, in_features)``; **edge_index**, **edge_weight**: as the layers take them
        - **batch**: graph of each node ``(N,)``, **batch_size**: number of graphs (graph task)
        - **pairs**: ``(2, P)`` (link task)
        - **output**: logits ``(N, num_classes)``, ``(batch_size, num_classes)`` or ``(P,)``
    """

    def __init__(
        self,
        in_features: int,
        hidden_dim: int,
        num_classes: int | None,
        make_layer: Callable[[int], torch.nn.Module],
        *,
        num_layers: int,
        task: str,
        dropout: float,
        pool_mass: bool = False,
        make_classifier: Callable[[], torch.nn.Module] | None = None,
        curvature: float | Tensor = -1.0,
    ):
        super().__init__()
        check_task(task, num_classes, num_layers)
        check_supported(self, task)
        if hidden_dim < 1:
            raise InputError(f"hidden_dim must be at least 1, got {hidden_dim}")
        self.task, self.dropout = task, dropout
        self.embedding = HEmbedding(in_features, hidden_dim, curvature=curvature)
        self.convs = torch.nn.ModuleList(make_layer(number) for number in range(num_layers))
        self.pool_mass = MassScaling(hidden_dim) if pool_mass and task == "graph" else None
        self.classifier = None
        if task == "link":
            self.decoder = FermiDirac(curvature=curvature)
        elif make_classifier is not None:
            self.classifier = make_classifier()
        else:
            self.distance = HDistance(hidden_dim, num_classes, curvature=curvature)
            self.log_temperature = torch.nn.Parameter(torch.tensor(math.log(INITIAL_TEMPERATURE)))

    def reset_parameters(self) -> None:
        for module in self.modules():
            if module is not self and hasattr(module, "reset_parameters"):
                module.reset_parameters()
        if self.task != "link" and self.classifier is None:
            torch.nn.init.constant_(self.log_temperature, math.log(INITIAL_TEMPERATURE))

    def encode(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The points of all nodes after the last layer, ``(N, hidden_dim+1)``."""
        x = self.embedding(F.dropout(x, self.dropout, self.training))
        for conv in self.convs:
            x = conv(x, edge_index, edge_weight)
        return x

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
        points = self.encode(x, edge_index, edge_weight)
        if self.task == "link":
            return link_logits(self.decoder, points, pairs)
        if self.classifier is not None:
            return self.classifier(points, batch, batch_size)
        if self.task == "graph":
            points = self._pool(points, batch, batch_size)
        return -self.distance(points) * (-self.log_temperature).exp()

    def _pool(self, points: Tensor, batch: Tensor | None, batch_size: int | None) -> Tensor:
        curvature = self.distance.curvature
        pooled, mass = pool_with_mass(points, batch, batch_size, curvature=curvature)
        return pooled if self.pool_mass is None else self.pool_mass(pooled, mass, curvature)

    def __repr__(self) -> str:
        layers = ", ".join(repr(conv) for conv in self.convs)
        return f"{self.__class__.__name__}({self.task}, {self.embedding}, {layers})"


def link_logits(decoder: FermiDirac, points: Tensor, pairs: Tensor | None) -> Tensor:
    """The logits of pairs of nodes, ``(N, n+1), (2, P) -> (P,)``."""
    if pairs is None:
        raise InputError("pairs of shape (2, P) are needed for the link task")
    return decoder(points[pairs[0]], points[pairs[1]])
