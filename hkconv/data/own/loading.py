"""From a path to a dataset: which reader it needs, how it is divided, and whether it is what a model was trained on."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from torch_geometric.data import Data

from hkconv.data.catalog import CATALOG, DatasetInfo
from hkconv.data.checks import check_disjoint, check_num_splits
from hkconv.data.dataset import (
    CLEAN,
    OWN,
    GraphDataset,
    LinkDataset,
    LinkSplit,
    NodeDataset,
    Split,
    learn_scalings,
    link_keys,
)
from hkconv.data.edge_lists import read_edge_list
from hkconv.data.options import ACCURACY, BOTH, ERROR, LOG, MEAN, NONE, R2, STANDARD, DataOptions
from hkconv.data.own.arrays import read_archive
from hkconv.data.own.features import TYPE, Feature, sorted_names
from hkconv.data.own.graphs import OwnGraphs
from hkconv.data.own.labels import QUESTION_METRIC, label_numbers
from hkconv.data.own.node_tables import (
    EDGES_KIND,
    graph_of_names,
    read_edge_table,
    read_node_tables,
    unused_attributes,
)
from hkconv.data.own.saved_graphs import read_saved_graphs
from hkconv.data.own.schema import Schema
from hkconv.data.own.smiles_tables import read_smiles_table
from hkconv.data.own.tables import SUFFIXES as TABLES
from hkconv.data.own.tables import find_table, read_table
from hkconv.data.own.tu_folders import find_edges_file, read_tu_folder
from hkconv.data.preparation import direct_edges, prepare_features
from hkconv.data.scaling import Scaling, learn_scaling, mean_and_deviation
from hkconv.data.split_files import PART_NAMES, check_split_file, read_splits
from hkconv.data.splits import link_splits, stratified_splits
from hkconv.errors import InputError

OwnDataset = NodeDataset | GraphDataset | LinkDataset

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


def check_own(path: str, root: str | os.PathLike[str] | None, protocol: str = CLEAN) -> None:
    """Refuse for own data what holds for named datasets alone: a folder of them, and the paper's splits."""
    if protocol != CLEAN:
        raise InputError(f"protocol must be 'clean' for own data, got {protocol!r}")
    if root is not None:
        raise InputError(f"data is the folder of named datasets, but {path} is own data: leave it out")


def read_own(
    path: Path,
    features: Sequence[Feature] | None = None,
    missing: str = MEAN,
    edge_features: Sequence[Feature] | None = None,
) -> OwnGraphs:
    """Read own data of any kind.

    Args:
        path: a folder with ``nodes`` and ``edges`` or in TU format, or a file ``.pt``, ``.npz``, ``.csv`` or
            ``.parquet``.
        features, edge_features: the columns that a model was trained on; learned from the data, if left out.
        missing: see :func:`~hkconv.data.own.features.encode`.

    Returns:
        The graphs as they were read.
    """
    if os.path.isdir(path):
        if find_table(path, "nodes") is not None or find_table(path, "edges") is not None:
            return read_node_tables(path, features, missing, edge_features)
        if find_edges_file(path) is not None:
            return read_tu_folder(path, features, missing)
        raise InputError(
            f"{path} holds no data: a folder should have nodes.csv and edges.csv (or .parquet), or NAME_A.txt and the "
            "other files of the TU format"
        )
    readers = {
        **dict.fromkeys(SAVED, read_saved_graphs),
        ARCHIVE: read_archive,
        **dict.fromkeys(TABLES, _read_table),
    }
    if not os.path.exists(path):
        raise InputError(f"own data {path} do not exist")
    if path.suffix not in readers:
        raise InputError(f"own data must be a folder or a file that ends in {', '.join(readers)}, got {path}")
    return readers[path.suffix](path)


def _read_table(path: Path) -> OwnGraphs:
    """Read a single table: of edges, or of molecules."""
    columns = read_table(path, may_be_empty=True).columns
    if "smiles" not in columns and {"source", "target"} <= {*columns}:
        return read_edge_table(read_table(path))
    if "smiles" not in columns and len(columns) == 2 and path.suffix == ".csv":
        edges = read_edge_list(path)
        return graph_of_names(str(path), edges.edge_index, edges.names)
    return read_smiles_table(path)


