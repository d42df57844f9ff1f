"""Datasets as the rest of the library sees them: graphs, labels and splits that were checked on the way in.

A split that leaks cannot be built: the dataclasses refuse overlapping parts, so that no result rests on one. The one
exception is what the paper's code does, which has a class of its own and is accepted under its own protocol alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Data

from hkconv.data.checks import (
    check_answers,
    check_columns,
    check_disjoint,
    check_edge_attributes,
    check_edges,
    check_features,
    check_known,
    check_labels,
    check_numbers,
    check_pairs,
    check_parts,
    check_range,
    check_weights,
    overlaps,
)
from hkconv.data.options import ACCURACY, CLEAN, METRICS, PUBLISHED, QUESTION_METRICS, R2
from hkconv.data.own.schema import Schema
from hkconv.data.scaling import Scaling, learn_scaling
from hkconv.errors import InputError

# How a dataset is divided: disjoint parts, as the paper's code does it, or by a file of the user's.
OWN = "own"
PROTOCOLS = (CLEAN, PUBLISHED, OWN)

# In the text of a dataset.
CLASSES_SHOWN = 10


def pair_keys(pairs: Tensor, num_nodes: int) -> Tensor:
    """One integer for each pair, the same for ``(u, v)`` and ``(v, u)``, so that sets of links can be compared.

    Args:
        pairs: (2, P) node indices below ``num_nodes``.
        num_nodes: number of nodes of the graph.

    Returns:
        (P,) int64 keys ``min * num_nodes + max``.
    """
    first, second = pairs.long()
    return torch.minimum(first, second) * num_nodes + torch.maximum(first, second)


def pairs_of_keys(keys: Tensor, num_nodes: int) -> Tensor:
    """The (2, P) pairs, smaller index first, that :func:`pair_keys` turned into ``keys``."""
    return torch.stack([keys.div(num_nodes, rounding_mode="floor"), keys % num_nodes])


def link_keys(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Sorted keys of the links of a graph: each undirected edge once, self loops left out.

    A self loop is no link between two nodes, so there is nothing to predict about it.
    """
    links = edge_index[:, edge_index[0] != edge_index[1]]
    return pair_keys(links, num_nodes).unique()


@dataclass(frozen=True, eq=False)
class Split:
    """Disjoint, non-empty int64 indices of the nodes or graphs to train on, to choose with and to test on.

    ``test`` is None where it is hidden, see :func:`hide_test`. ``scaling`` is what the features go through that a model
    sees, learned from the training rows; None where they are seen as they are. ``target`` is the mean and the deviation
    of the numbers to train on, where numbers are to be predicted; None has them computed.
    """

    train: Tensor
    val: Tensor
    test: Tensor | None
    scaling: Scaling | None = field(default=None, kw_only=True)
    target: tuple[float, float] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_disjoint(self.parts, "a split")

    @property
    def parts(self) -> dict[str, Tensor]:
        """The index tensors by name; a hidden one is left out."""
        return _present({"train": self.train, "val": self.val, "test": self.test})

    @property
    def largest_index(self) -> int:
        """The largest index mentioned."""
        return max(int(members.max()) for members in self.parts.values())

    @property
    def overlap(self) -> dict[str, float]:
        """The shares ``val in train``, ``test in train`` and ``test in val`` of the different members of a part."""
        return {found.name: found.share for found in overlaps(self.parts)}

    def without_test(self) -> "Split":
        """The same split with its test part hidden."""
        return replace(self, test=None)


class OverlappingSplit(Split):
    """Parts that may share and repeat members, for the protocol ``"published"`` and nothing else."""

    def __post_init__(self) -> None:
        check_parts(self.parts, "a split")


