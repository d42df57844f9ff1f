"""Base class of the hyperbolic networks: the embedding before the layers and the head after them."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.geometry.checks import check_attributes, check_tensor
from hkconv.geometry.curvature import Curvature
from hkconv.models.readout import INITIAL_TEMPERATURE, Readout
from hkconv.models.tasks import check_network
from hkconv.nn import HEmbedding
from hkconv.nn.common import reset_modules


class HyperbolicNetwork(Readout):
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
        temperature, link_temperature: where the temperatures :math:`T` and :math:`t` start.
        make_embedding: makes another embedding than that of the features alone.
        make_classifier: makes what answers node and graph tasks instead of the nearest centres; called as
            ``classifier(points, batch, batch_size)``.
        curvature: negative curvature of all points.

    Shapes:
        - **x**: ``(N, in_features)``; **edge_index**, **edge_weight**: as the layers take them
        - **batch**: graph of each node ``(N,)``, **batch_size**: number of graphs (graph task)
        - **pairs**: ``(2, P)`` (link task)
        - **output**: logits ``(N, num_classes)``, ``(batch_size, num_classes)`` or ``(P,)``
    """

    #: Why it needs the whole graph and no sample of it will do; None where one will.
    whole_graph_for: str | None = None
    #: Whether it looks at how many neighbours a node has, so that a few must weigh as much as all of them.
    counts_neighbors = False
    #: Whether it takes attributes of edges, whose number is then an option ``edge_dim``.
    reads_edges = False

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
        temperature: float = INITIAL_TEMPERATURE,
        link_temperature: float = 1.0,
        make_embedding: Callable[[], HEmbedding] | None = None,
        make_classifier: Callable[[], torch.nn.Module] | None = None,
        curvature: Curvature = -1.0,
    ):
        super().__init__()
        check_network(self, task, num_classes, num_layers, hidden_dim, dropout)
        self.task, self.dropout = task, dropout
        if make_embedding is None:
            self.embedding = HEmbedding(in_features, hidden_dim, curvature=curvature)
        else:
            self.embedding = make_embedding()
        self.convs = torch.nn.ModuleList(make_layer(number) for number in range(num_layers))
        self.classifier = None
        if make_classifier is None or task == "link":
            self.add_readout(
                task,
                hidden_dim,
                num_classes,
                mass=pool_mass,
                curvature=curvature,
                temperature=temperature,
                link_temperature=link_temperature,
            )
        else:
            self.classifier = make_classifier()

    def reset_parameters(self) -> None:
        # Parts first: what holds them may have a start of its own for them, as HNorm has for the scale of its norm.
        reset_modules(reversed([module for module in self.modules() if module is not self]))
        if self.classifier is None:
            self.reset_temperature()

    def embed(self, x: Tensor, edge_index: Tensor | None, edge_weight: Tensor | None) -> Tensor:
        """The points of all nodes before the first layer, ``(N, hidden_dim+1)``; most need no edges for that."""
        check_tensor(x, "x")
        return self.embedding(F.dropout(x, self.dropout, self.training))

    def layer_points(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, edge_attr: Tensor | None = None
    ) -> list[Tensor]:
        """The points of all nodes after the embedding and after each layer, ``(N, hidden_dim+1)`` each."""
        found = [self.embed(x, edge_index, edge_weight)]
        for number in range(len(self.convs)):
            found.append(self.layer(number, found[-1], edge_index, edge_weight, edge_attr=edge_attr))
        return found

    def layer(
        self,
        number: int,
        points: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        targets: int | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """The points after one layer, from those before it.

        Args:
            number: of the layer, from 0.
            points: of some nodes, ``(N, hidden_dim+1)``.
            edge_index, edge_weight: the edges between them.
            targets: how many of the nodes, the first ones, have all their edges; the others are left out of what
                comes back. None for all nodes.
            edge_attr: attributes of the edges, if it takes some.

        Returns:
            Points ``(targets, hidden_dim+1)``.
        """
        check_attributes(edge_attr, None, 0)
        return self.convs[number](points, edge_index, edge_weight)[:targets]

    def encode(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, edge_attr: Tensor | None = None
    ) -> Tensor:
        """The points of all nodes after the last layer, ``(N, hidden_dim+1)``."""
        return self.layer_points(x, edge_index, edge_weight, edge_attr)[-1]

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        *,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        pairs: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        points = self.layer_points(x, edge_index, edge_weight, edge_attr)
        return self.read_layers(points, batch, batch_size, pairs)

    @property
    def layers_read(self) -> int:
        """Number of the last entries of :meth:`layer_points` that the logits are read off."""
        return 1

    def read_layers(
        self, points: list[Tensor], batch: Tensor | None, batch_size: int | None, pairs: Tensor | None
    ) -> Tensor:
        """The logits from what :meth:`layer_points` gives."""
        if self.classifier is not None:
            return self.classifier(points[-1], batch, batch_size)
        return self.read(points[-1], batch, batch_size, pairs)

    def __repr__(self) -> str:
        layers = ", ".join(repr(conv) for conv in self.convs)
        return f"{self.__class__.__name__}({self.task}, {self.embedding}, {layers})"
