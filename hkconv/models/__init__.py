"""Whole networks, by name: HKN and the systems it is compared with. Each is imported when first used."""

from typing import TYPE_CHECKING, Any

from hkconv.models.registry import Registry

if TYPE_CHECKING:
    import torch

    from hkconv.models.hkn import HKN as HKN

MODELS: "Registry[torch.nn.Module]" = Registry(
    "model",
    __name__,
    {
        "hkn": "hkn:HKN",
        "mlp": "baselines.mlp:MLP",
        "gcn": "baselines.gcn:GCN",
        "gat": "baselines.gat:GAT",
        "graphsage": "baselines.sage:GraphSAGE",
        "gcnii": "baselines.gcnii:GCNII",
        "acm-gcn": "baselines.acm_gcn:ACMGCN",
        "dir-gnn": "baselines.dir_gnn:DirGNN",
        "gin": "baselines.gin:GIN",
        "gmt": "baselines.gmt:GMT",
        "linkx": "baselines.linkx:LINKX",
        "hkn-flat": "baselines.hkn_flat:FlatHKN",
        "hgcn": "baselines.hgcn:HGCN",
        "hybonet": "baselines.hybonet:HyboNet",
        "h2h-gcn": "baselines.h2h_gcn:H2HGCN",
        "wlhn": "baselines.wlhn:WLHN",
        "geom-gcn": "baselines.geom_gcn:GeomGCN",
        "wrgat": "baselines.wrgat:WRGAT",
        "glognn": "baselines.glognn:GloGNN",
        "glognn++": "baselines.glognn:GloGNNPlusPlus",
    },
    exports=(
        "baselines.hkn_flat:FlatBlock",
        "baselines.hgcn:HGCNConv",
        "baselines.hybonet:HyboNetConv",
        "baselines.h2h_gcn:H2HGCNConv",
    ),
)
"""The networks by the names that ``hkconv train --models`` takes: the one list of them."""

__all__ = ["MODELS", "create", "find"]
__all__.extend(MODELS.homes)


def find(name: str) -> "type[torch.nn.Module]":
    """Return the class of that name."""
    return MODELS.find(name)


def create(name: str, **config: Any) -> "torch.nn.Module":
    """Return the model of that name, built with ``config`` as keyword arguments."""
    return find(name)(**config)


__getattr__ = MODELS.load


def __dir__() -> list[str]:
    return sorted(__all__)
