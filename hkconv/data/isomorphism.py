"""Graphs that are the same but for the order of their nodes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.utils import coalesce

from hkconv.data.twins import same_rows, same_tuples

if TYPE_CHECKING:
    from networkx import DiGraph


def same_graphs(graphs: list[Data]) -> Tensor:
    """A number for each graph, equal for graphs that are isomorphic with the same features.

    Graphs are told apart by their Weisfeiler-Lehman colours; those whose colours agree are compared exactly.

    Args:
        graphs: with ``x`` and ``edge_index``.

    Returns:
        (G,) int64.
    """
    colors = _colors(graphs)
    number = torch.empty(len(graphs), dtype=torch.int64)
    for members in _grouped({index: tuple(sorted(of_nodes)) for index, of_nodes in enumerate(colors)}):
        for group in _isomorphic_groups({index: _ordered(graphs[index], colors[index]) for index in members}):
            number[group] = group[0]
    return number


def _colors(graphs: list[Data]) -> list[list[int]]:
    """Stable colours of the nodes of each graph, which hold their features; isomorphic graphs have the same ones."""
    batch = Batch.from_data_list([Data(x=graph.x, edge_index=graph.edge_index) for graph in graphs])
    edge_index = coalesce(batch.edge_index)
    generator = torch.Generator().manual_seed(0)
    colors, before = same_rows(batch.x), -1
    while int(colors.max()) > before:
        before = int(colors.max())
        colors = _refined(colors, edge_index, generator)
    return [of_nodes.tolist() for of_nodes in colors.split(batch.ptr.diff().tolist())]


def _refined(colors: Tensor, edge_index: Tensor, generator: torch.Generator) -> Tensor:
    """One round of colours: nodes keep the same one if the colours of their neighbours agree, in each direction.

    Colours of neighbours are compared by the sum of random codes, all nodes at once; PyG's ``WLConv`` goes node by
    node and takes over ten times as long. Should two sums be equal by chance, colours get coarser, which the exact
    comparison puts right.
    """
    source, target = edge_index
    codes = torch.empty(int(colors.max()) + 1, dtype=torch.int64).random_(generator=generator)[colors]
    told, heard = torch.zeros_like(codes), torch.zeros_like(codes)
    return same_tuples(colors, heard.index_add(0, target, codes[source]), told.index_add(0, source, codes[target]))


def _grouped(keys: Mapping[int, object]) -> list[list[int]]:
    """The indices with equal keys together."""
    groups: dict[object, list[int]] = {}
    for index, key in keys.items():
        groups.setdefault(key, []).append(index)
    return list(groups.values())


def _ordered(graph: Data, colors: list[int]) -> tuple[tuple[int, ...], frozenset[tuple[int, int]]]:
    """Colours and edges of a graph with its nodes in the order of their colours; equal only for isomorphic graphs."""
    order = sorted(range(len(colors)), key=colors.__getitem__)
    place = {node: rank for rank, node in enumerate(order)}
    edges = frozenset((place[source], place[target]) for source, target in graph.edge_index.t().tolist())
    return tuple(colors[node] for node in order), edges


def _isomorphic_groups(graphs: dict[int, tuple]) -> list[list[int]]:
    """The indices of isomorphic graphs together, given :func:`_ordered` graphs whose colours agree."""
    groups: list[list[int]] = []
    for same in _grouped(graphs):
        isomorphic = (group for group in groups if _are_isomorphic(graphs[group[0]], graphs[same[0]]))
        found = next(isomorphic, None)
        if found is None:
            groups.append(same)
        else:
            found.extend(same)
    return groups


def _are_isomorphic(first: tuple, second: tuple) -> bool:
    # PyTorch requires networkx.
    from networkx import vf2pp_is_isomorphic

    return vf2pp_is_isomorphic(_colored(*first), _colored(*second), node_label="colour")


def _colored(colors: tuple[int, ...], edges: frozenset[tuple[int, int]]) -> "DiGraph":
    from networkx import DiGraph

    graph = DiGraph()
    graph.add_nodes_from((node, {"colour": color}) for node, color in enumerate(colors))
    graph.add_edges_from(edges)
    return graph
