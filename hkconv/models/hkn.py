"""HKN, the hyperbolic kernel network: embedding, layers, and a head for the task, in two forms.

``form="views"`` is made of :class:`~hkconv.nn.HKBlock`, ``form="paper"`` of bare :class:`~hkconv.nn.HKConv` as in
section III-D. The options beyond the paper each have a file of their own: :mod:`hkconv.models.structure`,
:mod:`hkconv.nn.norm`, :mod:`hkconv.models.readout` and, for learned curvatures, :mod:`hkconv.geometry.curvature`. Here
they are put together.
"""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.errors import InputError
from hkconv.geometry.curvature import Curvature, LearnedCurvature
from hkconv.geometry.hyperboloid import rescale
from hkconv.models.hyperbolic_network import HyperbolicNetwork
from hkconv.models.options import HKNOptions
from hkconv.models.pretrained import Pretrained
from hkconv.models.readout import INITIAL_TEMPERATURE, LayerReadout
from hkconv.models.structure import StructureEmbedding
from hkconv.nn import HEmbedding, HKBlock, HKConv, HNorm
from hkconv.ops.neighbors import with_loops
from hkconv.options import KERNELS

READOUTS = ("last", "all")
# Squared distances of fresh points are tens, and with t = 1 the first loss is some twenty; with 10 it is about one.
LINK_TEMPERATURE = 10.0
# What each form has where nothing else is said.
FORMS: dict[str, dict[str, Any]] = {
    "views": {"norm": "batch", "hidden_act": "relu", "readout": "all", "reach": 5.0},
    "paper": {"norm": "none", "hidden_act": "none", "readout": "last", "reach": None},
}


