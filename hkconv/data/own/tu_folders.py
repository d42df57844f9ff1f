"""Graphs in the text files of the TU collection: ``NAME_A.txt``, ``NAME_graph_indicator.txt`` and so on."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from hkconv.data.options import MEAN
from hkconv.data.own.features import Feature, describe_features, encode, learn_features
from hkconv.data.own.graphs import OwnGraphs
from hkconv.data.own.tables import ColumnTable, read_bare_table
from hkconv.errors import InputError

KIND = "graphs in TU format"
EDGES = "_A.txt"
# The one feature of nodes that have neither labels nor attributes.
DEGREE = "degree"


def find_edges_file(folder: Path) -> Path | None:
    """The file of edges in a folder or in its folder ``raw``, None where it is no folder in TU format."""
    for place in (folder, folder / "raw"):
        found = sorted(place.glob(f"*{EDGES}")) if place.is_dir() else []
        if len(found) > 1:
            raise InputError(f"{place} has {found[0].name} and {found[1].name}: a dataset needs a folder of its own")
        if found:
            return found[0]
    return None


def read_tu_folder(folder: Path, features: Sequence[Feature] | None = None, missing: str = MEAN) -> OwnGraphs:
    """Read the graphs of a folder.

    Features are the node labels, one-hot, and after them the node attributes; without either a node's features are its
    degree, one-hot. Graphs are called by their numbers, from 1.

    Args:
        folder: with ``NAME_A.txt``, ``NAME_graph_indicator.txt`` and, as far as known, ``NAME_graph_labels.txt``,
            ``NAME_node_labels.txt`` and ``NAME_node_attributes.txt``.
        features: those that a model was trained on; learned from the files, if left out.
        missing: see :func:`~hkconv.data.own.features.encode`.

    Returns:
        The graphs, their edges as they are listed.
    """
    edges_file = find_edges_file(folder)
    if edges_file is None:
        raise InputError(f"{folder} has no file NAME{EDGES}")
    files = {
        part: edges_file.with_name(edges_file.name.removesuffix(EDGES) + f"_{part}.txt")
        for part in ("graph_indicator", "graph_labels", "node_labels", "node_attributes")
    }
    graph_of_node = _graph_numbers(read_bare_table(files["graph_indicator"], "graph", 1))
    ends = _ends(read_bare_table(edges_file, "node", 2), graph_of_node)
    nodes = _node_table(files, ends, graph_of_node.size)
    if features is None:
        are_labels = [name for name in nodes.columns if "attribute" not in name]
        features = learn_features(nodes, list(nodes.columns), are_labels, missing)
    nodes.refuse_others(*(feature.name for feature in features))
    num_graphs = int(graph_of_node.max()) + 1
    graphs = _cut(encode(nodes, features, missing), torch.from_numpy(ends), torch.from_numpy(graph_of_node), num_graphs)
    labels = _labels(files["graph_labels"], num_graphs)
    ids = [str(number + 1) for number in range(num_graphs)]
    notes = describe_features(nodes, features, missing)
    return OwnGraphs(str(folder), KIND, "graph", graphs, ids, labels, features=tuple(features), notes=notes)


def degrees(ends: np.ndarray, count: int) -> list[str]:
    """Number of the edges, (2, E), that start at each of ``count`` nodes, as the cells of a table."""
    return list(map(str, np.bincount(ends[0], minlength=count).tolist()))


def _graph_numbers(table: ColumnTable) -> np.ndarray:
    """(N,) the graph of each node, from 0."""
    if not len(table):
        raise InputError(f"{table.path} is empty: it should name the graph of each node")
    numbers = _whole(table, "graph", "a graph's number, from 1")
    steps = np.diff(numbers, prepend=0)
    bad = (steps < 0) | (steps > 1)
    if bad.any():
        index = int(bad.argmax())
        raise InputError(f"{table.place(index, 'graph')}: graphs must follow one another, got {numbers[index]}")
    return numbers - 1


def _ends(table: ColumnTable, graph_of_node: np.ndarray) -> np.ndarray:
    """(2, E) nodes from 0."""
    if not len(table):
        return np.zeros((2, 0), dtype=np.int64)
    count = graph_of_node.size
    columns = ("node 1", "node 2")
    ends = np.stack([_whole(table, column, "a node's number, from 1", count) for column in columns]) - 1
    crossing = graph_of_node[ends[0]] != graph_of_node[ends[1]]
    if crossing.any():
        index = int(crossing.argmax())
        raise InputError(f"{table.path}, line {table.rows[index]}: the edge joins two different graphs")
    return ends


def _whole(table: ColumnTable, column: str, what: str, most: int | None = None) -> np.ndarray:
    """(N,) int64 of at least 1; float64 holds every number that a file can count."""
    found = table.parsed_numbers(column)
    accepted = (found >= 1) & (found <= (2**53 if most is None else most)) & (found == np.floor(found))
    if not accepted.all():
        index = int(np.argmin(accepted))
        limit = "" if most is None else f" to {most}"
        raise InputError(f"{table.place(index, column)} must be {what}{limit}, got {table.texts(column)[index]!r}")
    return found.astype(np.int64)


def _node_table(files: dict[str, Path], ends: np.ndarray, count: int) -> ColumnTable:
    """Labels and attributes of the nodes, a column for each."""
    found = [
        read_bare_table(files[part], name)
        for part, name in (("node_labels", "node label"), ("node_attributes", "node attribute"))
        if files[part].is_file()
    ]
    for table in found:
        if len(table) != count:
            raise InputError(f"{table.path} has {len(table)} lines, but there are {count} nodes")
    if not found:
        return ColumnTable(files["graph_indicator"], {DEGREE: degrees(ends, count)}, range(1, count + 1), "line")
    columns = {name: cells for table in found for name, cells in table.columns.items()}
    return ColumnTable(found[0].path, columns, found[0].rows, "line")


def _cut(x: Tensor, ends: Tensor, graph_of_node: Tensor, num_graphs: int) -> list[Data]:
    """The graphs that lie one behind the other."""
    num_nodes = graph_of_node.bincount(minlength=num_graphs)
    first_node = num_nodes.cumsum(0) - num_nodes
    graph_of_edge = graph_of_node[ends[0]]
    order = graph_of_edge.argsort(stable=True)
    own = (ends - first_node[graph_of_edge])[:, order]
    num_edges = graph_of_edge.bincount(minlength=num_graphs).tolist()
    parts = zip(x.split(num_nodes.tolist()), own.split(num_edges, dim=1))
    return [Data(x=features.clone(), edge_index=edges.contiguous()) for features, edges in parts]


def _labels(path: Path, num_graphs: int) -> list[str]:
    if not path.is_file():
        return [""] * num_graphs
    table = read_bare_table(path, "label", 1)
    if len(table) != num_graphs:
        raise InputError(f"{path} has {len(table)} lines, but there are {num_graphs} graphs")
    return table.known_texts("label")
