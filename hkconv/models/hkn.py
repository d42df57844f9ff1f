"""HKN, the hyperbolic kernel network of section III-D: embedding, HKConv layers, and a head for the task."""

from typing import Literal

from torch import Tensor

from hkconv.models.hyperbolic_network import HyperbolicNetwork
from hkconv.nn import HKConv


class HKN(HyperbolicNetwork):
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
        def make_layer(_: int) -> HKConv:
            return HKConv(
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

        super().__init__(
            in_features,
            hidden_dim,
            num_classes,
            make_layer,
            num_layers=num_layers,
            task=task,
            dropout=dropout,
            pool_mass=mass,
            curvature=curvature,
        )
