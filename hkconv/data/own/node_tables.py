"""One graph from two tables: ``nodes`` with a name, features, labels and a split, and ``edges`` between the names."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data

from hkconv.data.own.features import Feature, encode, learn_features
from hkconv.data.own.graphs import OwnGraphs, split_of_words
from hkconv.data.own.tables import ColumnTable, find_table, read_table
from hkconv.errors import InputError

KIND = "tables of nodes and edges"
NODE_COLUMNS = ("id", "label", "split")
EDGE_COLUMNS = ("source", "target", "weight")


def read_node_tables(folder: Path, features: Sequence[Feature] | None = None) -> OwnGraphs:
    """Read ``nodes.csv`` and ``edges.csv``, or the same as Parquet.

    Args:
        folder: with ``nodes`` (``id``; ``label`` and ``split`` if known; every other column is a feature) and ``edges``
            (``source``, ``target``, names from ``id``; ``weight`` if edges have one).
        features: the columns that a model was trained on; learned from the table, if left out.

    Returns:
        The graph, its edges as they are listed.
    """
    nodes, edges = (_table(folder, stem) for stem in ("nodes", "edges"))
    nodes.require("id")
    ids = nodes.unique_texts("id")
    names = [name for name in nodes.columns if name not in NODE_COLUMNS]
    if features is None:
        if not names:
            raise InputError(f"{nodes.path} has no features: at least one column beside {', '.join(NODE_COLUMNS)}")
        features = learn_features(nodes, names)
    else:
        nodes.refuse_others(*NODE_COLUMNS, *(feature.name for feature in features))
    edge_index, weight = read_edges(edges, {name: number for number, name in enumerate(ids)})
    graph = Data(x=encode(nodes, features), edge_index=edge_index)
    if weight is not None:
        graph.edge_weight = weight
    labels = nodes.texts("label") if "label" in nodes.columns else [""] * len(nodes)
    return OwnGraphs(str(folder), KIND, "node", [graph], ids, labels, _splits(nodes, labels), tuple(features))


def _table(folder: Path, stem: str) -> ColumnTable:
    path = find_table(folder, stem)
    if path is None:
        raise InputError(f"{folder} has no {stem}.csv or {stem}.parquet: a graph needs nodes and edges")
    # A graph needs no edges.
    return read_table(path, may_be_empty=stem == "edges")


def read_edges(edges: ColumnTable, numbers: Mapping[str, int]) -> tuple[Tensor, Tensor | None]:
    """The edges that a table lists.

    Args:
        edges: with ``source`` and ``target``, names of nodes, and ``weight`` if edges have one.
        numbers: of the nodes, by name.

    Returns:
        (2, E) int64 numbers, and (E,) float32 weights or None.
    """
    edges.require("source", "target")
    edges.refuse_others(*EDGE_COLUMNS)
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


def _splits(nodes: ColumnTable, labels: list[str]) -> list[dict[str, Tensor]] | None:
    if "split" not in nodes.columns or "label" not in nodes.columns:
        return None
    return split_of_words(nodes.texts("split"), labels, lambda index: nodes.place(index, "split"))
