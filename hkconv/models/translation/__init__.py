"""The systems of the translation table, one file each, behind one interface. Each is imported when first used."""

from typing import TYPE_CHECKING, Any

from hkconv.models.registry import Registry

if TYPE_CHECKING:
    from hkconv.models.translation.seq2seq import Seq2Seq as Seq2Seq

TRANSLATION_MODELS: "Registry[Seq2Seq]" = Registry(
    "translation model",
    __name__,
    {
        "hkn": "hyperbolic_transformer:HKNTransformer",
        "hybonet": "hyperbolic_transformer:HyboNetTransformer",
        "hatt": "hatt:HATT",
        "transformer": "transformer:Transformer",
        "convseq2seq": "convseq2seq:ConvSeq2Seq",
        "dynamicconv": "dynamicconv:DynamicConv",
        "hnn++": "hnn_plus_plus:HNNPlusPlus",
        "bibert": "bibert:BiBERT",
    },
    exports=("seq2seq:DecodingState", "seq2seq:Memory", "seq2seq:Seq2Seq", "seq2seq:Sizes"),
)
"""The systems by the names that ``hkconv translate train --model`` takes: the one list of them."""

__all__ = ["TRANSLATION_MODELS", "create_translator"]
__all__.extend(TRANSLATION_MODELS.homes)


def create_translator(
    name: str,
    vocabulary: int,
    dim: int = 64,
    num_heads: int | None = None,
    feedforward_dim: int | None = None,
    num_layers: int = 6,
    dropout: float = 0.1,
    max_length: int = 256,
    **own: Any,
) -> "Seq2Seq":
    """Return the translation system of that name.

    Args:
        name: one of :data:`TRANSLATION_MODELS`.
        vocabulary: number of tokens, which source and target share.
        dim: dimension of the states.
        num_heads: heads of every attention; if not given as in the paper, 4 up to dimension 64 and 8 beyond.
        feedforward_dim: hidden dimension of the feed-forward blocks; if not given as in the paper, ``4 * dim``.
        num_layers: layers of the encoder, and as many of the decoder.
        dropout: probability of dropping an entry.
        max_length: longest sentence, of source and target alike.
        own: options of the system itself.
    """
    from hkconv.models.translation.seq2seq import Sizes

    system = TRANSLATION_MODELS.find(name)
    num_heads = num_heads or (4 if dim <= 64 else 8)
    return system(Sizes(vocabulary, dim, num_heads, feedforward_dim or 4 * dim, num_layers, dropout, max_length), **own)


__getattr__ = TRANSLATION_MODELS.load


def __dir__() -> list[str]:
    return sorted(__all__)
