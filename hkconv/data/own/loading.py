"""From a path to a dataset: which reader it needs, how it is divided, and whether it is what a model was trained on."""

import os
from collections.abc import Sequence
from pathlib import Path

import torch
from torch_geometric.data import Data

from hkconv.data.catalog import CATALOG
from hkconv.data.checks import UNKNOWN, check_disjoint, check_num_splits
from hkconv.data.dataset import CLEAN, OWN, GraphDataset, NodeDataset, Split
from hkconv.data.options import DataOptions
from hkconv.data.own.arrays import read_archive
from hkconv.data.own.features import Feature, sorted_names
from hkconv.data.own.graphs import OwnGraphs
from hkconv.data.own.node_tables import read_node_tables
from hkconv.data.own.saved_graphs import read_saved_graphs
from hkconv.data.own.schema import Schema
from hkconv.data.own.smiles_tables import read_smiles_table
from hkconv.data.own.tables import SUFFIXES as TABLES
from hkconv.data.own.tables import find_table
from hkconv.data.own.tu_folders import find_edges_file, read_tu_folder
from hkconv.data.preparation import direct_edges, prepare_features
from hkconv.data.split_files import read_splits
from hkconv.data.splits import stratified_splits
from hkconv.errors import InputError

SAVED = (".pt", ".pth")
ARCHIVE = ".npz"
# Train, validation and test where the data do not say.
FRACTIONS = {"node": (0.6, 0.2, 0.2), "graph": (0.8, 0.1, 0.1)}


def is_own(name: str) -> bool:
    """Return True if a dataset's name is a path: of the catalog's names none is one."""
    if name.lower().replace("_", "-") in CATALOG:
        return False
    path = Path(os.path.expanduser(name))
    return os.sep in name or path.suffix in (*TABLES, *SAVED, ARCHIVE) or os.path.exists(path)


def read_own(path: Path, features: Sequence[Feature] | None = None) -> OwnGraphs:
    """Read own data of any kind.

    Args:
        path: a folder with ``nodes`` and ``edges`` or in TU format, or a file ``.pt``, ``.npz``, ``.csv`` or
            ``.parquet``.
        features: the columns that a model was trained on; learned from the data, if left out.

    Returns:
        The graphs as they were read.
    """
    if os.path.isdir(path):
        if find_table(path, "nodes") is not None:
            return read_node_tables(path, features)
        if find_edges_file(path) is not None:
            return read_tu_folder(path, features)
        raise InputError(
            f"{path} holds no data: a folder should have nodes.csv and edges.csv (or .parquet), or NAME_A.txt and the "
            "other files of the TU format"
        )
    readers = {
        **dict.fromkeys(SAVED, read_saved_graphs),
        ARCHIVE: read_archive,
        **dict.fromkeys(TABLES, read_smiles_table),
    }
    if not os.path.exists(path):
        raise InputError(f"own data {path} do not exist")
    if path.suffix not in readers:
        raise InputError(f"own data must be a folder or a file that ends in {', '.join(readers)}, got {path}")
    return readers[path.suffix](path)


def load_own(
    path: str | os.PathLike[str],
    *,
    task: str | None = None,
    split_file: str | os.PathLike[str] | None = None,
    num_splits: int = 10,
    seed: int = 0,
    preparation: DataOptions | None = None,
) -> NodeDataset | GraphDataset:
    """Load own data to train on.

    Splits come from a file of the user's, else from the data, else they are stratified random ones of the members with
    a label: 60/20/20 % of nodes, 80/10/10 % of graphs. Split i is the same however many are asked for.

    Args:
        path: see :func:`read_own`.
        task: ``"node"`` or ``"graph"``, which must be what the data are for.
        split_file: see :func:`hkconv.data.split_files.read_split_parts`.
        num_splits: how many splits, at most; the data may bring fewer.
        seed: of random splits.
        preparation: what is done to the graphs.

    Returns:
        The dataset, with its schema.
    """
    path = Path(os.path.expanduser(path))
    own = read_own(path)
    if task not in (None, own.task):
        raise InputError(f"task of own data {path} must be {own.task!r}, got {task!r}")
    classes = sorted_names({label for label in own.labels if label})
    if len(classes) < 2:
        found = f"one class only ({classes[0]})" if classes else "no labels"
        raise InputError(f"own data {path} have {found}: at least two classes are needed to train")
    schema = Schema(
        name=path.resolve().stem if path.is_file() else path.resolve().name,
        kind=own.kind,
        task=own.task,
        protocol=CLEAN if split_file is None and own.splits is None else OWN,
        classes=classes,
        features=own.features,
        num_features=own.num_features,
        is_weighted=own.is_weighted,
        graphs_digest=own.graphs_digest(),
        answers_digest=own.answers_digest(),
    )
    splits = [_in_order(split) for split in _splits(own, classes, split_file, num_splits, seed)]
    return _dataset(own, schema, splits, preparation or DataOptions())