def describe_own(path: str | os.PathLike[str]) -> tuple[DatasetInfo, tuple[str, ...]]:
    """Sizes of own data as ``hkconv datasets`` lists them, and notes on their columns.

    Args:
        path: see :func:`read_own`.
    """
    path = Path(os.path.expanduser(path))
    own = read_own(path)
    info = DatasetInfo(
        name=path.resolve().stem,
        task=own.task,
        graphs=len(own.graphs),
        nodes=sum(graph.num_nodes for graph in own.graphs),
        edges=sum(len(link_keys(graph.edge_index, graph.num_nodes)) for graph in own.graphs),
        features=own.num_features,
        classes={ACCURACY: len({*own.labels} - {""}), R2: 0}.get(own.metric, 2),
        location=own.kind,
    )
    known = sum(map(bool, own.labels))
    some = [] if known == len(own.labels) else [f"labels: {known} of {len(own.labels)} {own.task}s have one"]
    asked = {R2: ["a number to predict"], QUESTION_METRIC: [f"yes-or-no questions: {', '.join(own.questions)}"]}
    return info, (*some, *asked.get(own.metric, []), *own.notes)


def load_own(
    path: str | os.PathLike[str],
    *,
    task: str | None = None,
    split_file: str | os.PathLike[str] | None = None,
    num_splits: int = 10,
    seed: int = 0,
    preparation: DataOptions | None = None,
) -> OwnDataset:
    """Load own data to train on.

    Splits come from a file of the user's, else from the data, else they are stratified random ones of the members with
    a label: 60/20/20 % of nodes, 80/10/10 % of graphs. Split i is the same however many are asked for.

    Args:
        path: see :func:`read_own`.
        task: ``"node"``, ``"graph"`` or ``"link"``: what the data are for, or ``"link"`` for any graph with nodes.
        split_file: see :func:`hkconv.data.split_files.read_split_parts`.
        num_splits: how many splits, at most; the data may bring fewer.
        seed: of random splits.
        preparation: what is done to the graphs.

    Returns:
        The dataset, with its schema.
    """
    path = Path(os.path.expanduser(path))
    preparation = preparation or DataOptions()
    own = read_own(path, missing=preparation.missing)
    if task == "link" and own.task == "node":
        own = _for_links(own)
    if task not in (None, own.task):
        raise InputError(f"task of own data {path} must be {own.task!r}, got {task!r}")
    check_split_file(split_file, CLEAN, own.task)
    classes: tuple[str, ...] = own.questions or sorted_names({label for label in own.labels if label})
    if own.task == "link":
        _check_both_ways(preparation)
    elif own.metric == ACCURACY and len(classes) < 2:
        found = f"one class only ({classes[0]})" if classes else _without_labels(own)
        hint = "; without any there is the task link" if not classes and own.task == "node" else ""
        raise InputError(f"own data {path} have {found}: at least two classes are needed to train{hint}")
    elif not any(own.labels):
        raise InputError(f"own data {path} have no labels: nothing is known of {', '.join(classes)}")
    splits = _splits(own, classes, split_file, num_splits, seed)
    scalings = _scalings(own, splits, preparation)
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
        scalings=scalings,
        notes=own.notes,
        metric=own.metric,
        targets=_targets(own, cast(list[Split], splits)) if own.metric == R2 else None,
        edge_features=own.edge_features,
        num_edge_features=own.num_edge_features,
        edge_scaling=_edge_scaling(own, preparation),
    )
    return _dataset(own, schema, splits, preparation)


def _without_labels(own: OwnGraphs) -> str:
    """Return what data without a label lack, and the columns that they have."""
    if own.features is None:
        return "no labels"
    return f"no labels in a column label (there are {', '.join(feature.name for feature in own.features)})"


def load_again(
    path: str | os.PathLike[str],
    schema: Schema,
    split_file: str | os.PathLike[str],
    preparation: DataOptions,
    seed: int = 0,
) -> OwnDataset:
    """Load the data that a model was trained on; others are refused.

    Args:
        path: where they are now.
        schema: as they were.
        split_file: how they were divided.
        preparation: what is done to the graphs.
        seed: of the splits of links, which no file has.

    Returns:
        The dataset.
    """
    own = read_like(path, schema, preparation.missing)
    for what, before, now in (
        ("features, edges or ids", schema.graphs_digest, own.graphs_digest()),
        ("labels or splits", schema.answers_digest, own.answers_digest()),
    ):
        if before != now:
            raise InputError(f"own data {path} have changed since they were trained on: other {what}")
    if own.task == "link":
        splits: Sequence[Split | LinkSplit] = _splits(own, (), None, preparation.num_splits, seed)
    else:
        splits = read_splits(split_file, len(own.ids))
    return _dataset(own, schema, splits, preparation)


