"""Graphs of several kinds of nodes and edges: what comes from several relations meets in a centroid."""

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch_geometric.nn import HeteroConv
from torch_geometric.nn.fx import get_submodule
from torch_geometric.nn.to_hetero_transformer import ToHeteroTransformer, key2str
from torch_geometric.typing import EdgeType, Metadata, NodeType

from hkconv.errors import InputError
from hkconv.geometry.curvature import Curvature, LearnedCurvature, curvature_value
from hkconv.geometry.lorentz import centroid
from hkconv.nn.common import register_curvature
from hkconv.nn.message_passing import HMessagePassing


class HeteroHKConv(HeteroConv):
    r"""A layer for each relation :math:`r`, and the centroid of what a node gets from them,

    .. math:: x_i' = \mathrm{HCent}\big(\{\mathrm{Layer}_r(x)_i\}_r\big),

    over the relations into the kind of node that :math:`i` is. PyG's ``HeteroConv`` takes the sum or the mean of the
    coordinates, which is no point. A relation in which the node has no neighbors counts with what its layer gives then,
    the origin from :class:`~hkconv.nn.HKConv`. Beyond the paper.

    Args:
        convs: a layer such as HKConv or HKBlock by relation, ``(source, relation, target)``; those into one kind of
            node must have one curvature, where it is learned the same object.

    Call it as ``HeteroConv``: dictionaries by kind of node or relation, and ``edge_weight_dict`` and so on by name.
    """

    def __init__(self, convs: dict[EdgeType, torch.nn.Module]):
        super().__init__(convs, aggr=None)
        self._into: dict[NodeType, EdgeType] = {}
        for relation, conv in convs.items():
            if not isinstance(conv, HMessagePassing):
                kind = type(conv).__name__
                raise InputError(
                    f"HeteroHKConv combines points, which {kind} does not give: PyG's HeteroConv is for it"
                )
            first = convs[self._into.setdefault(relation[-1], relation)]
            if not _have_one_curvature(first.curvature, conv.curvature):
                raise InputError(f"layers into {relation[-1]!r} must have one curvature, a learned one the same object")

    def forward(self, *args_dict: dict[Any, Any], **kwargs_dict: dict[Any, Any]) -> dict[NodeType, Tensor]:
        """Return the points of each kind of node into which edges lead."""
        stacked = super().forward(*args_dict, **kwargs_dict)
        return {
            kind: centroid(points, dim=1, curvature=self.convs[self._into[kind]].curvature)
            for kind, points in stacked.items()
        }


def to_hetero(
    module: torch.nn.Module, metadata: Metadata, input_map: dict[str, str] | None = None, debug: bool = False
) -> GraphModule:
    """:func:`torch_geometric.nn.to_hetero` for networks of points: layers of a relation meet in a centroid.

    PyG's own adds or averages coordinates where several relations lead into one kind of node, whatever its ``aggr``;
    the next layer refuses that. All copies of a layer share its curvature where that is learned.

    Args:
        module: a network for one kind of nodes and edges.
        metadata: kinds of nodes, and relations ``(source, relation, target)``.
        input_map, debug: as of PyG's function.
    """
    return _ToHetero(module, metadata, input_map=input_map, debug=debug).transform()


class _ToHetero(ToHeteroTransformer):
    def call_message_passing_module(self, node: Node, target: Any, name: str) -> None:
        """Call the copy of each relation, then the centroid of those into one kind of node."""
        if not isinstance(get_submodule(self.module, target), HMessagePassing):
            return super().call_message_passing_module(node, target, name)
        self.graph.inserting_after(node)
        found = defaultdict(list)
        for relation in self.metadata[1]:
            args, kwargs = self.map_args_kwargs(node, relation)
            place = f"{target}.{key2str(relation)}"
            # Under the name of the relation alone PyG would take it for a value of edges.
            found[relation[-1]].append(self._append(place, args, kwargs, f"{name}_by__{key2str(relation)}"))
        for kind, points in found.items():
            self._append(f"{target}.{_CENTROID}", tuple(points), {}, f"{name}__{key2str(kind)}")
        return None

    def _append(self, target: str, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Node:
        node = self.graph.create_node("call_module", target, args, kwargs, name)
        self.graph.inserting_after(node)
        return node

    def init_submodule(self, module: torch.nn.Module, target: str) -> torch.nn.Module:
        """Return copies of a layer by relation or kind of node, of one curvature, and the centroid of points."""
        copies = super().init_submodule(module, target)
        if copies is module:
            return module
        for twin in copies.values():
            for copied, layer in zip(list(twin.modules()), list(module.modules())):
                if _is_learned(getattr(layer, "curvature", None)):
                    copied.curvature = layer.curvature
        if isinstance(module, HMessagePassing):
            copies[_CENTROID] = _RelationCentroid(module.curvature)
        return copies


_CENTROID = "centroid"


class _RelationCentroid(torch.nn.Module):
    curvature: Curvature

    def __init__(self, curvature: Curvature):
        super().__init__()
        register_curvature(self, curvature)

    def forward(self, *points: Tensor) -> Tensor:
        return centroid(torch.stack(points), dim=0, curvature=self.curvature)


def _is_learned(curvature: Any) -> bool:
    return isinstance(curvature, LearnedCurvature | torch.nn.Parameter)


def _have_one_curvature(first: Any, other: Any) -> bool:
    if _is_learned(first) or _is_learned(other):
        return first is other
    return curvature_value(first) == curvature_value(other)