@dataclass(frozen=True, eq=False)
class LinkSplit:
    """Links of one graph divided for link prediction, with as many non-links to compare them with.

    All five are (2, P) int64 pairs. As *undirected* pairs they have no repeats and nothing in common.
    Negatives to train on are left to the training loop, which draws new ones every epoch. ``test`` and its negatives
    are None where they are hidden, see :func:`hide_test`. ``scaling`` is as in :class:`Split`, of all nodes.
    """

    train: Tensor
    val: Tensor
    test: Tensor | None
    val_negatives: Tensor
    test_negatives: Tensor | None
    scaling: Scaling | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name, pairs in self.parts.items():
            check_pairs(pairs, name, "a link split")
        num_nodes = self.largest_index + 1
        keys = {name: pair_keys(pairs, num_nodes) for name, pairs in self.parts.items()}
        check_disjoint(keys, "a link split")

    @property
    def parts(self) -> dict[str, Tensor]:
        """The pair tensors by name; hidden ones are left out."""
        return _present(
            {
                "train": self.train,
                "val": self.val,
                "test": self.test,
                "val_negatives": self.val_negatives,
                "test_negatives": self.test_negatives,
            }
        )

    @property
    def largest_index(self) -> int:
        """The largest node index mentioned."""
        return max((int(pairs.max()) for pairs in self.parts.values() if pairs.numel()), default=0)

    @property
    def message_edges(self) -> Tensor:
        """(2, 2 P) edges to pass messages over: the training links in both directions and nothing else."""
        return torch.cat([self.train, self.train.flip(0)], dim=1)

    def without_test(self) -> "LinkSplit":
        """The same split with its test part and the negatives of it hidden."""
        return replace(self, test=None, test_negatives=None)


@dataclass(frozen=True, eq=False, repr=False)
class NodeDataset:
    """One graph whose nodes are to be classified, or asked for answers or a number as graphs of :class:`GraphDataset`.

    Args:
        name: name in the catalog.
        graph: ``x`` (N, F) float32, ``edge_index`` (2, E) int64, ``y`` (N,) int64, -1 where a class is not known, or
            (N, T) float32, NaN where an answer is not known, and where edges have weights ``edge_weight`` (E,) float32,
            where they have attributes ``edge_attr`` (E, D) float32.
        splits: node indices; a split need not cover every node.
        num_classes: number of classes, larger than every label; 2 for answers and numbers.
        source: where the data came from.
        protocol: how it is divided: ``"clean"``, ``"published"`` or ``"own"``, see :mod:`hkconv.data.protocols`.
        schema: how own data became numbers; None for a dataset of the catalog.
        ids: what own data call their nodes; None for a dataset of the catalog.
        metric: see :class:`GraphDataset`.
    """

    name: str
    graph: Data
    splits: list[Split]
    num_classes: int
    source: str
    protocol: str = CLEAN
    schema: Schema | None = None
    ids: tuple[str, ...] | None = None
    metric: str = ACCURACY
    task: ClassVar[str] = "node"

    def __post_init__(self) -> None:
        owner = f"dataset {self.name!r}"
        check_features(self.graph.x, owner, may_miss=_fill(self.splits))
        num_nodes = self.graph.x.size(0)
        check_edges(self.graph.edge_index, num_nodes, owner)
        check_weights(self.graph.edge_weight, self.graph.edge_index.size(1), owner)
        check_edge_attributes(self.graph.edge_attr, self.graph.edge_index.size(1), None, owner)
        _check_labels(self, num_nodes, owner)
        _check_splits(self.splits, self.protocol, num_nodes, owner)
        _check_known(self, owner)

    @property
    def labels(self) -> Tensor:
        """(N,) classes of the nodes, or their (N, T) answers."""
        return self.graph.y

    @property
    def num_questions(self) -> int:
        """Number of yes-or-no questions T; 1 where the only question is which class or number."""
        return 1 if self.metric == ACCURACY else self.graph.y.size(1)

    def __repr__(self) -> str:
        return _described(self)

    @property
    def num_features(self) -> int:
        """Number of feature columns."""
        return self.graph.x.size(1)

    @property
    def edge_dim(self) -> int | None:
        """Number of attributes of an edge; None where edges have none."""
        return _width(self.graph.edge_attr)


