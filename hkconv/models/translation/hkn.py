"""HKN for translation: the fully hyperbolic transformer with HKConv in its self-attention, the system of the paper."""

from hkconv.models.translation.hyperbolic_transformer import HyperbolicTransformer
from hkconv.models.translation.seq2seq import Sizes


class HKNTransformer(HyperbolicTransformer):
    """The :class:`~hkconv.models.translation.hyperbolic_transformer.HyperbolicTransformer` whose self-attention
    aggregates values by HKConv, in encoder and decoder. Attention to the memory has no value of its own to be relative
    to and is HyboNet's.

    Args:
        sizes: sizes of the system.
        kernel_size: number of kernel points.
        backend: of :class:`~hkconv.nn.HKAttention`.
    """

    def __init__(self, sizes: Sizes, kernel_size: int = 4, backend: str = "auto"):
        super().__init__(sizes, aggregation="kernel", kernel_size=kernel_size, backend=backend)
