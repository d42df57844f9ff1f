"""From a name of the catalog to a dataset with its splits."""

import os
from dataclasses import replace
from importlib import import_module
from typing import cast

import torch
from torch_geometric.data import Data

from hkconv.data.catalog import Entry, check_protocol, choose_task, find_entry
from hkconv.data.checks import check_num_splits
from hkconv.data.dataset import (
    CLEAN,
    OWN,
    PUBLISHED,
    GraphDataset,
    LinkDataset,
    LinkSplit,
    NodeDataset,
    Split,
    learn_scalings,
)
from hkconv.data.molecules import load_molecules
from hkconv.data.options import BOTH, DIRECTIONS, NONE
from hkconv.data.preparation import direct_edges, prepare_features
from hkconv.data.protocols import published_splits
from hkconv.data.sources import Molecules, read_source
from hkconv.data.split_files import check_split_file, read_splits
from hkconv.data.splits import link_splits, masks_to_splits, stratified_folds, stratified_splits
from hkconv.data.staging import data_root
from hkconv.errors import InputError

Dataset = NodeDataset | GraphDataset | LinkDataset

NUM_FOLDS = 10


def load(
    name: str,
    *,
    root: str | os.PathLike[str] | None = None,
    task: str | None = None,
    protocol: str = CLEAN,
    split_file: str | os.PathLike[str] | None = None,
    num_splits: int = 10,
    seed: int = 0,
    direction: str = BOTH,
    normalize_features: bool = False,
    log_features: bool = False,
    edge_attributes: bool = True,
    scale: str | None = None,
) -> Dataset:
    """Load a dataset of the catalog with splits that are disjoint, unless the published ones are asked for.

    Node datasets come with the ten Geom-GCN splits or, where there are none, stratified random ones; graph
    datasets with ten stratified folds and an inner validation split, molecules with OGB's split or random ones; link
    prediction with random divisions of the links into 85/5/10 %. Split i is the same however many are asked for.

    Args:
        name: a name that :func:`hkconv.data.describe` lists; capitals do not matter, nor ``_`` for ``-``.
        root: folder of the raw files; see :func:`hkconv.data.staging.data_root` for where else we look.
        task: ``"node"``, ``"graph"`` or ``"link"``; by default the usual one. Every node dataset can be used
            for links.
        protocol: ``"clean"`` or ``"published"``, see :mod:`hkconv.data.protocols`.
        split_file: a file with splits to use instead, see :func:`hkconv.data.split_files.read_split_parts`;
            they must be disjoint, and the dataset's protocol is then ``"own"``.
        num_splits: how many splits; at most ten for the Geom-GCN splits and for folds. OGB's split is one, however
            many are asked for.
        seed: seed of random splits, and of an embedded dataset itself.
        direction: whom a node hears from: ``"in"``, those that point to it, over the edges as they are stored;
            ``"out"``, those that it points to; or ``"both"``, see :func:`hkconv.data.preparation.direct_edges`.
            Links go both ways, and so do the edges of all datasets of graphs here, which stay as they are.
        normalize_features: divide every row of features by its sum; rows of zeros stay zero.
        log_features: replace every feature x by sign(x) log(1 + abs(x)), for features that run into the hundreds.
        edge_attributes: keep ``edge_attr`` where a dataset has it, as molecules have the features of their bonds.
        scale: ``"standard"`` or ``"log"``: each split has a scaling of the features, see
            :mod:`hkconv.data.scaling`; they are taken as they are, if left out.

    Returns:
        A :class:`NodeDataset`, :class:`GraphDataset` or :class:`LinkDataset`, by task.
    """
    entry = find_entry(name)
    task = choose_task(entry, task)
    check_protocol(protocol, entry.name, task)
    check_split_file(split_file, protocol, task)
    _check_direction(direction, task)
    # The usual splits are not looked at where others take their place, and there may be fewer of them than wanted.
    are_usual = task != "link" and protocol == CLEAN and split_file is None
    dataset = _load_usual(entry, root, num_splits if are_usual else 1, seed)
    for graph in dataset.graphs if isinstance(dataset, GraphDataset) else [dataset.graph]:
        if not isinstance(dataset, GraphDataset):
            direct_edges(graph, direction)
        graph.edge_attr = graph.edge_attr if edge_attributes else None
        graph.x = prepare_features(
            graph.x,
            entry.name,
            normalize_features=normalize_features,
            log_features=log_features,
            are_columns=isinstance(dataset, GraphDataset) and dataset.num_columns is not None,
        )
    if task == "link":
        # No dataset of graphs has this task.
        return _scaled(_as_links(cast(NodeDataset, dataset), num_splits, seed), scale)
    return _scaled(dataset if are_usual else _divided_otherwise(dataset, split_file, num_splits), scale)


