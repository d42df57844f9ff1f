"""A run that can be asked, loaded once: its graph, what it says of the nodes of that, and its model for what is new."""

import re
from collections import ChainMap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from hkconv.data.own.arrays import finite_numbers, graph_of_arrays
from hkconv.data.own.features import Feature, encode
from hkconv.data.own.graphs import OwnGraphs
from hkconv.data.own.loading import read_like
from hkconv.data.own.node_tables import read_edges
from hkconv.data.own.schema import Schema
from hkconv.data.own.smiles_tables import KIND as MOLECULES
from hkconv.data.own.smiles_tables import molecule_graph
from hkconv.data.own.tables import ColumnTable, cell_text
from hkconv.data.own.tu_folders import DEGREE, degrees
from hkconv.data.smiles import bond_categories
from hkconv.errors import InputError
from hkconv.serving.limits import Limits, RefusalError
from hkconv.tasks.predict import Predictions, Predictor, load_predictor
from hkconv.tasks.run import read_recipe

# Posted data pass the same readers as a file with the same content.
NODES, EDGES = "posted nodes", "posted edges"
# In brackets, or one of the elements that need none.
ATOM = re.compile(r"\[[^\]]*\]|Cl|Br|[BCNOPSFIbcnops*]")


@dataclass(frozen=True, eq=False)
class Service:
    """A run that can be asked. Of its methods only :meth:`NodeService.nodes` may be called by two threads at a time.

    Args:
        predictor: the training that is asked.
    """

    predictor: Predictor

    @property
    def schema(self) -> Schema:
        """Schema of the data that the run was trained on."""
        return self.predictor.schema


@dataclass(frozen=True, eq=False)
class NodeService(Service):
    """A run for the node task.

    Args:
        own: the graph.
        predictions: what the run says of its nodes.
        numbers: of the nodes, by name.
    """

    own: OwnGraphs
    predictions: Predictions
    numbers: dict[str, int]

    @property
    def takes_new_nodes(self) -> bool:
        """True if the model accepts a graph that has changed; the edges of requests have no attributes."""
        return not self.predictor.is_of_one_graph and not self.predictor.reads_attributes

    def nodes(self, ids: Sequence[str]) -> Predictions:
        """Predictions for nodes of the graph, in the order of ``ids``."""
        unknown = [name for name in ids if name not in self.numbers]
        if unknown:
            raise RefusalError(404, f"the graph has no node {unknown[0]!r}")
        return _taken(self.predictions, [self.numbers[name] for name in ids])

    def new_nodes(self, nodes: Sequence[dict[str, Any]], edges: Sequence[dict[str, Any]] = ()) -> Predictions:
        """Predictions for new nodes, in the graph that they and their edges are added to for this answer alone.

        Args:
            nodes, edges: see :func:`with_new_nodes`.
        """
        grown = with_new_nodes(self.own, self.numbers, nodes, edges)
        first = len(self.own.ids)
        return _taken(self.predictor.predict(grown), range(first, first + len(nodes)))


class GraphService(Service):
    """A run for the graph task."""

    def graphs(self, graphs: Sequence[dict[str, Any]], limits: Limits) -> Predictions:
        """Predictions for graphs, see :func:`graphs_of`."""
        return self.predictor.predict(graphs_of(graphs, self.schema, limits))


def load_service(
    folder: Path | str, *, data: str | None = None, model: str | None = None, device: str = "auto"
) -> NodeService | GraphService:
    """Load a run on own data and ask it once, which compiles what must be compiled.

    Args:
        folder: a folder that :func:`~hkconv.tasks.run.train_run` made.
        data: the graph whose nodes are asked for, a file or folder; by default what was trained on.
        model: the only one whose trainings are considered.
        device: where to compute.

    Returns:
        The run, ready to be asked.
    """
    predictor = load_predictor(folder, model=model, device=device)
    if predictor.schema.task == "link":
        raise InputError(
            f"run {folder} is for the link task: only nodes and graphs are served, hkconv predict has links"
        )
    if predictor.schema.task == "node":
        recipe = read_recipe(folder)
        own = read_like(data or recipe.runtime.data or recipe.data.dataset, predictor.schema, recipe.data.missing)
        numbers = {name: number for number, name in enumerate(own.ids)}
        return NodeService(predictor, own, predictor.predict(own), numbers)
    if data is not None:
        raise InputError(f"data is the graph of a node task, but run {folder} is for the graph task: leave it out")
    if predictor.reads_attributes:
        raise InputError(
            f"run {folder} has attributes of edges, which requests do not have: train with --no-edge-attributes"
        )
    predictor.predict(_smallest_graphs(predictor.schema))
    return GraphService(predictor)


def _smallest_graphs(schema: Schema) -> OwnGraphs:
    """Something to ask before a client does: two nodes and their link."""
    if schema.kind == MOLECULES:
        graph, num_columns = molecule_graph("CC", "ethane")[0], schema.num_features
    else:
        graph, num_columns = (
            Data(x=torch.zeros(2, schema.num_features), edge_index=torch.tensor([[0, 1], [1, 0]])),
            None,
        )
        if schema.is_weighted:
            graph.edge_weight = torch.ones(2)
    columns: dict[str, Any] = {"num_columns": num_columns, "num_edge_columns": _num_edge_columns(schema)}
    return OwnGraphs("two nodes", schema.kind, "graph", [graph], ["0"], [""], **columns)


def _num_edge_columns(schema: Schema) -> int | None:
    return sum(bond_categories()) if schema.kind == MOLECULES else None


def _taken(predictions: Predictions, rows: Sequence[int]) -> Predictions:
    chosen = [predictions.ids[row] for row in rows]
    return replace(predictions, ids=chosen, probabilities=predictions.probabilities[torch.as_tensor(rows)])


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
    return OwnGraphs(
        "the request",
        schema.kind,
        "graph",
        graphs,
        ids,
        [""] * len(ids),
        features=schema.features,
        num_columns=schema.num_features if are_molecules else None,
        num_edge_columns=_num_edge_columns(schema),
    )


def _check_total(counts: Iterable[int], what: str, most: int) -> None:
    if sum(counts) > most:
        raise RefusalError(413, f"the graphs of a request must have at most {most} {what} together")


def _num_atoms(posted: dict[str, Any]) -> int:
    """Number of atoms that a SMILES string spells out. RDKit is not asked: thousands in one ring take it a minute."""
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
        feature.name: _column([row.get(feature.name) for row in rows], feature) for feature in features if feature.width
    }
    return encode(_table(place, columns), features).numpy()


def _column(cells: list[Any], feature: Feature) -> list[str] | np.ndarray:
    if feature.categories is None and feature.kind is None:
        return np.array(cells, dtype=np.float64)
    return [cell_text(cell) for cell in cells]


def _table(place: str, columns: dict[str, Any]) -> ColumnTable:
    count = len(next(iter(columns.values())))
    return ColumnTable(Path(place), columns, range(1, count + 1), "row")
