"""HyboNet for translation (Chen et al. 2021, Fully Hyperbolic Neural Networks)."""

from hkconv.models.translation.hyperbolic_transformer import HyperbolicTransformer
from hkconv.models.translation.seq2seq import Sizes


class HyboNetTransformer(HyperbolicTransformer):
    """The :class:`~hkconv.models.translation.hyperbolic_transformer.HyperbolicTransformer` whose attention takes the
    centroid of values, so that it differs from HKN in the aggregation alone.

    Args:
        sizes: sizes of the system.
        backend: of :class:`~hkconv.nn.HKAttention`.
    """

    def __init__(self, sizes: Sizes, backend: str = "auto"):
        super().__init__(sizes, aggregation="centroid", backend=backend)
