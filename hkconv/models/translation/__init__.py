"""The systems of the translation table, one file each, behind one interface."""

from typing import Any

from hkconv.errors import InputError, did_you_mean
from hkconv.models.translation.bibert import BiBERT
from hkconv.models.translation.convseq2seq import ConvSeq2Seq
from hkconv.models.translation.dynamicconv import DynamicConv
from hkconv.models.translation.hatt import HATT
from hkconv.models.translation.hkn import HKNTransformer
from hkconv.models.translation.hnn_plus_plus import HNNPlusPlus
from hkconv.models.translation.hybonet import HyboNetTransformer
from hkconv.models.translation.seq2seq import DecodingState, Memory, Seq2Seq, Sizes
from hkconv.models.translation.transformer import Transformer

TRANSLATION_MODELS: dict[str, type[Seq2Seq]] = {
    "hkn": HKNTransformer,
    "hybonet": HyboNetTransformer,
    "hatt": HATT,
    "transformer": Transformer,
    "convseq2seq": ConvSeq2Seq,
    "dynamicconv": DynamicConv,
    "hnn++": HNNPlusPlus,
    "bibert": BiBERT,
}


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
) -> Seq2Seq:
    """The translation system of that name.

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
    if name not in TRANSLATION_MODELS:
        raise InputError(f"unknown translation model {name!r}; {did_you_mean(name, TRANSLATION_MODELS)}")
    num_heads = num_heads or (4 if dim <= 64 else 8)
    sizes = Sizes(vocabulary, dim, num_heads, feedforward_dim or 4 * dim, num_layers, dropout, max_length)
    return TRANSLATION_MODELS[name](sizes, **own)


__all__ = [
    "HATT",
    "TRANSLATION_MODELS",
    "BiBERT",
    "ConvSeq2Seq",
    "DecodingState",
    "DynamicConv",
    "HKNTransformer",
    "HNNPlusPlus",
    "HyboNetTransformer",
    "Memory",
    "Seq2Seq",
    "Sizes",
    "Transformer",
    "create_translator",
]
