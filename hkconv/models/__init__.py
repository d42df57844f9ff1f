"""Whole networks, by name: HKN and the systems it is compared with."""

from typing import Any

import torch

from hkconv.errors import InputError
from hkconv.models.baselines import (
    GAT,
    GCN,
    GCNII,
    GIN,
    GMT,
    H2HGCN,
    HGCN,
    LINKX,
    MLP,
    WLHN,
    WRGAT,
    FlatBlock,
    FlatHKN,
    GeomGCN,
    GloGNN,
    GloGNNPlusPlus,
    GraphSAGE,
    H2HGCNConv,
    HGCNConv,
    HyboNet,
    HyboNetConv,
)
from hkconv.models.hkn import HKN

MODELS: dict[str, type[torch.nn.Module]] = {
    "hkn": HKN,
    "hkn-flat": FlatHKN,
    "mlp": MLP,
    "gcn": GCN,
    "gat": GAT,
    "graphsage": GraphSAGE,
    "gcnii": GCNII,
    "gin": GIN,
    "gmt": GMT,
    "linkx": LINKX,
    "hgcn": HGCN,
    "hybonet": HyboNet,
    "h2h-gcn": H2HGCN,
    "wlhn": WLHN,
    "geom-gcn": GeomGCN,
    "wrgat": WRGAT,
    "glognn": GloGNN,
    "glognn++": GloGNNPlusPlus,
}
"""The networks by the names that ``hkconv train --models`` takes."""


def find(name: str) -> type[torch.nn.Module]:
    """The class of that name."""
    if name not in MODELS:
        raise InputError(f"unknown model {name!r}; accepted: {', '.join(MODELS)}")
    return MODELS[name]


def create(name: str, **config: Any) -> torch.nn.Module:
    """The model of that name, built with ``config`` as keyword arguments."""
    return find(name)(**config)


__all__ = [
    "GAT",
    "GCN",
    "GCNII",
    "GIN",
    "GMT",
    "H2HGCN",
    "HGCN",
    "HKN",
    "LINKX",
    "MLP",
    "MODELS",
    "WLHN",
    "WRGAT",
    "FlatBlock",
    "FlatHKN",
    "GeomGCN",
    "GloGNN",
    "GloGNNPlusPlus",
    "GraphSAGE",
    "H2HGCNConv",
    "HGCNConv",
    "HyboNet",
    "HyboNetConv",
    "create",
    "find",
]
