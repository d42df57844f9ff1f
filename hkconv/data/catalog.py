"""The datasets by name: what they are, where they come from and how they are divided."""

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch
from torch_geometric.data import Data

from hkconv.data import sources
from hkconv.data.checks import check_num_splits
from hkconv.data.dataset import CLEAN, OWN, PUBLISHED, GraphDataset, LinkDataset, NodeDataset
from hkconv.data.molecules import Molecules, load_molecules, molecules
from hkconv.data.options import BOTH, DIRECTIONS
from hkconv.data.preparation import direct_edges, prepare_features
from hkconv.data.protocols import check_protocol, published_splits
from hkconv.data.sources import Source, read_source
from hkconv.data.split_files import check_split_file, read_splits
from hkconv.data.splits import link_splits, masks_to_splits, stratified_folds, stratified_splits
from hkconv.data.staging import data_root
from hkconv.data.trees import DISEASE_FRACTIONS, disease, hierarchy
from hkconv.errors import InputError

Dataset = NodeDataset | GraphDataset | LinkDataset
Origin = Source[list[Data]] | Molecules | Callable[..., NodeDataset]

NODE_TASKS = ("node", "link")
LINK_FIRST = ("link", "node")
GRAPH_TASKS = ("graph",)

# As HGCN divides its airports.
AIRPORT_FRACTIONS = (0.70, 0.15, 0.15)
NUM_FOLDS = 10


@dataclass(frozen=True)
class Facts:
    """Sizes of a dataset, totals over its graphs; an undirected edge and a self loop count one each.

    Those of embedded datasets are for seed 0; other seeds differ by a few nodes. Those of ``ogbg-molpcba`` come from
    the averages that OGB gives. A dataset with several yes-or-no questions has two classes, no and yes.
    """

    graphs: int
    nodes: int
    edges: int
    features: int
    classes: int


@dataclass(frozen=True)
class Entry:
    """A dataset of the catalog.

    Args:
        name: its name, lower case with hyphens.
        facts: its sizes.
        origin: the raw files, a file of molecules, or the generator of an embedded dataset.
        tasks: what it can be used for, the usual one first.
        fractions: of stratified random node splits; None where the data brings its own splits.
        one_way: whether some edges are stored in one direction only.
    """

    name: str
    facts: Facts
    origin: Origin
    tasks: tuple[str, ...] = NODE_TASKS
    fractions: tuple[float, float, float] | None = None
    one_way: bool = False


@dataclass(frozen=True)
class DatasetInfo:
    """One line of ``hkconv datasets``; sizes are those of :class:`Facts`.

    ``location`` is ``"embedded"``, the folder the raw files lie in, ``"download to FOLDER"`` or
    ``"absent: FOLDER"``.
    """

    name: str
    task: str
    graphs: int
    nodes: int
    edges: int
    features: int
    classes: int
    location: str


_ENTRIES = (
    Entry("tree", Facts(1, 971, 970, 16, 8), hierarchy),
    Entry("disease", Facts(1, 1093, 1092, 11, 2), disease),
    Entry("cornell", Facts(1, 183, 280, 1703, 5), sources.webkb("cornell"), one_way=True),
    Entry("cornell-legacy", Facts(1, 183, 280, 1703, 5), sources.webkb("cornell", "webkb_legacy", False), one_way=True),
    Entry("texas", Facts(1, 183, 295, 1703, 5), sources.webkb("texas"), one_way=True),
    Entry("wisconsin", Facts(1, 251, 466, 1703, 5), sources.webkb("wisconsin"), one_way=True),
    Entry("chameleon", Facts(1, 2277, 31421, 2325, 5), sources.wikipedia("chameleon"), one_way=True),
    Entry("squirrel", Facts(1, 5201, 198493, 2089, 5), sources.wikipedia("squirrel"), one_way=True),
    Entry("chameleon-filtered", Facts(1, 890, 8854, 2325, 5), sources.filtered_wikipedia("chameleon")),
    Entry("squirrel-filtered", Facts(1, 2223, 46998, 2089, 5), sources.filtered_wikipedia("squirrel")),
    Entry("actor", Facts(1, 7600, 26752, 932, 5), sources.actor(), one_way=True),
    Entry("cora", Facts(1, 2708, 5278, 1433, 7), sources.planetoid("Cora")),
    Entry("citeseer", Facts(1, 3327, 4552, 3703, 6), sources.planetoid("CiteSeer")),
    Entry("pubmed", Facts(1, 19717, 44324, 500, 3), sources.planetoid("PubMed")),
    Entry("airport", Facts(1, 3188, 18631, 4, 4), sources.airport(), fractions=AIRPORT_FRACTIONS),
    Entry(
        "disease-nc",
        Facts(1, 1044, 1043, 1000, 2),
        sources.hgcn_disease("disease_nc"),
        fractions=DISEASE_FRACTIONS,
    ),
    Entry(
        "disease-lp",
        Facts(1, 2665, 2664, 11, 2),
        sources.hgcn_disease("disease_lp"),
        LINK_FIRST,
        DISEASE_FRACTIONS,
    ),
    Entry(
        "ptc",
        Facts(344, 8792, 8931, 19, 2),
        sources.tu("PTC", "node_labels", can_download=False),
        GRAPH_TASKS,
    ),
    Entry(
        "enzymes",
        Facts(600, 19580, 37282, 21, 6),
        sources.tu("ENZYMES", "node_labels", "node_attributes"),
        GRAPH_TASKS,
    ),
    Entry(
        "enzymes-labels",
        Facts(600, 19580, 37282, 3, 6),
        sources.tu("ENZYMES", "node_labels"),
        GRAPH_TASKS,
    ),
    Entry(
        "proteins",
        Facts(1113, 43471, 81044, 4, 2),
        sources.tu("PROTEINS", "node_labels", "node_attributes"),
        GRAPH_TASKS,
    ),
    Entry(
        "proteins-labels",
        Facts(1113, 43471, 81044, 3, 2),
        sources.tu("PROTEINS", "node_labels"),
        GRAPH_TASKS,
    ),
    Entry("imdb-binary", Facts(1000, 19773, 96531, 136, 2), sources.tu("IMDB-BINARY"), GRAPH_TASKS),
    Entry("imdb-multi", Facts(1500, 19502, 98903, 89, 3), sources.tu("IMDB-MULTI"), GRAPH_TASKS),
    Entry(
        "ogbg-molhiv",
        Facts(41127, 1049163, 1129688, 174, 2),
        molecules("hiv.csv.gz", "HIV_active", metric="ROC-AUC", split_folder="ogbg_molhiv_split"),
        GRAPH_TASKS,
    ),
    Entry(
        "ogbg-molpcba",
        Facts(437929, 11386154, 12305805, 174, 2),
        molecules("pcba.csv.gz", "PCBA-", metric="AP", split_folder="ogbg_molpcba_split"),
        GRAPH_TASKS,
    ),
    Entry("muv", Facts(93087, 2255846, 2446126, 174, 2), molecules("muv.csv.gz", "MUV-", metric="AP"), GRAPH_TASKS),
    Entry(
        "tox21",
        Facts(7831, 145459, 151095, 174, 2),
        molecules("tox21.csv.gz", "NR-", "SR-", metric="ROC-AUC"),
        GRAPH_TASKS,
    ),
)

