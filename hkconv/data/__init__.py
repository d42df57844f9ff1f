"""Datasets with disjoint splits: published ones by name, and generated trees that need no file."""

from hkconv.data.catalog import DatasetInfo, describe, load
from hkconv.data.dataset import GraphDataset, LinkDataset, LinkSplit, NodeDataset, OverlappingSplit, Split
from hkconv.data.trees import disease, hierarchy

__all__ = [
    "DatasetInfo",
    "GraphDataset",
    "LinkDataset",
    "LinkSplit",
    "NodeDataset",
    "OverlappingSplit",
    "Split",
    "describe",
    "disease",
    "hierarchy",
    "load",
]
