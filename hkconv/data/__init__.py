"""Datasets with disjoint splits: published ones by name, and generated trees that need no file; and their audit.

The names below are imported when first used, so that the options of data are to be had without PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hkconv.data.audit import Audit, audit_dataset
    from hkconv.data.catalog import DatasetInfo, describe, load
    from hkconv.data.dataset import (
        GraphDataset,
        LinkDataset,
        LinkSplit,
        NodeDataset,
        OverlappingSplit,
        Split,
        hide_test,
    )
    from hkconv.data.trees import disease, hierarchy

_MODULES = ("dataset", "catalog", "trees", "audit")

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


def __getattr__(name: str) -> Any:
    if name in __all__:
        homes = (import_module(f"hkconv.data.{module}") for module in _MODULES)
        return next(getattr(home, name) for home in homes if hasattr(home, name))
    raise AttributeError(f"module 'hkconv.data' has no attribute {name!r}")
