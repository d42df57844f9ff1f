"""Hyperbolic layers, one idea a file."""

from hkconv.nn.centroid import MassScaling, global_centroid_pool
from hkconv.nn.distance import HDistance
from hkconv.nn.embedding import HEmbedding
from hkconv.nn.fermi_dirac import FermiDirac
from hkconv.nn.hetero import HeteroHKConv, to_hetero
from hkconv.nn.hk_attention import AttentionCache, HKAttention
from hkconv.nn.hk_block import HKBlock
from hkconv.nn.hk_conv import HKConv
from hkconv.nn.knn import knn_graph
from hkconv.nn.linear import HLinear
from hkconv.nn.mlr import HMLR
from hkconv.nn.norm import HNorm
from hkconv.nn.pointwise import HActivation, HDropout
from hkconv.nn.transformer import DecoderCache, HTransformerDecoderLayer, HTransformerEncoderLayer

__all__ = [
    "HMLR",
    "AttentionCache",
    "DecoderCache",
    "FermiDirac",
    "HActivation",
    "HDistance",
    "HDropout",
    "HEmbedding",
    "HKAttention",
    "HKBlock",
    "HKConv",
    "HLinear",
    "HNorm",
    "HTransformerDecoderLayer",
    "HTransformerEncoderLayer",
    "HeteroHKConv",
    "MassScaling",
    "global_centroid_pool",
    "knn_graph",
    "to_hetero",
]
