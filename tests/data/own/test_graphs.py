from dataclasses import replace

import torch
from torch_geometric.data import Data

from hkconv.data.own.graphs import OwnGraphs


def made(**changes):
    parts = {"x": torch.ones(2, 1), "edge_index": torch.tensor([[0], [1]]), "edge_weight": torch.ones(1)}
    graph = Data(**{name: value for name, value in {**parts, **changes}.items() if value is not None})
    return OwnGraphs("here", "arrays", "node", [graph], ["a", "b"], ["x", "y"])


def test_a_digest_changes_with_whatever_a_model_sees():
    own = made()
    digests = {
        own.graphs_digest(),
        made(x=torch.tensor([[1.0], [1.5]])).graphs_digest(),
        made(edge_index=torch.tensor([[1], [0]])).graphs_digest(),
        made(edge_weight=torch.zeros(1)).graphs_digest(),
        made(edge_weight=None).graphs_digest(),
        replace(own, ids=["ab", ""]).graphs_digest(),
        replace(own, ids=["b", "a"]).graphs_digest(),
    }
    assert len(digests) == 7
    assert own.graphs_digest() == replace(made(), labels=["y", "x"], place="there").graphs_digest()


def test_graphs_are_weighted_where_their_edges_have_weights():
    assert made().is_weighted is True
    assert made(edge_weight=torch.zeros(1)).is_weighted is True
    assert made(edge_weight=None).is_weighted is False


def test_labels_and_splits_have_a_digest_of_their_own():
    own = made()
    split = {"train": torch.tensor([0]), "val": torch.tensor([1]), "test": torch.tensor([], dtype=torch.int64)}
    divided = replace(own, splits=[split])
    other = replace(own, splits=[{**split, "train": torch.tensor([1]), "val": torch.tensor([0])}])
    digests = {found.answers_digest() for found in (own, replace(own, labels=["x", ""]), divided, other)}
    assert len(digests) == 4