@dataclass(frozen=True, eq=False, repr=False)
class GraphDataset:
    """Many graphs, each to be classified as a whole.

    Either a graph has one of several classes, or it answers several yes-or-no questions at once, as a molecule that
    was tested for several effects. Then ``y`` is (1, T) float32 with 1, 0 or, where nobody knows, NaN. Or it has a
    number, and ``y`` is (1, 1) float32.

    Args:
        name: name in the catalog.
        graphs: each with ``x`` (N, F) float32, ``edge_index`` (2, E) int64 and ``y`` (1,) int64, -1 where a class is
            not known; with ``edge_weight`` (E,) float32 all or none, and with ``edge_attr`` (E, D) float32 all or none.
        splits: indices into ``graphs``.
        num_classes: number of classes, larger than every label; 2 for questions, no and yes, and for numbers.
        source: where the data came from.
        protocol: how it is divided: ``"clean"``, ``"published"`` or ``"own"``, see :mod:`hkconv.data.protocols`.
        metric: ``"accuracy"`` for classes; ``"ROC-AUC"`` or ``"AP"`` (average precision) for questions; ``"R2"``, the
            share of the variance that is explained, for numbers.
        num_columns: where ``x`` lists, (N, C) uint8, the columns of each node's ones, how many columns there are.
        num_edge_columns: the same for ``edge_attr`` (E, C) and edges.
        schema: how own data became numbers; None for a dataset of the catalog.
        ids: what own data call their graphs; None for a dataset of the catalog.
    """

    name: str
    graphs: list[Data]
    splits: list[Split]
    num_classes: int
    source: str
    protocol: str = CLEAN
    metric: str = ACCURACY
    num_columns: int | None = None
    num_edge_columns: int | None = None
    schema: Schema | None = None
    ids: tuple[str, ...] | None = None
    task: ClassVar[str] = "graph"

    def __post_init__(self) -> None:
        owner = f"dataset {self.name!r}"
        if not self.graphs:
            raise InputError(f"{owner} has no graphs: at least one is needed")
        for index, graph in enumerate(self.graphs):
            self._check_graph(graph, f"graph {index} of {owner}")
        _check_labels(self, len(self.graphs), owner)
        _check_splits(self.splits, self.protocol, len(self.graphs), owner)
        _check_known(self, owner)

    def _check_graph(self, graph: Data, owner: str) -> None:
        if self.num_columns is None:
            check_features(graph.x, owner, may_miss=_fill(self.splits))
        else:
            check_columns(graph.x, self.num_columns, owner)
        check_edges(graph.edge_index, graph.x.size(0), owner)
        check_weights(graph.edge_weight, graph.edge_index.size(1), owner)
        first = self.graphs[0]
        if (graph.edge_weight is None) != (first.edge_weight is None):
            raise InputError(f"{owner} and graph 0 must both have an edge_weight, or neither")
        check_edge_attributes(graph.edge_attr, graph.edge_index.size(1), self.num_edge_columns, owner)
        if _width(graph.edge_attr) != _width(first.edge_attr):
            raise InputError(f"{owner} and graph 0 must have as many columns of edge_attr, or both none")
        if graph.x.size(1) != first.x.size(1):
            raise InputError(f"{owner} has {graph.x.size(1)} features, but graph 0 has {first.x.size(1)}")
        if self.metric == ACCURACY and (not isinstance(graph.y, Tensor) or graph.y.numel() != 1):
            raise InputError(f"{owner} must have one label, y of shape (1,)")
        if self.metric != ACCURACY and (not isinstance(graph.y, Tensor) or graph.y.shape != (1, first.y.size(-1))):
            raise InputError(f"{owner} must answer every question of graph 0, y of shape (1, {first.y.size(-1)})")

    @property
    def labels(self) -> Tensor:
        """(G,) classes of the graphs or their (G, T) answers."""
        return torch.cat([graph.y.reshape(1) if self.metric == ACCURACY else graph.y for graph in self.graphs])

    @property
    def num_questions(self) -> int:
        """Number of yes-or-no questions T; 1 where the only question is which class or number."""
        return 1 if self.metric == ACCURACY else self.graphs[0].y.size(1)

    def __repr__(self) -> str:
        return _described(self)

    @property
    def num_features(self) -> int:
        """Number of feature columns that a model sees."""
        return self.graphs[0].x.size(1) if self.num_columns is None else self.num_columns

    @property
    def edge_dim(self) -> int | None:
        """Number of attributes of an edge that a model sees; None where edges have none."""
        width = _width(self.graphs[0].edge_attr)
        return width if width is None or self.num_edge_columns is None else self.num_edge_columns