def read_like(path: str | os.PathLike[str], schema: Schema, missing: str = MEAN) -> OwnGraphs:
    """Read data as those that a model was trained on were read; data of another kind are refused.

    Args:
        path: a file or folder.
        schema: what was learned then.
        missing: see :func:`~hkconv.data.own.features.encode`.

    Returns:
        The graphs, with the features of the schema in its order.
    """
    path = Path(os.path.expanduser(path))
    # Without a scaling nothing is known to stand for a missing value.
    own = read_own(path, schema.features, ERROR if schema.scalings is None else missing, schema.edge_features)
    if schema.task == "link" and own.task == "node":
        own = _for_links(own)
    if schema.num_edge_features is None and own.edge_features is None and own.num_edge_features is not None:
        own = _without_attributes(own)
    if (own.kind, own.task) != (schema.kind, schema.task):
        raise InputError(
            f"{path} holds {own.kind} for the {own.task} task, but trained on were {schema.kind} for the "
            f"{schema.task} task"
        )
    if own.num_features != schema.num_features:
        raise InputError(f"{path} has {own.num_features} features, but {schema.num_features} were trained on")
    own = replace(own, labels=[""] * len(own.ids)) if own.metric != schema.metric else own
    if own.is_weighted != schema.is_weighted:
        which = ("without", "with") if schema.is_weighted else ("with", "without")
        raise InputError(f"the edges of {path} are {which[0]} weights, but those trained on were {which[1]}")
    if own.num_edge_features != schema.num_edge_features:
        found, wanted = own.num_edge_features or "no", schema.num_edge_features or "none"
        raise InputError(f"edges of {path} have {found} attributes, but {wanted} were trained on")
    return own


def prepared_graphs(own: OwnGraphs, preparation: DataOptions, edge_scaling: Scaling | None = None) -> list[Data]:
    """The graphs as a model sees them.

    Args:
        own: as they were read; left as they are.
        preparation: what is done to them.
        edge_scaling: of the attributes of edges, if they have one.

    Returns:
        Copies, without labels.
    """
    made = []
    for graph in own.graphs:
        graph = graph.clone()
        graph.edge_attr = graph.edge_attr if preparation.edge_attributes else None
        if graph.edge_attr is not None and edge_scaling is not None:
            graph.edge_attr = edge_scaling(graph.edge_attr)
        direct_edges(graph, preparation.direction)
        graph.x = prepare_features(
            graph.x,
            own.place,
            normalize_features=preparation.normalize_features,
            log_features=preparation.log_features,
            are_columns=own.num_columns is not None,
        )
        made.append(graph)
    return made


def _for_links(own: OwnGraphs) -> OwnGraphs:
    """The same graph without what says nothing of its links."""
    own = replace(own, task="link", labels=[""] * len(own.ids), splits=None, metric=ACCURACY, questions=())
    if own.num_edge_features is None:
        return own
    names = ["edge_attr"] if own.edge_features is None else [feature.name for feature in own.edge_features]
    return replace(_without_attributes(own), notes=(*own.notes, unused_attributes(names)))


def _without_attributes(own: OwnGraphs) -> OwnGraphs:
    """The same graphs without attributes of edges."""
    graphs = [graph.clone() for graph in own.graphs]
    for graph in graphs:
        graph.edge_attr = None
    return replace(own, graphs=graphs)


def _check_both_ways(preparation: DataOptions) -> None:
    if preparation.direction != BOTH:
        raise InputError(
            f"direction must be {BOTH!r} for the link task, which uses every link both ways, "
            f"got {preparation.direction!r}"
        )


def _splits(
    own: OwnGraphs, classes: Sequence[str], split_file: str | os.PathLike[str] | None, num_splits: int, seed: int
) -> list[Split | LinkSplit]:
    if own.task == "link":
        return [*link_splits(own.graphs[0].edge_index, len(own.ids), num_splits=num_splits, seed=seed)]
    return [*map(_in_order, _member_splits(own, classes, split_file, num_splits, seed))]


def _member_splits(
    own: OwnGraphs, classes: Sequence[str], split_file: str | os.PathLike[str] | None, num_splits: int, seed: int
) -> list[Split]:
    if split_file is not None:
        return read_splits(split_file, len(own.ids), num_splits)
    check_num_splits(num_splits, f"own data {own.place}")
    if own.splits is not None:
        for parts in own.splits:
            check_disjoint(parts, f"the split in {own.place}")
        return [Split(*(parts[name] for name in PART_NAMES)) for parts in own.splits[:num_splits]]
    known = torch.tensor([bool(label) for label in own.labels]).nonzero().flatten()
    # Answers and numbers are one class.
    labels = label_numbers(own.labels, own.metric, classes) if own.metric == ACCURACY else torch.zeros(len(own.ids))
    drawn = stratified_splits(labels[known].long(), FRACTIONS[own.task], num_splits, seed)
    return [Split(*(known[members] for members in split.parts.values())) for split in drawn]


