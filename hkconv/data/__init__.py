"""Datasets with disjoint splits: published ones by name, and generated trees that need no file; and their audit."""

from hkconv.data.audit import Audit, audit_dataset
from hkconv.data.catalog import DatasetInfo, describe, load
from hkconv.data.dataset import GraphDataset, LinkDataset, LinkSplit, NodeDataset, OverlappingSplit, Split, hide_test
from hkconv.data.trees import disease, hierarchy

__all__ = [
    "Audit",
    "DatasetInfo",
    "GraphDataset",
    "LinkDataset",
    "LinkSplit",
    "NodeDataset",
    "OverlappingSplit",
    "Split",
    "audit_dataset",
    "describe",
    "disease",
    "hide_test",
    "hierarchy",
    "load",
]