@dataclass(frozen=True, eq=False, repr=False)
class LinkDataset:
    """One graph whose hidden links are to be told from pairs that are not linked.

    ``graph.edge_index`` holds every link, those of validation and test too: a model must pass messages over
    ``split.message_edges`` and never over ``graph.edge_index``.

    Args:
        name: name in the catalog.
        graph: ``x`` (N, F) float32 and ``edge_index`` (2, E) int64; labels are not looked at.
        splits: each divides all links of the graph.
        source: where the data came from.
        protocol: how it is divided: ``"clean"``, ``"published"`` or ``"own"``, see :mod:`hkconv.data.protocols`.
        schema: how own data became numbers; None for a dataset of the catalog.
        ids: what own data call their nodes; None for a dataset of the catalog.
    """

    name: str
    graph: Data
    splits: list[LinkSplit]
    source: str
    protocol: str = CLEAN
    schema: Schema | None = None
    ids: tuple[str, ...] | None = None
    task: ClassVar[str] = "link"

    def __post_init__(self) -> None:
        owner = f"dataset {self.name!r}"
        check_features(self.graph.x, owner, may_miss=_fill(self.splits))
        num_nodes = self.graph.x.size(0)
        check_edges(self.graph.edge_index, num_nodes, owner)
        _check_splits(self.splits, self.protocol, num_nodes, owner)
        links = link_keys(self.graph.edge_index, num_nodes)
        for split in self.splits:
            negatives = [pairs for name, pairs in split.parts.items() if name.endswith("_negatives")]
            false_negatives = int(torch.isin(pair_keys(torch.cat(negatives, dim=1), num_nodes), links).sum())
            if false_negatives:
                raise InputError(f"{false_negatives} negatives in a split of {owner} are links of its graph")

    def __repr__(self) -> str:
        return _described(self)

    @property
    def num_features(self) -> int:
        """Number of feature columns."""
        return self.graph.x.size(1)


def _described(dataset: NodeDataset | GraphDataset | LinkDataset) -> str:
    """A dataset in five lines."""
    graphs = dataset.graphs if isinstance(dataset, GraphDataset) else [dataset.graph]
    edges = sum(graph.edge_index.size(1) for graph in graphs)
    nodes = sum(graph.x.size(0) for graph in graphs)
    many = f"{len(graphs):,} graphs, " if isinstance(dataset, GraphDataset) else ""
    first = ", ".join(f"{members.size(-1):,} {name}" for name, members in dataset.splits[0].parts.items())
    return (
        f"{type(dataset).__name__} {dataset.name}: {dataset.task} task, protocol {dataset.protocol}\n"
        f"  {many}{nodes:,} nodes, {edges:,} directed edges, {dataset.num_features:,} features\n"
        f"  {_described_labels(dataset)}\n"
        f"  {len(dataset.splits)} split{'s' * (len(dataset.splits) > 1)}, the first of {first}\n"
        f"  from {dataset.source}"
    )


