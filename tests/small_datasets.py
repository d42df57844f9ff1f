"""Datasets small enough to train on in a test."""

from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Data

from hkconv.data import GraphDataset, LinkDataset, NodeDataset, Split, hierarchy
from hkconv.data.splits import link_splits
from hkconv.tasks import building


def small_tree(num_splits: int = 2) -> NodeDataset:
    return hierarchy(depth=4, children=3, num_classes=3, num_features=4, step=0.5, noise=0.3, num_splits=num_splits)


@pytest.fixture
def tree() -> NodeDataset:
    return small_tree()


def small_links(num_splits: int = 2) -> LinkDataset:
    graph = small_tree().graph
    return LinkDataset("tree", graph, link_splits(graph.edge_index, graph.num_nodes, num_splits=num_splits), "test")


@pytest.fixture
def links() -> LinkDataset:
    return small_links()


def poisoned(dataset: NodeDataset | LinkDataset) -> NodeDataset | LinkDataset:
    """The dataset with other classes, or with links and pairs exchanged, in the test part of its one split."""
    graph, (split,) = dataset.graph.clone(), dataset.splits
    if isinstance(dataset, NodeDataset):
        graph.y[split.test] = (graph.y[split.test] + 1) % dataset.num_classes
        return replace(dataset, graph=graph)
    split = replace(split, test=split.test_negatives, test_negatives=split.test)
    links = torch.cat([split.train, split.val, split.test], dim=1)
    graph.edge_index = torch.cat([links, links.flip(0)], dim=1)
    return replace(dataset, graph=graph, splits=[split])


def rings_and_paths(count: int) -> list[Data]:
    """Graphs of random sizes, labeled by what they are; a node's feature is its degree."""
    generator = torch.Generator().manual_seed(1)
    graphs = []
    for index in range(count):
        size = int(torch.randint(3, 8, (1,), generator=generator))
        ring = torch.stack([torch.arange(size), (torch.arange(size) + 1) % size])
        edges = ring if index % 2 else ring[:, :-1]
        degree = edges.flatten().bincount(minlength=size).float()[:, None]
        graphs.append(Data(x=degree, edge_index=torch.cat([edges, edges.flip(0)], 1), y=torch.tensor([index % 2])))
    return graphs


@pytest.fixture
def molecules() -> GraphDataset:
    split = Split(torch.arange(24), torch.arange(24, 32), torch.arange(32, 40))
    return GraphDataset("shapes", rings_and_paths(40), [split], 2, "test")


@pytest.fixture
def questions(molecules) -> GraphDataset:
    """The same graphs with their degrees one-hot and two questions: is it a ring, is it a path of five nodes or more?

    Of every third graph the first answer is unknown, of the next the second.
    """
    graphs = []
    for index, shape in enumerate(molecules.graphs):
        is_ring, is_long_path = bool(shape.y), not shape.y and shape.num_nodes >= 5
        answers = torch.tensor([[float(is_ring), float(is_long_path)]])
        if index % 3 < 2:
            answers[0, index % 3] = torch.nan
        graphs.append(Data(x=shape.x.to(torch.uint8), edge_index=shape.edge_index, y=answers))
    return GraphDataset("questions", graphs, molecules.splits, 2, "test", metric="ROC-AUC", num_columns=3)


@pytest.fixture
def tree_for_every_name(monkeypatch, tree) -> NodeDataset:
    """Every recipe trains on the small tree."""
    monkeypatch.setattr(building, "load", lambda *_, **__: tree)
    return tree
