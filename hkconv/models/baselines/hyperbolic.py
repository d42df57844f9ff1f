"""Base classes of the hyperbolic baselines: of their layers, and of networks that differ from HKN in these alone."""

from collections.abc import Callable

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.geometry.checks import check_points
from hkconv.geometry.curvature import Curvature
from hkconv.models.hyperbolic_network import HyperbolicNetwork
from hkconv.nn import HEmbedding
from hkconv.nn.common import check_rate, full_precision, register_curvature
from hkconv.ops.neighbors import Neighbors, neighbors_with_loops


class HyperbolicConv(torch.nn.Module):
    r"""Layer :math:`\mathbb L^m \to \mathbb L^n` in three steps: a map of each point, an aggregation over the
    neighbours and the node itself, and an activation.

    Args:
        in_dim: dimension :math:`m` of the input points, which carry ``m+1`` coordinates.
        out_dim: dimension :math:`n` of the output points.
        dropout: a probability; the layer says of what.
        curvature: a negative float, or a 0-d tensor; a ``torch.nn.Parameter`` is learned.

    Shapes:
        - **x**: points ``(N, m+1)``
        - **edge_index**: ``(2, E)``, source to target. It is sorted when it is first seen and not again while the same
          tensor comes back unchanged.
        - **edge_weight**: non-negative ``(E,)``; added self loops weigh 1
        - **output**: points ``(N, n+1)``
    """

    curvature: Curvature

    def __init__(self, in_dim: int, out_dim: int, *, dropout: float = 0.0, curvature: Curvature = -1.0):
        super().__init__()
        for name, value in (("in_dim", in_dim), ("out_dim", out_dim)):
            if value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")
        check_rate(dropout)
        self.in_dim, self.out_dim, self.dropout = in_dim, out_dim, dropout
        register_curvature(self, curvature)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        check_points(x, self.in_dim, self.curvature, "x")
        with full_precision(x) as (x,):
            neighbors, weight = neighbors_with_loops(edge_index, edge_weight, x.size(0), x.dtype)
            return self.activate(self.aggregate(self.map(x), weight, neighbors))

    def map(self, x: Tensor) -> Tensor:
        """Points ``(N, m+1)`` to ``(N, n+1)``, each by itself."""
        raise NotImplementedError

    def aggregate(self, y: Tensor, weight: Tensor | None, neighbors: Neighbors) -> Tensor:
        """Points ``(N, n+1)`` and the weights of the sorted edges to a point for each node."""
        raise NotImplementedError

    def activate(self, y: Tensor) -> Tensor:
        """Points ``(N, n+1)`` to such points; the same ones where there is no activation."""
        return y

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.in_dim}, {self.out_dim})"


class HyperbolicBaseline(HyperbolicNetwork):
    r"""The embedding :math:`\exp_o(Wx + b)`, then ``num_layers`` layers of :meth:`make_layer`, then the head of
    :class:`~hkconv.models.HKN`, unless ``make_classifier`` makes another one for nodes and graphs.

    Arguments: as :class:`~hkconv.models.baselines.baseline.Baseline`; shapes: as :class:`~hkconv.models.HKN`.
    """

    #: How far the embedding may place nodes, see :class:`~hkconv.nn.HEmbedding`.
    reach: float | None = None

    def __init__(
        self,
        in_features: int,
        hidden_dim: int,
        num_classes: int | None,
        *,
        num_layers: int,
        dropout: float = 0.0,
        task: str = "node",
        make_classifier: Callable[[], torch.nn.Module] | None = None,
    ):
        super().__init__(
            in_features,
            hidden_dim,
            num_classes,
            lambda number: self.make_layer(number, num_layers, hidden_dim, dropout),
            num_layers=num_layers,
            task=task,
            dropout=dropout,
            make_embedding=lambda: HEmbedding(in_features, hidden_dim, reach=self.reach),
            make_classifier=make_classifier,
        )

    def make_layer(self, number: int, num_layers: int, dim: int, dropout: float) -> HyperbolicConv:
        """The layer of a number, from 0."""
        raise NotImplementedError
