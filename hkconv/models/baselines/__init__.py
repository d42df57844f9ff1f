"""The networks HKN is measured against, one file a published system."""

from hkconv.models.baselines.gat import GAT
from hkconv.models.baselines.gcn import GCN
from hkconv.models.baselines.gcnii import GCNII
from hkconv.models.baselines.geom_gcn import GeomGCN
from hkconv.models.baselines.gin import GIN
from hkconv.models.baselines.glognn import GloGNN, GloGNNPlusPlus
from hkconv.models.baselines.gmt import GMT
from hkconv.models.baselines.h2h_gcn import H2HGCN, H2HGCNConv
from hkconv.models.baselines.hgcn import HGCN, HGCNConv
from hkconv.models.baselines.hkn_flat import FlatBlock, FlatHKN
from hkconv.models.baselines.hybonet import HyboNet, HyboNetConv
from hkconv.models.baselines.linkx import LINKX
from hkconv.models.baselines.mlp import MLP
from hkconv.models.baselines.sage import GraphSAGE
from hkconv.models.baselines.wlhn import WLHN
from hkconv.models.baselines.wrgat import WRGAT

__all__ = [
    "GAT",
    "GCN",
    "GCNII",
    "GIN",
    "GMT",
    "H2HGCN",
    "HGCN",
    "LINKX",
    "MLP",
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
]