def _scalings(
    own: OwnGraphs, splits: Sequence[Split | LinkSplit], preparation: DataOptions
) -> tuple[Scaling, ...] | None:
    """The scaling of each split, learned from its training rows; None where features are taken as they are."""
    if own.num_columns is not None:
        if preparation.scale in (STANDARD, LOG):
            raise InputError(f"scale must be none for {own.place}: the features of {own.kind} are categories, one-hot")
        return None
    scale = preparation.scale or _usual_scale(own, preparation)
    if scale == NONE and own.features is None:
        return None
    graphs = prepared_graphs(own, preparation)
    types = _type_columns(own)
    if own.task != "node" or types is None:
        return learn_scalings(own.task, graphs, splits, scale, own.are_numbers)
    x, is_of = graphs[0].x, graphs[0].x[:, types] > 0
    # Nodes of a type of which none is trained on are seen as neighbors.
    rows = [(is_of & ~is_of[split.train].any(0)).any(1).index_fill(0, split.train, True) for split in splits]
    return tuple(learn_scaling(x[chosen], scale, own.are_numbers) for chosen in rows)


def _type_columns(own: OwnGraphs) -> slice | None:
    """The one-hot columns of the types of nodes, None where they have none."""
    start = 0
    for feature in own.features or ():
        if feature.name == TYPE and feature.categories is not None:
            return slice(start, start + len(feature.categories))
        start += feature.width
    return None


def _edge_scaling(own: OwnGraphs, preparation: DataOptions) -> Scaling | None:
    """The scaling of attributes of edges from tables, learned from all edges: a model sees every one in training."""
    if own.edge_features is None or own.num_edge_features is None:
        return None
    are_numbers = [is_number for feature in own.edge_features for is_number in feature.are_numbers]
    return learn_scaling(own.graphs[0].edge_attr, preparation.scale or STANDARD, are_numbers)


def _targets(own: OwnGraphs, splits: Sequence[Split]) -> tuple[tuple[float, float], ...]:
    """The mean and the deviation of the numbers to train on, for each split."""
    values = label_numbers(own.labels, own.metric, own.questions)
    return tuple(mean_and_deviation(values[split.train]) for split in splits)


def _usual_scale(own: OwnGraphs, preparation: DataOptions) -> str:
    """The scale where nobody says which: none for features that have one, and for words, which are mostly zeros."""
    if preparation.normalize_features or preparation.log_features or own.kind == EDGES_KIND:
        return NONE
    zeros = sum(int((graph.x == 0).sum()) for graph in own.graphs)
    are_words = own.features is None and 2 * zeros > sum(graph.x.numel() for graph in own.graphs)
    return NONE if are_words else STANDARD


def _in_order(split: Split) -> Split:
    """The split as masks can hold it, so that a run that is resumed draws the batches of one that never stopped."""
    return Split(*(members.sort().values for members in split.parts.values()))


def _dataset(
    own: OwnGraphs, schema: Schema, splits: Sequence[Split | LinkSplit], preparation: DataOptions
) -> OwnDataset:
    graphs = prepared_graphs(own, preparation, schema.edge_scaling)
    if schema.scalings is not None:
        splits = [replace(split, scaling=scaling) for split, scaling in zip(splits, schema.scalings, strict=True)]
    labels = label_numbers(own.labels, own.metric, schema.classes)
    source = f"own data: {own.place}"
    if own.task == "link":
        return LinkDataset(
            schema.name,
            graphs[0],
            cast(list[LinkSplit], splits),
            source,
            protocol=schema.protocol,
            schema=schema,
            ids=tuple(own.ids),
        )
    divided = cast(list[Split], splits)
    if schema.targets is not None:
        divided = [replace(split, target=target) for split, target in zip(divided, schema.targets, strict=True)]
    num_classes = len(schema.classes) if own.metric == ACCURACY else 2
    if own.task == "node":
        graphs[0].y = labels
        return NodeDataset(
            schema.name,
            graphs[0],
            divided,
            num_classes,
            source,
            protocol=schema.protocol,
            schema=schema,
            ids=tuple(own.ids),
            metric=own.metric,
        )
    for graph, label in zip(graphs, labels.split(1)):
        graph.y = label
    return GraphDataset(
        schema.name,
        graphs,
        divided,
        num_classes,
        source,
        protocol=schema.protocol,
        metric=own.metric,
        num_columns=own.num_columns,
        num_edge_columns=own.num_edge_columns,
        schema=schema,
        ids=tuple(own.ids),
    )