class HKN(Pretrained, HyperbolicNetwork):
    r"""Hyperbolic kernel network: :math:`x^{(0)} = \exp_o(Wx + b)`, then ``num_layers`` layers, then by task

    - ``"node"``: logits :math:`-d(x, c_j)/T` to one learned centre :math:`c_j` a class, :math:`T` learned;
    - ``"graph"``: the same for the centroid of all nodes of a graph;
    - ``"link"``: the Fermi-Dirac logit :math:`(r - d^2(u, v))/t` of each pair.

    The layers are :class:`~hkconv.nn.HKBlock`, read off one and all; or, with ``form="paper"``, bare
    :class:`~hkconv.nn.HKConv`, of which the last is read off. For links a block counts every node among its own
    neighbours: a link that is to be found is not among the edges, and often was all that a node had.

    Args:
        in_features: Euclidean features of a node.
        hidden_dim: dimension of all hyperbolic layers.
        num_classes: number of classes; not used for links.
        num_layers: number of layers.
        kernel_size: number of kernel points :math:`K` of each.
        task: ``"node"``, ``"graph"`` or ``"link"``.
        form: ``"views"`` or ``"paper"``.
        dropout: rate on the input features and on the spatial coordinates of every layer's input.
        points, mass, edge_dim, backend: as in :class:`~hkconv.nn.HKConv`; with ``mass`` the pooling of the graph task
            keeps its mass too.
        act, relative: as in :class:`~hkconv.nn.HKConv`, for ``form="paper"``.
        structure: the rows of the adjacency as further features of the embedding, see
            :class:`~hkconv.models.structure.StructureEmbedding`; for the node task. The network then belongs to one
            graph and cannot be used inductively.
        num_nodes: number of nodes of that graph; needed for ``structure``, else unused.
        reach: how far from the origin the embedding may place nodes, see :class:`~hkconv.nn.HEmbedding`; None for what
            the form has, 5 in views and any distance in the paper.
        norm: ``"batch"``, ``"layer"`` or ``"none"``: normalisation in every layer, see :class:`~hkconv.nn.HNorm`;
            None for what the form has, ``"batch"`` in views and ``"none"`` in the paper.
        hidden_act: activation of the spatial coordinates after it, such as ``"relu"``, or ``"none"``; None for what
            the form has, ``"relu"`` in views and ``"none"`` in the paper.
        readout: ``"last"`` reads the logits off the last layer's points; ``"all"`` off every layer's, the embedding's
            too, each with centres :math:`c^{(l)}` and a temperature of its own:
            :math:`\sum_l -d(x^{(l)}, c_j^{(l)})/T_l`, pooled or not; for links
            :math:`\sum_l (r_l - d^2(u^{(l)}, v^{(l)}))/t_l`. The :math:`T_l` start at so much that
            the sum starts as a mean. None for what the form has, ``"all"`` in views and ``"last"`` in the paper.
        curvature: negative curvature of all layers: a float or a 0-d tensor; a ``torch.nn.Parameter`` is learned.
        learn_curvature: every layer and every readout learns a curvature of its own, from ``curvature`` on, which must
            be a float then. Between two of them points are multiplied by :math:`R'/R`. The embedding has that of
            the first layer, for another one would do what :math:`W` does.

    Shapes:
        - **x**: ``(N, in_features)``; **edge_index**, **edge_weight**, **edge_attr**: as in :class:`~hkconv.nn.HKConv`
        - **batch**: graph of each node ``(N,)``, **batch_size**: number of graphs (graph task)
        - **pairs**: ``(2, P)`` (link task)
        - **output**: logits ``(N, num_classes)``, ``(batch_size, num_classes)`` or ``(P,)``
    """

    registered_name = "hkn"
    reads_edges = True

    def __init__(
        self,
        in_features: int,
        hidden_dim: int,
        num_classes: int | None = None,
        *,
        num_layers: int = 2,
        kernel_size: int = 4,
        task: Literal["node", "graph", "link"] = "node",
        form: Literal["views", "paper"] = "views",
        dropout: float = 0.5,
        act: str | None = None,
        points: Literal["optimal", "random", "trainable"] = "optimal",
        relative: bool = True,
        mass: bool = False,
        edge_dim: int | None = None,
        structure: bool = False,
        num_nodes: int | None = None,
        reach: float | None = None,
        norm: Literal["batch", "layer", "none"] | None = None,
        hidden_act: str | None = None,
        readout: Literal["last", "all"] | None = None,
        curvature: float | Tensor = -1.0,
        learn_curvature: bool = False,
        backend: str = "auto",
    ):
        KERNELS.check("kernel_size", kernel_size)
        chosen = _of_form(form, norm=norm, hidden_act=hidden_act, readout=readout, reach=reach)
        _check_options(task, structure, num_nodes, chosen["readout"], curvature, learn_curvature, edge_dim)
        if form == "views":
            _refuse_options_of_paper({"act": act, "relative": relative})
        after: dict[str, Any] = {
            name: None if chosen[name] == "none" else chosen[name] for name in ("norm", "hidden_act")
        }
        layer_curvatures = [_own(curvature, learn_curvature) for _ in range(num_layers)]

        def make_embedding() -> HEmbedding:
            first = layer_curvatures[0]
            if structure and num_nodes is not None:
                return StructureEmbedding(in_features, hidden_dim, num_nodes, reach=chosen["reach"], curvature=first)
            return HEmbedding(in_features, hidden_dim, reach=chosen["reach"], curvature=first)

        sizes = (hidden_dim, hidden_dim, kernel_size)
        shared: dict[str, Any] = {"dropout": dropout, "points": points, "mass": mass, "backend": backend}
        shared["edge_dim"] = edge_dim

        def make_layer(number: int) -> HKBlock | HKConv:
            own = layer_curvatures[number]
            if form == "views":
                return HKBlock(*sizes, norm=after["norm"], act=after["hidden_act"], curvature=own, **shared)
            return HKConv(*sizes, act=act, relative=relative, curvature=own, **shared)

        read_layers = num_layers + 1 if chosen["readout"] == "all" else 1
        temperatures: dict[str, Any] = {"temperature": INITIAL_TEMPERATURE * read_layers}
        if form == "views":
            temperatures["link_temperature"] = LINK_TEMPERATURE
        super().__init__(
            in_features,
            hidden_dim,
            num_classes,
            make_layer,
            num_layers=num_layers,
            task=task,
            dropout=dropout,
            pool_mass=mass,
            make_embedding=make_embedding,
            curvature=_own(curvature, learn_curvature),
            **temperatures,
        )
        self.has_loops = form == "views" and task == "link"
        self.edge_dim = edge_dim
        self.counts_neighbors = mass
        if structure:
            self.whole_graph_for = "structure, rows of the adjacency matrix"
        # A block has its own.
        is_bare = form == "views" or (after["norm"] is None and after["hidden_act"] is None)
        self.norms = torch.nn.ModuleList(
            torch.nn.Identity() if is_bare else HNorm(hidden_dim, after["norm"], after["hidden_act"], curvature=own)
            for own in layer_curvatures
        )
        self.early_readouts = torch.nn.ModuleList(
            LayerReadout(
                task,
                hidden_dim,
                num_classes,
                mass=mass,
                curvature=_own(curvature, learn_curvature),
                **temperatures,
            )
            for _ in range(read_layers - 1)
        )

    def layer_points(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> list[Tensor]:
        if self.has_loops:
            edge_index, edge_weight = with_loops(edge_index, edge_weight, x.size(0))
        return super().layer_points(x, edge_index, edge_weight, edge_attr)

    def embed(self, x: Tensor, edge_index: Tensor | None, edge_weight: Tensor | None) -> Tensor:
        if not isinstance(self.embedding, StructureEmbedding):
            return super().embed(x, edge_index, edge_weight)
        return self.embedding(F.dropout(x, self.dropout, self.training), edge_index, edge_weight)

    def layer(
        self,
        number: int,
        points: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        targets: int | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        conv: Any = self.convs[number]
        before: Any = self.convs[number - 1] if number else self.embedding
        points = rescale(points, before.curvature, conv.curvature)
        size = None if targets is None else (points.size(0), targets)
        return self.norms[number](conv(points, edge_index, edge_weight, size, edge_attr))

    @property
    def layers_read(self) -> int:
        return len(self.early_readouts) + 1

    def read_layers(
        self, points: list[Tensor], batch: Tensor | None, batch_size: int | None, pairs: Tensor | None
    ) -> Tensor:
        readouts = [*self.early_readouts, self]
        layers = [self.embedding, *self.convs][-self.layers_read :]
        read = [
            readout.read(rescale(found, layer.curvature, readout.read_curvature), batch, batch_size, pairs)
            for readout, layer, found in zip(readouts, layers, points[-self.layers_read :])
        ]
        return sum(read[1:], start=read[0])


def _own(curvature: float | Tensor, learn: bool) -> Curvature:
    return LearnedCurvature(float(curvature)) if learn else curvature


def _of_form(form: str, **given: Any) -> dict[str, Any]:
    """Given options, completed by the defaults of the form."""
    if form not in FORMS:
        raise InputError(f"form must be {' or '.join(map(repr, FORMS))}, got {form!r}")
    return {name: FORMS[form][name] if value is None else value for name, value in given.items()}


def _refuse_options_of_paper(given: dict[str, Any]) -> None:
    for name, value in given.items():
        if value != getattr(HKNOptions, name):
            raise InputError(f"{name} is an option of form 'paper' and has no place in form 'views', got {value!r}")


def _check_options(
    task: str,
    structure: bool,
    num_nodes: int | None,
    readout: str,
    curvature: float | Tensor,
    learn_curvature: bool,
    edge_dim: int | None,
) -> None:
    if readout not in READOUTS:
        raise InputError(f"readout must be {' or '.join(map(repr, READOUTS))}, got {readout!r}")
    if structure and task != "node":
        raise InputError(f"structure is for the node task, whose graph stays the same, not for the {task} task")
    if structure and num_nodes is None:
        raise InputError("structure needs num_nodes, the number of nodes of the graph")
    if edge_dim is not None and task == "link":
        raise InputError("edge_dim is for node and graph tasks: the links that are asked for have no attributes")
    if learn_curvature and isinstance(curvature, Tensor):
        raise InputError("curvature must be a float for learn_curvature: each layer learns its own from there")
