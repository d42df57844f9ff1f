"""Whole networks, by name: HKN and the systems it is compared with."""

import torch

from hkconv.errors import InputError
from hkconv.models.baselines import GCN, HGCN, MLP, HGCNConv, HyboNet, HyboNetConv
from hkconv.models.hkn import HKN

MODELS: dict[str, type[torch.nn.Module]] = {"hkn": HKN, "mlp": MLP, "gcn": GCN, "hybonet": HyboNet, "hgcn": HGCN}


def create(name: str, **config) -> torch.nn.Module:
    """The model of that name, built with ``config`` as keyword arguments."""
    if name not in MODELS:
        raise InputError(f"unknown model {name!r}; accepted: {', '.join(MODELS)}")
    return MODELS[name](**config)


__all__ = ["GCN", "HGCN", "HKN", "MLP", "MODELS", "HGCNConv", "HyboNet", "HyboNetConv", "create"]
