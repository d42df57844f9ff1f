"""The networks HKN is measured against, one file a published system."""

from hkconv.models.baselines.gcn import GCN
from hkconv.models.baselines.hgcn import HGCN, HGCNConv
from hkconv.models.baselines.hybonet import HyboNet, HyboNetConv
from hkconv.models.baselines.mlp import MLP

__all__ = ["GCN", "HGCN", "MLP", "HGCNConv", "HyboNet", "HyboNetConv"]
