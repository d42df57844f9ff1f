"""From what a client posts to the graphs that a file with the same content would give, through the same readers."""

import re
from collections import ChainMap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from hkconv.data.own.arrays import finite_numbers, graph_of_arrays
from hkconv.data.own.features import Feature, encode
from hkconv.data.own.graphs import OwnGraphs
from hkconv.data.own.node_tables import read_edges
from hkconv.data.own.schema import Schema
from hkconv.data.own.smiles_tables import KIND as MOLECULES
from hkconv.data.own.smiles_tables import molecule_graph
from hkconv.data.own.tables import Table
from hkconv.data.own.tu_folders import DEGREE, degrees
from hkconv.errors import InputError
from hkconv.serving.limits import Limits
from hkconv.serving.refusals import RefusalError

NODES, EDGES = "posted nodes", "posted edges"
# In brackets, or one of the elements that need none.
ATOM = re.compile(r"\[[^\]]*\]|Cl|Br|[BCNOPSFIbcnops*]")


def with_new_nodes(
    own: OwnGraphs, numbers: dict[str, int], nodes: Sequence[dict[str, Any]], edges: Sequence[dict[str, Any]]
) -> OwnGraphs:
    """A graph with more nodes and edges, which follow those that it has.

    Args:
        own: one graph.
        numbers: its nodes by name.
        nodes: each with ``id`` and ``features``.
        edges: each with ``source`` and ``target``, names of old or new nodes, and ``weight`` if edges have one.

    Returns:
        Another graph.
    """
    graph = own.graphs[0]
    names = _table(NODES, {"id": [node["id"] for node in nodes]}).unique_texts("id")
    for row, name in enumerate(names):
        if name in numbers:
            raise InputError(f"{NODES}, row {row + 1}: the graph already has a node {name!r}, ask for it by its id")
    x = torch.from_numpy(_features([node["features"] for node in nodes], own.features, NODES))
    added = {name: len(own.ids) + row for row, name in enumerate(names)}
    columns: dict[str, Any] = {end: [edge[end] for edge in edges] for end in ("source", "target")}
    if own.is_weighted:
        columns["weight"] = np.array([edge["weight"] for edge in edges], dtype=np.float64)
    edge_index, weight = read_edges(_table(EDGES, columns), ChainMap(added, numbers))
    grown = Data(x=torch.cat([graph.x, x]), edge_index=torch.cat([graph.edge_index, edge_index], dim=1))
    if weight is not None:
        grown.edge_weight = torch.cat([graph.edge_weight, weight])
    ids = [*own.ids, *names]
    return OwnGraphs(own.place, own.kind, own.task, [grown], ids, [""] * len(ids), features=own.features)


def graphs_of(posted: Sequence[dict[str, Any]], schema: Schema, limits: Limits) -> OwnGraphs:
    """Graphs of a request.

    Args:
        posted: each with ``smiles``, or with ``nodes`` and ``edges``, and with ``id`` or else called by its position.
        schema: of the data that were trained on.
        limits: for all of them together.

    Returns:
        The graphs.
    """
    are_molecules = schema.kind == MOLECULES
    _check_total(
        (_num_atoms(graph) if are_molecules else len(graph["nodes"]) for graph in posted), "nodes", limits.max_nodes
    )
    _check_total((len(graph.get("edges", ())) for graph in posted), "edges", limits.max_edges)
    ids = [graph.get("id", str(position)) for position, graph in enumerate(posted)]
    graphs = [
        _molecule(graph, name) if are_molecules else _graph(graph, schema, name) for name, graph in zip(ids, posted)
    ]
    num_columns = schema.num_features if are_molecules else None
    return OwnGraphs(
        "the request", schema.kind, "graph", graphs, ids, [""] * len(ids), None, schema.features, num_columns
    )


def _check_total(counts: Iterable[int], what: str, most: int) -> None:
    if sum(counts) > most:
        raise RefusalError(413, f"the graphs of a request must have at most {most} {what} together")


def _num_atoms(posted: dict[str, Any]) -> int:
    """How many atoms a SMILES string spells out. RDKit is not asked: thousands in one ring take it a minute."""
    return len(ATOM.findall(posted["smiles"]))


def _molecule(posted: dict[str, Any], name: str) -> Data:
    return molecule_graph(posted["smiles"], f"smiles of graph {name!r}")[0]


def _graph(posted: dict[str, Any], schema: Schema, name: str) -> Data:
    nodes, edges = posted["nodes"], posted.get("edges", [])
    ends = np.array([[edge[end] for edge in edges] for end in ("source", "target")], dtype=np.int64)
    place = f"graph {name!r}"
    outside = ends >= len(nodes)
    if outside.any():
        row = int(outside.any(axis=0).argmax())
        raise InputError(f"{place}, edge {row} is {ends[:, row].tolist()}, but there are nodes 0 to {len(nodes) - 1}")
    if schema.features is not None and [feature.name for feature in schema.features] == [DEGREE]:
        nodes = [{DEGREE: degree} for degree in degrees(ends, len(nodes))]
    arrays = {"x": _features(nodes, schema.features, f"nodes of {place}"), "edge_index": ends}
    if schema.is_weighted:
        arrays["edge_weight"] = np.array([edge["weight"] for edge in edges], dtype=np.float64)
    return graph_of_arrays(arrays, place)


def _features(rows: Sequence[Any], features: Sequence[Feature] | None, place: str) -> np.ndarray:
    """(N, F) float32."""
    if features is None:
        return finite_numbers(np.array(rows, dtype=np.float64), f"features of {place}", dims=2)
    columns = {
        feature.name: _column([row[feature.name] for row in rows], feature.categories is None) for feature in features
    }
    return encode(_table(place, columns), features).numpy()


def _column(cells: list[Any], are_numbers: bool) -> list[str] | np.ndarray:
    return np.array(cells, dtype=np.float64) if are_numbers else cells


def _table(place: str, columns: dict[str, Any]) -> Table:
    count = len(next(iter(columns.values())))
    return Table(Path(place), columns, range(1, count + 1), "row")
