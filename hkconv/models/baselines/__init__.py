"""The networks HKN is measured against, one file a published system."""

from hkconv.models.baselines.gcn import GCN
from hkconv.models.baselines.mlp import MLP

__all__ = ["GCN", "MLP"]