def _check_direction(direction: str, task: str) -> None:
    if direction not in DIRECTIONS:
        raise InputError(f"direction must be {' or '.join(map(repr, DIRECTIONS))}, got {direction!r}")
    if task == "link" and direction != BOTH:
        raise InputError(
            f"direction must be {BOTH!r} for the link task, which uses every link both ways, got {direction!r}"
        )


def _load_usual(
    entry: Entry, root: str | os.PathLike[str] | None, num_splits: int, seed: int
) -> NodeDataset | GraphDataset:
    if isinstance(entry.origin, Molecules):
        return load_molecules(entry.origin, data_root(root), entry.name, num_splits, seed)
    if isinstance(entry.origin, str):
        module, _, name = entry.origin.partition(":")
        return getattr(import_module(f"hkconv.data.{module}"), name)(num_splits=num_splits, seed=seed)
    graphs = read_source(entry.origin, data_root(root), entry.name)
    if "graph" in entry.tasks:
        return _graph_dataset(entry, graphs, num_splits, seed)
    return _node_dataset(entry, graphs[0], num_splits, seed)


def _node_dataset(entry: Entry, data: Data, num_splits: int, seed: int) -> NodeDataset:
    owner = f"dataset {entry.name!r}"
    if entry.fractions is None:
        splits = masks_to_splits(data)
        check_num_splits(num_splits, owner, most=len(splits))
        splits = splits[:num_splits]
    else:
        check_num_splits(num_splits, owner)
        splits = stratified_splits(data.y, entry.fractions, num_splits, seed)
    return NodeDataset(entry.name, _plain(data), splits, entry.facts.classes, str(entry.origin))


def _graph_dataset(entry: Entry, graphs: list[Data], num_splits: int, seed: int) -> GraphDataset:
    check_num_splits(num_splits, f"dataset {entry.name!r}", most=NUM_FOLDS)
    labels = torch.cat([graph.y for graph in graphs])
    splits = stratified_folds(labels, NUM_FOLDS, seed=seed)[:num_splits]
    plain = [_plain(graph) for graph in graphs]
    return GraphDataset(entry.name, plain, splits, entry.facts.classes, str(entry.origin))


def _divided_otherwise(
    dataset: NodeDataset | GraphDataset, split_file: str | os.PathLike[str] | None, num_splits: int
) -> NodeDataset | GraphDataset:
    labels = dataset.labels
    if split_file is not None:
        return replace(dataset, splits=read_splits(split_file, len(labels), num_splits), protocol=OWN)
    check_num_splits(num_splits, f"dataset {dataset.name!r}")
    return replace(dataset, splits=published_splits(dataset.name, labels, num_splits), protocol=PUBLISHED)


def _as_links(dataset: NodeDataset, num_splits: int, seed: int) -> LinkDataset:
    graph = dataset.graph
    splits = link_splits(graph.edge_index, graph.num_nodes, num_splits=num_splits, seed=seed)
    return LinkDataset(dataset.name, graph, splits, dataset.source)


def _scaled(dataset: Dataset, scale: str | None) -> Dataset:
    if scale in (None, NONE):
        return dataset
    if isinstance(dataset, GraphDataset) and dataset.num_columns is not None:
        raise InputError(f"scale must be none for dataset {dataset.name!r}: its features are categories, one-hot")
    graphs = dataset.graphs if isinstance(dataset, GraphDataset) else [dataset.graph]
    found = learn_scalings(dataset.task, graphs, dataset.splits, scale, [True] * dataset.num_features)
    divided: list[Split | LinkSplit] = [*dataset.splits]
    splits = [replace(split, scaling=scaling) for split, scaling in zip(divided, found)]
    return replace(dataset, splits=splits)  # type: ignore[arg-type]  # they are of the kind of this dataset's splits


def _plain(data: Data) -> Data:
    """Features, edges and labels alone: splits are ours, and no file that is read here has attributes of edges."""
    return Data(x=data.x, edge_index=data.edge_index, y=data.y)