CATALOG = {entry.name: entry for entry in _ENTRIES}


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
) -> Dataset:
    """Load a dataset of the catalog with splits that are disjoint, unless the published ones are asked for.

    Node datasets come with the ten Geom-GCN splits or, where there are none, stratified random ones; graph
    datasets with ten stratified folds and an inner validation split, molecules with OGB's split or random ones; link
    prediction with random divisions of the links into 85/5/10 %. Split i is the same however many are asked for.

    Args:
        name: a name that :func:`describe` lists; capitals do not matter, nor ``_`` for ``-``.
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

    Returns:
        A :class:`NodeDataset`, :class:`GraphDataset` or :class:`LinkDataset`, by task.
    """
    entry = find_entry(name)
    task = _choose_task(entry, task)
    check_protocol(protocol, entry.name, task)
    check_split_file(split_file, protocol, task)
    _check_direction(direction, task)
    # The usual splits are not looked at where others take their place, and there may be fewer of them than wanted.
    are_usual = task != "link" and protocol == CLEAN and split_file is None
    dataset = _load_usual(entry, root, num_splits if are_usual else 1, seed)
    for graph in dataset.graphs if isinstance(dataset, GraphDataset) else [dataset.graph]:
        if not isinstance(dataset, GraphDataset):
            direct_edges(graph, direction)
        graph.x = prepare_features(
            graph.x,
            entry.name,
            normalize_features=normalize_features,
            log_features=log_features,
            are_columns=isinstance(dataset, GraphDataset) and dataset.num_columns is not None,
        )
    if task == "link":
        # No dataset of graphs has this task.
        return _as_links(cast(NodeDataset, dataset), num_splits, seed)
    return dataset if are_usual else _divided_otherwise(dataset, split_file, num_splits)


def describe(root: str | os.PathLike[str] | None = None) -> list[DatasetInfo]:
    """Datasets that :func:`load` knows, with sizes and the place each would load from. Reads no dataset.

    Args:
        root: folder of the raw files, as for :func:`load`.

    Returns:
        One entry a dataset, in the order of the catalog.
    """
    folder = data_root(root)
    return [
        DatasetInfo(name=entry.name, task=entry.tasks[0], **vars(entry.facts), location=_location(entry.origin, folder))
        for entry in CATALOG.values()
    ]


def find_entry(name: str) -> Entry:
    """Return the entry of a dataset; an :class:`InputError` names those that are spelled alike."""
    key = name.lower().replace("_", "-")
    if key in CATALOG:
        return CATALOG[key]
    nearest = difflib.get_close_matches(key, CATALOG, n=3)
    hint = f"did you mean {' or '.join(nearest)}? " if nearest else ""
    raise InputError(f"unknown dataset {name!r}: {hint}`hkconv datasets` lists them")


def _choose_task(entry: Entry, task: str | None) -> str:
    if task is None:
        return entry.tasks[0]
    if task not in entry.tasks:
        accepted = " or ".join(repr(possible) for possible in entry.tasks)
        raise InputError(f"task of dataset {entry.name!r} must be {accepted}, got {task!r}")
    return task


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
    if not isinstance(entry.origin, Source):
        return entry.origin(num_splits=num_splits, seed=seed)
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


def _plain(data: Data) -> Data:
    """Features, edges and labels alone: splits are ours, and no model here reads edge attributes."""
    return Data(x=data.x, edge_index=data.edge_index, y=data.y)


def _location(origin: Origin, root: Path) -> str:
    source = origin.raw if isinstance(origin, Molecules) else origin
    if not isinstance(source, Source):
        return "embedded"
    folder = root / source.folder
    if not source.missing(root):
        return str(folder)
    return f"download to {folder}" if source.can_download else f"absent: {folder}"
