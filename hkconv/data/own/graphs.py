"""Graphs as every reader of own data gives them: with names of nodes or graphs, labels and splits."""

import hashlib
from dataclasses import dataclass

from torch import Tensor
from torch_geometric.data import Data

from hkconv.data.options import ACCURACY
from hkconv.data.own.features import Feature


@dataclass(frozen=True, eq=False)
class OwnGraphs:
    """Own data as they were read, before they are divided or prepared for a model.

    Args:
        place: the file or folder, for errors.
        kind: what they were read from; data to predict on must be of the kind that was trained on.
        task: ``"node"``, one graph whose nodes have labels, ``"graph"``, graphs with labels, or ``"link"``, one graph.
        graphs: with ``x``, ``edge_index`` and, all or none, ``edge_weight`` or ``edge_attr``; without labels.
        ids: the name of each node or graph.
        labels: of each, see :class:`~hkconv.data.own.labels.Labels`; empty where it is not known.
        splits: index tensors by the names of the parts, a dictionary a split; None where the data say nothing.
        features: the columns that ``x`` was made of; None where it was there as it is.
        num_columns: where ``x`` lists, (N, C) uint8, the columns of each node's ones, how many columns there are.
        num_edge_columns: the same for ``edge_attr`` (E, C) and edges.
        notes: on how the columns were taken, a sentence each.
        metric: that the labels are scored by.
        questions: the names of yes-or-no questions, or of the number; none of classes.
        edge_features: the columns that ``edge_attr`` was made of; None where it was there as it is, or is not.
    """

    place: str
    kind: str
    task: str
    graphs: list[Data]
    ids: list[str]
    labels: list[str]
    splits: list[dict[str, Tensor]] | None = None
    features: tuple[Feature, ...] | None = None
    num_columns: int | None = None
    num_edge_columns: int | None = None
    notes: tuple[str, ...] = ()
    metric: str = ACCURACY
    questions: tuple[str, ...] = ()
    edge_features: tuple[Feature, ...] | None = None

    @property
    def num_features(self) -> int:
        """Number of feature columns that a model sees."""
        return self.graphs[0].x.size(1) if self.num_columns is None else self.num_columns

    @property
    def are_numbers(self) -> list[bool]:
        """For each feature column, false where it is one of a category's."""
        if self.features is None:
            return [True] * self.num_features
        return [is_number for feature in self.features for is_number in feature.are_numbers]

    @property
    def num_edge_features(self) -> int | None:
        """Number of attributes of an edge that are numbers; None where edges have none, or categories of bonds."""
        attributes = self.graphs[0].edge_attr
        return None if attributes is None or self.num_edge_columns is not None else attributes.size(1)

    @property
    def is_weighted(self) -> bool:
        """True if the edges have weights."""
        return self.graphs[0].edge_weight is not None

    def graphs_digest(self) -> str:
        """Changes with any feature, edge, weight or name."""
        keys = ["x", "edge_index", "edge_weight", *([] if self.num_edge_features is None else ["edge_attr"])]
        tensors = [graph[key] for graph in self.graphs for key in keys if key in graph]
        return _digest(self.ids, tensors)

    def answers_digest(self) -> str:
        """Changes with any label and with the splits that come with the data."""
        parts = [members for split in self.splits or [] for members in split.values()]
        return _digest([*self.questions, *self.labels], parts)


def _digest(names: list[str], tensors: list[Tensor]) -> str:
    total = hashlib.sha256()
    for name in names:
        total.update(f"{len(name)}:{name}".encode())
    for tensor in tensors:
        total.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        total.update(tensor.contiguous().numpy().tobytes())
    return total.hexdigest()