def load_again(
    path: str | os.PathLike[str],
    schema: Schema,
    split_file: str | os.PathLike[str],
    preparation: DataOptions,
) -> NodeDataset | GraphDataset:
    """Load the data that a model was trained on; others are refused.

    Args:
        path: where they are now.
        schema: as they were.
        split_file: how they were divided.
        preparation: what is done to the graphs.

    Returns:
        The dataset.
    """
    own = read_like(path, schema)
    for what, before, now in (
        ("features, edges or ids", schema.graphs_digest, own.graphs_digest()),
        ("labels or splits", schema.answers_digest, own.answers_digest()),
    ):
        if before != now:
            raise InputError(f"own data {path} have changed since they were trained on: other {what}")
    return _dataset(own, schema, read_splits(split_file, len(own.ids)), preparation)


def read_like(path: str | os.PathLike[str], schema: Schema) -> OwnGraphs:
    """Read data as those that a model was trained on were read; data of another kind are refused.

    Args:
        path: a file or folder.
        schema: what was learned then.

    Returns:
        The graphs, with the features of the schema in its order.
    """
    path = Path(os.path.expanduser(path))
    own = read_own(path, schema.features)
    if (own.kind, own.task) != (schema.kind, schema.task):
        raise InputError(
            f"{path} holds {own.kind} for the {own.task} task, but trained on were {schema.kind} for the "
            f"{schema.task} task"
        )
    if own.num_features != schema.num_features:
        raise InputError(f"{path} has {own.num_features} features, but {schema.num_features} were trained on")
    if own.is_weighted != schema.is_weighted:
        which = ("without", "with") if schema.is_weighted else ("with", "without")
        raise InputError(f"the edges of {path} are {which[0]} weights, but those trained on were {which[1]}")
    return own


def prepared_graphs(own: OwnGraphs, preparation: DataOptions) -> list[Data]:
    """The graphs as a model sees them.

    Args:
        own: as they were read; left as they are.
        preparation: what is done to them.

    Returns:
        Copies, without labels.
    """
    made = []
    for graph in own.graphs:
        graph = direct_edges(graph.clone(), preparation.direction)
        graph.x = prepare_features(
            graph.x,
            own.place,
            normalize_features=preparation.normalize_features,
            log_features=preparation.log_features,
            are_columns=own.num_columns is not None,
        )
        made.append(graph)
    return made


def _splits(
    own: OwnGraphs, classes: Sequence[str], split_file: str | os.PathLike[str] | None, num_splits: int, seed: int
) -> list[Split]:
    if split_file is not None:
        return read_splits(split_file, len(own.ids), num_splits)
    check_num_splits(num_splits, f"own data {own.place}")
    if own.splits is not None:
        for parts in own.splits:
            check_disjoint(parts, f"the split in {own.place}")
        return [Split(**parts) for parts in own.splits[:num_splits]]
    labels = _numbered(own, classes)
    known = (labels != UNKNOWN).nonzero().flatten()
    drawn = stratified_splits(labels[known], FRACTIONS[own.task], num_splits, seed)
    return [Split(**{name: known[members] for name, members in split.parts.items()}) for split in drawn]


def _in_order(split: Split) -> Split:
    """The split as masks can hold it, so that a run that is resumed draws the batches of one that never stopped."""
    return Split(**{name: members.sort().values for name, members in split.parts.items()})


def _dataset(
    own: OwnGraphs, schema: Schema, splits: list[Split], preparation: DataOptions
) -> NodeDataset | GraphDataset:
    graphs = prepared_graphs(own, preparation)
    labels = _numbered(own, schema.classes)
    source = f"own data: {own.place}"
    if own.task == "node":
        graphs[0].y = labels
        return NodeDataset(
            schema.name, graphs[0], splits, len(schema.classes), source, protocol=schema.protocol, schema=schema
        )
    for graph, label in zip(graphs, labels.split(1)):
        graph.y = label
    return GraphDataset(
        schema.name,
        graphs,
        splits,
        len(schema.classes),
        source,
        protocol=schema.protocol,
        num_columns=own.num_columns,
        schema=schema,
    )


def _numbered(own: OwnGraphs, classes: Sequence[str]) -> torch.Tensor:
    """(N,) the numbers of the classes, ``UNKNOWN`` where there is none."""
    numbers = {"": UNKNOWN, **{name: number for number, name in enumerate(classes)}}
    return torch.tensor([numbers[label] for label in own.labels])