def _described_labels(dataset: NodeDataset | GraphDataset | LinkDataset) -> str:
    if isinstance(dataset, LinkDataset):
        return f"{link_keys(dataset.graph.edge_index, dataset.graph.num_nodes).numel():,} links"
    labels = dataset.labels
    if dataset.metric == R2:
        return f"{int((~labels.isnan()).sum()):,} numbers to predict, scored by {R2}"
    if dataset.metric != ACCURACY:
        return f"{labels.size(1)} yes-or-no questions, scored by {dataset.metric}"
    names = range(dataset.num_classes) if dataset.schema is None else dataset.schema.classes
    counts = labels[labels >= 0].bincount(minlength=dataset.num_classes).tolist()
    shown = ", ".join(f"{name} {count:,}" for name, count in list(zip(names, counts))[:CLASSES_SHOWN])
    return f"{dataset.num_classes} classes: {shown}{', ...' if dataset.num_classes > CLASSES_SHOWN else ''}"


AnyDataset = TypeVar("AnyDataset", bound=NodeDataset | GraphDataset | LinkDataset)


def hide_test(dataset: AnyDataset) -> AnyDataset:
    """The dataset for whoever makes choices: no split has a test part, so that nothing can be measured on one.

    Args:
        dataset: any dataset.

    Returns:
        The same graphs; nodes to be tested stay in a graph with their features, as they do in training.
    """
    hidden = [split.without_test() for split in dataset.splits]
    return replace(dataset, splits=hidden)  # type: ignore[arg-type]  # they are of the kind of this dataset's splits


def learn_scalings(
    task: str, graphs: list[Data], splits: Sequence[Split | LinkSplit], scale: str, is_number: Sequence[bool]
) -> tuple[Scaling, ...]:
    """The scaling of each split: learned from its training nodes or the nodes of its training graphs.

    All nodes of a link task are there in training, whatever links are hidden.

    Args:
        task: ``"node"``, ``"graph"`` or ``"link"``.
        graphs: one, or those of a graph task.
        splits: of them.
        scale, is_number: see :func:`hkconv.data.scaling.learn_scaling`.
    """

    def rows(split: Split | LinkSplit) -> Tensor:
        if task == "graph":
            return torch.cat([graphs[number].x for number in split.train.tolist()])
        return graphs[0].x[split.train] if task == "node" else graphs[0].x

    return tuple(learn_scaling(rows(split), scale, is_number) for split in splits)


def _fill(splits: Sequence[Split | LinkSplit]) -> bool:
    """Tell whether every split fills what is missing."""
    return all(split.scaling is not None for split in splits)


def _width(rows: Tensor | None) -> int | None:
    return None if rows is None else rows.size(1)


def _present(parts: dict[str, Tensor | None]) -> dict[str, Tensor]:
    return {name: members for name, members in parts.items() if members is not None}


def _check_labels(dataset: NodeDataset | GraphDataset, count: int, owner: str) -> None:
    """The labels are what the metric is for."""
    if dataset.metric == ACCURACY:
        check_labels(dataset.labels, count, dataset.num_classes, owner)
    elif dataset.metric in QUESTION_METRICS:
        check_answers(dataset.labels, count, owner)
    elif dataset.metric == R2:
        check_numbers(dataset.labels, count, owner)
    else:
        raise InputError(f"metric of {owner} must be one of {', '.join(METRICS)}, got {dataset.metric!r}")


def _check_known(dataset: NodeDataset | GraphDataset, owner: str) -> None:
    if dataset.metric == ACCURACY:
        for split in dataset.splits:
            check_known(dataset.labels, split.parts, owner)


def _check_splits(splits: list[Split] | list[LinkSplit], protocol: str, count: int, owner: str) -> None:
    if protocol not in PROTOCOLS:
        raise InputError(f"protocol of {owner} must be {' or '.join(map(repr, PROTOCOLS))}, got {protocol!r}")
    if not splits:
        raise InputError(f"{owner} has no splits: at least one is needed")
    if protocol != PUBLISHED and any(isinstance(split, OverlappingSplit) for split in splits):
        raise InputError(f"{owner} has splits that may overlap: they are for protocol {PUBLISHED!r}, not {protocol!r}")
    check_range(max(split.largest_index for split in splits), count, owner)
