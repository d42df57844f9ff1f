"""Hyperbolic layers, one idea a file."""

from hkconv.nn.centroid import MassScaling, global_centroid_pool
from hkconv.nn.distance import HDistance
from hkconv.nn.embedding import HEmbedding
from hkconv.nn.fermi_dirac import FermiDirac
from hkconv.nn.hk_conv import HKConv
from hkconv.nn.knn import knn_graph
from hkconv.nn.linear import HLinear
from hkconv.nn.norm import HNorm
from hkconv.nn.two_way import TwoWayConv

__all__ = [
    "FermiDirac",
    "HDistance",
    "HEmbedding",
    "HKConv",
    "HLinear",
    "HNorm",
    "MassScaling",
    "TwoWayConv",
    "global_centroid_pool",
    "knn_graph",
]
