"""Datasets with disjoint splits: published ones by name, and generated trees that need no file; and their audit.

The names below are imported when first used, so that the options of data are to be had without PyTorch.
"""

from functools import partial
from typing import TYPE_CHECKING

from hkconv.lazy import load_attribute

if TYPE_CHECKING:
    from hkconv.data.audit import Audit, audit_dataset
    from hkconv.data.catalog import DatasetInfo, describe
    from hkconv.data.dataset import (
        GraphDataset,
        LinkDataset,
        LinkSplit,
        NodeDataset,
        OverlappingSplit,
        Split,
        hide_test,
    )
    from hkconv.data.loading import load
    from hkconv.data.trees import disease, hierarchy

_HOMES = {
    **dict.fromkeys(("Audit", "audit_dataset"), "audit"),
    **dict.fromkeys(("DatasetInfo", "describe"), "catalog"),
    **dict.fromkeys(("GraphDataset", "LinkDataset", "LinkSplit", "NodeDataset"), "dataset"),
    **dict.fromkeys(("OverlappingSplit", "Split", "hide_test"), "dataset"),
    "load": "loading",
    **dict.fromkeys(("disease", "hierarchy"), "trees"),
}

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
__getattr__ = partial(load_attribute, __name__, _HOMES)
