"""One graph from two tables: ``nodes`` with a name, features, labels and a split, and ``edges`` between the names."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from hkconv.data.options import MEAN
from hkconv.data.own.features import MOST_CATEGORIES, TYPE, Feature, describe_features, encode, learn_features
from hkconv.data.own.graphs import OwnGraphs
from hkconv.data.own.labels import is_label, read_labels, split_of_column
from hkconv.data.own.tables import ColumnTable, find_table, read_table
from hkconv.errors import InputError

KIND = "tables of nodes and edges"
EDGES_KIND = "a table of edges"
# Features that stand for the names of nodes, of which no two are alike.
NAME_FEATURES = 128
NODE_COLUMNS = ("id", "label", "target", "split")
EDGE_COLUMNS = ("source", "target", "weight")


def read_node_tables(
    folder: Path,
    features: Sequence[Feature] | None = None,
    missing: str = MEAN,
    edge_features: Sequence[Feature] | None = None,
) -> OwnGraphs:
    """Read ``nodes.csv`` and ``edges.csv``, or the same as Parquet.

    Args:
        folder: with ``edges`` (``source``, ``target``, names from ``id``; ``weight`` if edges have one; every other
            column is an attribute) and ``nodes`` (``id``; labels, see :func:`~hkconv.data.own.labels.read_labels`, and
            ``split`` if known; every other column is a feature). With ``edges`` alone, see :func:`read_edge_table`.
        features: the columns that a model was trained on; learned from the table, if left out.
        missing: see :func:`~hkconv.data.own.features.encode`.
        edge_features: the attributes of edges that a model was trained on, beside ``features``.

    Returns:
        The graph, its edges as they are listed.
    """
    if find_table(folder, "nodes") is None:
        return read_edge_table(_table(folder, "edges"))
    nodes, edges = (_table(folder, stem) for stem in ("nodes", "edges"))
    nodes.require("id")
    ids = nodes.unique_texts("id")
    known = [*NODE_COLUMNS, *filter(is_label, nodes.columns)]
    names = [name for name in nodes.columns if name not in known]
    if features is None:
        if not names:
            raise InputError(f"{nodes.path} has no features: at least one column beside {', '.join(NODE_COLUMNS)}")
        types = nodes.texts(TYPE) if TYPE in names else []
        features = learn_features(nodes, names, [TYPE] if len({*types}) <= MOST_CATEGORIES else [], missing)
        if not any(feature.width for feature in features):
            raise InputError(f"{nodes.path} has no features: {'; '.join(describe_features(nodes, features, missing))}")
        edge_features = learn_features(edges, _attributes(edges), missing=missing)
    else:
        nodes.refuse_others(*known, *(feature.name for feature in features))
        edges.refuse_others(*EDGE_COLUMNS, *(feature.name for feature in edge_features or ()))
    edge_index, weight = read_edges(edges, {name: number for number, name in enumerate(ids)})
    graph = Data(x=encode(nodes, features, missing), edge_index=edge_index)
    if any(feature.width for feature in edge_features or ()):
        graph.edge_attr = encode(edges, edge_features or (), missing)
    if weight is not None:
        graph.edge_weight = weight
    labels = read_labels(nodes)
    return OwnGraphs(
        str(folder),
        KIND,
        "node",
        [graph],
        ids,
        labels.words,
        split_of_column(nodes, labels),
        tuple(features),
        notes=(
            *describe_features(nodes, features, missing),
            *(f"edges: {note}" for note in describe_features(edges, edge_features or (), missing, "all edges")),
        ),
        metric=labels.metric,
        questions=labels.names,
        edge_features=tuple(edge_features) if edge_features else None,
    )


def read_edge_table(table: ColumnTable) -> OwnGraphs:
    """The graph of a table of edges alone, for the link task: its nodes are those that the edges name.

    Args:
        table: as :func:`read_edges` takes it.

    Returns:
        The graph, its nodes in the order in which they are first named.
    """
    table.require("source", "target")
    ends = zip(table.filled_texts("source"), table.filled_texts("target"))
    ids = list(dict.fromkeys(name for pair in ends for name in pair))
    edge_index, _ = read_edges(table, {name: number for number, name in enumerate(ids)})
    own = graph_of_names(str(table.path), edge_index, ids)
    return own if not (names := _attributes(table)) else replace(own, notes=(unused_attributes(names),))


def unused_attributes(names: Sequence[str]) -> str:
    """Note on columns of edges that links do not use."""
    return f"links have no attributes, not used: {', '.join(names)}"


def _attributes(edges: ColumnTable) -> list[str]:
    """The names of the columns that are attributes of edges."""
    return [name for name in edges.columns if name not in EDGE_COLUMNS]


def graph_of_names(place: str, edge_index: Tensor, ids: list[str]) -> OwnGraphs:
    """A graph of which nothing is known but its links; features are random numbers that follow from the names."""
    if not ids:
        raise InputError(f"{place} has no edges: at least one is needed")
    rows = [np.random.default_rng(list(name.encode())).standard_normal(NAME_FEATURES) for name in ids]
    x = torch.from_numpy(np.stack(rows).astype(np.float32)) / NAME_FEATURES**0.5
    return OwnGraphs(place, EDGES_KIND, "link", [Data(x=x, edge_index=edge_index)], ids, [""] * len(ids))


def _table(folder: Path, stem: str) -> ColumnTable:
    path = find_table(folder, stem)
    if path is None:
        raise InputError(f"{folder} has no {stem}.csv or {stem}.parquet: a graph needs nodes and edges")
    # A graph needs no edges.
    return read_table(path, may_be_empty=stem == "edges")


def read_edges(edges: ColumnTable, numbers: Mapping[str, int]) -> tuple[Tensor, Tensor | None]:
    """The edges that a table lists.

    Args:
        edges: with ``source`` and ``target``, names of nodes, and ``weight`` if edges have one; others are left out.
        numbers: of the nodes, by name.

    Returns:
        (2, E) int64 numbers, and (E,) float32 weights or None.
    """
    edges.require("source", "target")
    ends = []
    for column in ("source", "target"):
        names = edges.filled_texts(column)
        for index, name in enumerate(names):
            if name not in numbers:
                raise InputError(f"{edges.place(index, column)}: no node has the id {name!r}")
        ends.append([numbers[name] for name in names])
    weight = None
    if "weight" in edges.columns:
        found = edges.numbers("weight", lambda weight: weight >= 0, "a finite number of at least 0")
        weight = torch.from_numpy(found)
    return torch.tensor(ends, dtype=torch.int64), weight
