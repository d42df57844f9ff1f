"""Audit of a dataset and its splits before any model is trained: leaks first, then the graph itself."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.utils import coalesce

from hkconv.data.catalog import find_entry
from hkconv.data.checks import UNKNOWN, Overlap, overlaps
from hkconv.data.dataset import CLEAN, OWN, GraphDataset, LinkDataset, NodeDataset, link_keys, pairs_of_keys
from hkconv.data.isomorphism import same_graphs
from hkconv.data.loading import load
from hkconv.data.options import BOTH, IN, OUT, R2, DataOptions
from hkconv.data.own.loading import check_own, is_own, load_own
from hkconv.data.split_files import check_split_file, read_split_parts
from hkconv.data.twins import label_agreement, num_with_twin, same_neighbors, same_rows, same_tuples
from hkconv.errors import InputError

# Leaves of one hub have the same neighbours in any graph: a single shared neighbour is no sign of a copy.
NEIGHBORS_OF_A_COPY = 2
# Twins count as a leak if there are more of them than chance makes, and if they share the label as copies do.
# Measured with clean splits: raw Chameleon and Squirrel have 44 to 50 and 34 to 40 % such test nodes, which agree in
# over 99 % of the pairs; no other node dataset has more than 9 % in any split. Of the test graphs of IMDB-BINARY and
# IMDB-MULTI 52 and 75 % have a twin, but twins agree in 67 and 36 % of the pairs, little more than chance: these are
# small graphs that happen to be the same.
TWINS_BY_CHANCE = 0.10
AGREEMENT_OF_COPIES = 0.95
# To a question; what was not measured is neither.
ANSWERS = ("no", "yes")


@dataclass(frozen=True)
class Twins:
    """One meaning of "alike", for all members of a dataset.

    Args:
        name: what twins have in common, apart from the label.
        number: (N,) int64, equal for members that are alike, below zero for members that are like nobody.
        agreement: the share of pairs of alike members with the same label; None without such a pair.
        can_leak: whether twins of this kind are judged; the others are for information.
    """

    name: str
    number: Tensor
    agreement: float | None
    can_leak: bool

    @classmethod
    def of(cls, name: str, number: Tensor, y: Tensor, can_leak: bool = False) -> "Twins":
        """Members of equal ``number``, with their agreement on the labels ``y``, as far as these are known."""
        number = torch.where(y == UNKNOWN, -1, number)
        return cls(name, number, label_agreement(y, number), can_leak)


@dataclass(frozen=True)
class SplitAudit:
    """One split, every member counted once.

    Args:
        overlaps: val in train, test in train, test in val.
        repeats: entries of a part beyond the first of a member, all parts together.
        twins: for each kind of twins, the test members with a training member that is alike and has the same label.
        sizes: for each part, its members.
        class_counts: for each part, the members of each class.
    """

    overlaps: list[Overlap]
    repeats: int
    twins: dict[str, int]
    sizes: dict[str, int]
    class_counts: dict[str, list[int]]


@dataclass(frozen=True)
class GraphFacts:
    """Properties of the graphs of a dataset, all together; a neighbor is another node.

    Args:
        nodes: number of nodes.
        links: pairs of different nodes with an edge in either direction.
        one_way_links: those with an edge in one direction only; zero for an undirected graph.
        self_loops: edges from a node to itself.
        without_neighbors: by direction, the nodes that nobody points to (``"in"``), that point to nobody (``"out"``),
            and both at once (``"both"``).
        features: number of feature columns.
        constant_features: those with the same value everywhere.
        homophily: edge homophily, the share of links whose nodes have the same label, of those with two labels; None
            for graph labels and without such links.
        adjusted_homophily: the same beyond what the sizes of the classes bring about, see :func:`homophily_of`.
    """

    nodes: int
    links: int
    one_way_links: int
    self_loops: int
    without_neighbors: dict[str, int]
    features: int
    constant_features: int
    homophily: float | None
    adjusted_homophily: float | None


@dataclass(frozen=True)
class Audit:
    """Everything found about a dataset and its splits.

    Args:
        name, task, protocol: of the dataset.
        classes: what the classes are called; of questions, every answer to each of them.
        class_counts: the members of each class.
        splits, twins, graph: what was found.
    """

    name: str
    task: str
    protocol: str
    classes: list[str]
    class_counts: list[int]
    splits: list[SplitAudit]
    twins: list[Twins]
    graph: GraphFacts

    @property
    def leaks(self) -> list[str]:
        """Leaks that make test scores untrustworthy, one sentence each; empty for a sound split."""
        return [*self._overlap_leaks(), *self._twin_leaks()]

    def _overlap_leaks(self) -> list[str]:
        by_pair = zip(*(split.overlaps for split in self.splits))
        return [
            self._sentence(
                [(entry.shared, entry.members) for entry in found],
                f"{found[0].part} {self.task}s are {found[0].other} {self.task}s",
            )
            for found in by_pair
            if any(entry.shared for entry in found)
        ]

    def _twin_leaks(self) -> list[str]:
        leaks = []
        for kind in self.twins:
            counts = [(split.twins[kind.name], split.sizes["test"]) for split in self.splits]
            are_copies = kind.can_leak and (kind.agreement or 0) >= AGREEMENT_OF_COPIES
            if are_copies and max(count / total for count, total in counts) > TWINS_BY_CHANCE:
                what = f"test {self.task}s have a {self.task} with the same {kind.name} and label in train"
                leaks.append(self._sentence(counts, what))
        return leaks

    @staticmethod
    def _sentence(counts: list[tuple[int, int]], what: str) -> str:
        """For how many members something holds, given the count and the total of each split."""
        shares = sorted(count / total for count, total in counts)
        span = _percent(shares[0]) if shares[0] == shares[-1] else f"{_percent(shares[0])}-{_percent(shares[-1])}"
        first = f"split 0: {counts[0][0]} of {counts[0][1]}, {_percent(counts[0][0] / counts[0][1])} %"
        return f"{span} % of the unique {what} ({first})"


def audit_dataset(
    name: str,
    *,
    root: str | os.PathLike[str] | None = None,
    protocol: str = CLEAN,
    split_file: str | os.PathLike[str] | None = None,
) -> Audit:
    """Audit a dataset of the catalog or own data, with its edges as it defines them.

    Args:
        name, root, protocol: as for :func:`hkconv.data.load`, or a path as ``name``. Datasets for links are audited for
            their node task.
        split_file: a file with splits to audit instead; here they may overlap.

    Returns:
        What was found.
    """
    dataset = _load(name, root, protocol)
    check_split_file(split_file, protocol, dataset.task)
    if split_file is None:
        return audit_splits(dataset, [split.parts for split in dataset.splits], dataset.protocol)
    return audit_splits(dataset, read_split_parts(split_file, len(dataset.labels)), OWN)


def _load(name: str, root: str | os.PathLike[str] | None, protocol: str) -> NodeDataset | GraphDataset:
    if is_own(name):
        check_own(name, root, protocol)
        usual = DataOptions(direction=IN)
        dataset = load_own(name, num_splits=usual.num_splits, preparation=usual)
        if isinstance(dataset, LinkDataset):
            raise InputError(f"own data {name} have no labels: there are no splits of nodes or graphs to audit")
        return dataset
    tasks = find_entry(name).tasks
    task = "node" if "node" in tasks else tasks[0]
    return cast(NodeDataset | GraphDataset, load(name, root=root, protocol=protocol, direction=IN, task=task))


def audit_splits(dataset: NodeDataset | GraphDataset, splits: Sequence[Mapping[str, Tensor]], protocol: str) -> Audit:
    """Audit splits of a dataset, which may overlap.

    Args:
        dataset: graphs and labels; its own splits are not looked at.
        splits: for each split its train, val and test indices by name.
        protocol: what the splits are called.

    Returns:
        What was found.
    """
    y, (classes, belongs) = _label_numbers(dataset.labels), _classes(dataset)
    twins = _graph_twins(dataset, y) if isinstance(dataset, GraphDataset) else _node_twins(dataset, y)
    # Twins share their label, for others give nothing away.
    labelled = {kind.name: _with_labels(kind.number, y) for kind in twins}
    return Audit(
        name=dataset.name,
        task=dataset.task,
        protocol=protocol,
        classes=classes,
        class_counts=belongs.sum(0).tolist(),
        splits=[_audit_split(parts, labelled, belongs) for parts in splits],
        twins=twins,
        graph=graph_facts(dataset),
    )


def _label_numbers(labels: Tensor) -> Tensor:
    """A number for each label, equal for equal ones; of questions all answers together are the label."""
    return labels if labels.dim() == 1 else same_rows(labels)


def _classes(dataset: NodeDataset | GraphDataset) -> tuple[list[str], Tensor]:
    """The names of the classes, and which members belong to each, ``(N, C)``."""
    if dataset.labels.dim() == 1:
        every = range(dataset.num_classes)
        named = [str(label) for label in every] if dataset.schema is None else [*dataset.schema.classes]
        return named, dataset.labels.unsqueeze(1) == torch.tensor(every)
    if dataset.metric == R2:
        return ["with a number"], ~dataset.labels.isnan()
    asked = (
        [str(number) for number in range(dataset.num_questions)] if dataset.schema is None else dataset.schema.classes
    )
    names = [f"{question} {answer}" if len(asked) > 1 else answer for question in asked for answer in ANSWERS]
    return names, (dataset.labels.unsqueeze(2) == torch.arange(len(ANSWERS))).flatten(1)


def _audit_split(parts: Mapping[str, Tensor], twins: dict[str, Tensor], belongs: Tensor) -> SplitAudit:
    unique = {name: members.unique() for name, members in parts.items()}
    return SplitAudit(
        overlaps=overlaps(parts),
        repeats=sum(len(parts[name]) - len(members) for name, members in unique.items()),
        twins={name: num_with_twin(parts["test"], parts["train"], number) for name, number in twins.items()},
        sizes={name: len(members) for name, members in unique.items()},
        class_counts={name: belongs[members].sum(0).tolist() for name, members in unique.items()},
    )


def _node_twins(dataset: NodeDataset, y: Tensor) -> list[Twins]:
    graph = dataset.graph
    neighbors = same_neighbors(graph)
    degree = _num_neighbors(graph.edge_index, graph.num_nodes)
    several = torch.where(degree >= NEIGHBORS_OF_A_COPY, neighbors, -1)
    some = torch.where(degree >= 1, neighbors, -1)
    features = same_tuples(neighbors, same_rows(graph.x))
    return [
        Twins.of("neighbours", some, y),
        Twins.of(f"{NEIGHBORS_OF_A_COPY}+ neighbours", several, y, can_leak=True),
        Twins.of("neighbours and features", features, y, can_leak=True),
    ]


def _graph_twins(dataset: GraphDataset, y: Tensor) -> list[Twins]:
    return [Twins.of("edges and features", same_graphs(dataset.graphs), y, can_leak=True)]


def _with_labels(number: Tensor, y: Tensor) -> Tensor:
    return torch.where(number >= 0, same_tuples(number, y), -1)


def graph_facts(dataset: NodeDataset | GraphDataset | LinkDataset) -> GraphFacts:
    """Properties of the graphs of a dataset, with its edges as they are there."""
    graph = Batch.from_data_list(dataset.graphs) if isinstance(dataset, GraphDataset) else dataset.graph
    edges, num_nodes = coalesce(graph.edge_index), graph.num_nodes
    loops = edges[0] == edges[1]
    source, target = edges[:, ~loops]
    links = link_keys(edges, num_nodes)
    first, second = pairs_of_keys(links, num_nodes)
    has_classes = dataset.task == "node" and graph.y.dim() == 1
    homophily = homophily_of(torch.stack([first, second]), graph.y) if has_classes else (None, None)
    features, constant = _features(graph.x, dataset.num_columns if isinstance(dataset, GraphDataset) else None)
    return GraphFacts(
        nodes=num_nodes,
        links=len(links),
        one_way_links=2 * len(links) - len(source),
        self_loops=int(loops.sum()),
        without_neighbors={
            direction: num_nodes - len(heard.unique())
            for direction, heard in ((IN, target), (OUT, source), (BOTH, torch.cat([source, target])))
        },
        features=features,
        constant_features=constant,
        homophily=homophily[0],
        adjusted_homophily=homophily[1],
    )


def homophily_of(links: Tensor, y: Tensor) -> tuple[float | None, float | None]:
    r"""Edge homophily :math:`h`, and adjusted for the classes (Platonov et al. 2023),

    .. math::
        \frac{h - \sum_k D_k^2 / (2 |E|)^2}{1 - \sum_k D_k^2 / (2 |E|)^2},

    with :math:`D_k` the sum of the degrees of the nodes of class :math:`k`: 0 where classes have no say in links.

    Args:
        links: (2, E) pairs of nodes, each once.
        y: (N,) classes, -1 where unknown; only links between two known ones count.

    Returns:
        The two; None without links, and the second also where one class has them all.
    """
    ends = y[links[:, (y[links] != UNKNOWN).all(0)]]
    if not ends.numel():
        return None, None
    same = (ends[0] == ends[1]).double().mean().item()
    chance = (ends.flatten().bincount().double() / ends.numel()).square().sum().item()
    return same, None if chance == 1 else (same - chance) / (1 - chance)


def _features(x: Tensor, num_columns: int | None) -> tuple[int, int]:
    """Number of features, and of constant ones among them; ``x`` may list the columns of the ones."""
    if num_columns is None:
        return x.size(1), int((x == x[:1]).all(dim=0).sum())
    ones = torch.bincount(x.flatten(), minlength=num_columns)
    return num_columns, int(((ones == 0) | (ones == len(x))).sum())


def _num_neighbors(edge_index: Tensor, num_nodes: int) -> Tensor:
    """(N,) how many other nodes have an edge to or from a node."""
    ends = pairs_of_keys(link_keys(edge_index, num_nodes), num_nodes).flatten()
    return torch.bincount(ends, minlength=num_nodes)


def _percent(share: float) -> str:
    """A whole number, but one digit of what would be rounded to zero."""
    return f"{100 * share:.0f}" if share == 0 or share >= 0.01 else f"{100 * share:.1g}"
