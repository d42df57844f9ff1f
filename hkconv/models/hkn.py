"""HKN, the hyperbolic kernel network of section III-D: embedding, HKConv layers, and a head for the task."""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.errors import InputError
from hkconv.models.tasks import check_task
from hkconv.nn import FermiDirac, HDistance, HEmbedding, HKConv, MassScaling
from hkconv.nn.centroid import pool_with_mass

# Fresh points and centres lie within about one unit of each other. A tenth of that as temperature spreads the
# logits over about ten, as in a linear classifier; with 1 the first hundred epochs go into growing the distances.
INITIAL_TEMPERATURE = 0.1


class HKN(torch.nn.Module):
    r"""Hyperbolic kernel network: :math:`\exp_o(Wx + b)`, then ``num_layers`` HKConv, then by task

    - ``"node"``: logits :math:`-d(x, c_j)/T` to one learned centre :math:`c_j` a class, :math:`T` learned;
    - ``"graph"``: the same for the centroid of all nodes of a graph;
    - ``"link"``: the Fermi-Dirac logit :math:`(r - d^2(u, v))/t` of each pair.

    Args:
        in_features: Euclidean features of a node.
        hidden_dim: dimension of all hyperbolic layers.
        num_classes: number of classes; not used for links.
        num_layers: number of HKConv layers.
        kernel_size: number of kernel points :math:`K` of each.
        task: ``"node"``, ``"graph"`` or ``"link"``.
        dropout: rate on the input features and on the spatial coordinates of every layer's input.
        act, points, relative, attention, root, mass, curvature, backend: as in :class:`~hkconv.nn.HKConv`;
            with ``mass`` the pooling of the graph task keeps its mass too.

    Shapes:
        - **x**: ``(N, in_features)``; **edge_index**, **edge_weight**: as in :class:`~hkconv.nn.HKConv`
        - **batch**: graph of each node ``(N,)``, **batch_size**: number of graphs (graph task)
        - **pairs**: ``(2, P)`` (link task)
        - **output**: logits ``(N, num_classes)``, ``(batch_size, num_classes)`` or ``(P,)``
    """

    def __init__(
        self,
        in_features: int,
        hidden_dim: int,
        num_classes: int | None = None,
        *,
        num_layers: int = 2,
        kernel_size: int = 4,
        task: Literal["node", "graph", "link"] = "node",
        dropout: float = 0.0,
        act: str | None = None,
        points: Literal["optimal", "random", "trainable"] = "optimal",
        relative: bool = True,
        attention: Literal["distance"] | None = None,
        root: bool = False,
        mass: bool = False,
        curvature: float | Tensor = -1.0,
        backend: str = "auto",
    ):
        super().__init__()
        check_task(task, num_classes, num_layers)
        self.task, self.dropout = task, dropout
        self.embedding = HEmbedding(in_features, hidden_dim, curvature=curvature)
        self.convs = torch.nn.ModuleList(
            HKConv(
                hidden_dim,
                hidden_dim,
                kernel_size,
                act=act,
                dropout=dropout,
                points=points,
                relative=relative,
                attention=attention,
                root=root,
                mass=mass,
                curvature=curvature,
                backend=backend,
            )
            for _ in range(num_layers)
        )
        self.pool_mass = MassScaling(hidden_dim) if mass and task == "graph" else None
        if task == "link":
            self.decoder = FermiDirac(curvature=curvature)
        else:
            self.distance = HDistance(hidden_dim, num_classes, curvature=curvature)
            self.log_temperature = torch.nn.Parameter(torch.tensor(math.log(INITIAL_TEMPERATURE)))

    def reset_parameters(self) -> None:
        for module in self.modules():
            if module is not self and hasattr(module, "reset_parameters"):
                module.reset_parameters()
        if self.task != "link":
            torch.nn.init.constant_(self.log_temperature, math.log(INITIAL_TEMPERATURE))

    def encode(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The points of all nodes after the last convolution, ``(N, hidden_dim+1)``."""
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
            if pairs is None:
                raise InputError("pairs of shape (2, P) are needed for the link task")
            return self.decoder(points[pairs[0]], points[pairs[1]])
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
