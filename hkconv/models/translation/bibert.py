"""BiBERT (Xu et al. 2021): a pretrained bilingual BERT reads the source, a Transformer writes the target."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.models.translation.seq2seq import Seq2Seq, Sizes
from hkconv.models.translation.tokens import PAD
from hkconv.models.translation.transformer import Attention, DecoderLayer, TokenEmbedding


class BiBERT(Seq2Seq):
    """The encoder of a BERT model in a local folder, trained further, and the decoder of our
    :class:`~hkconv.models.translation.transformer.Transformer`, which attends to its last states.

    Source and target are ids of the vocabulary of that folder, of which the decoder has an embedding of its own. The
    published system learns a second encoder on top of frozen BERT states; here BERT is the encoder.

    Args:
        sizes: sizes of the decoder; ``vocabulary`` is that of the folder.
        folder: a folder written by ``save_pretrained`` of transformers. Nothing is downloaded.
    """

    def __init__(self, sizes: Sizes, folder: str | Path):
        super().__init__(sizes)
        self.bert: Any = load_bert(folder)
        check_fits(self.bert.config, sizes, folder)
        self.embedding = TokenEmbedding(sizes, scale=sizes.dim**0.5)
        self.decoder = torch.nn.ModuleList(self._decoder_layer() for _ in range(sizes.num_layers))
        self.decoder_norm = torch.nn.LayerNorm(sizes.dim)

    def _decoder_layer(self) -> DecoderLayer:
        attention = Attention(self.sizes.dim, self.sizes.num_heads)
        memory_attention = Attention(self.sizes.dim, self.sizes.num_heads, self.bert.config.hidden_size)
        return DecoderLayer(self.sizes, attention, memory_attention)

    def encoder_layers(self, source: Tensor) -> list[Tensor]:
        self._check_ids(source, "source", first=0)
        return list(self.bert(source, attention_mask=source != PAD, output_hidden_states=True).hidden_states)

    def finish_decoder(self, states: Tensor) -> Tensor:
        return self.decoder_norm(states)


def load_bert(folder: str | Path) -> torch.nn.Module:
    """The BERT encoder in a local folder, without its pooling layer."""
    try:
        from transformers import BertModel
    except ImportError:
        raise InputError(
            "BiBERT needs the package transformers, which is not installed: pip install 'hkconv[bibert]'"
        ) from None
    if not (Path(folder) / "config.json").is_file():
        raise InputError(f"{folder} must be a folder with a BERT model (config.json and its weights)")
    try:
        # A folder of the user's: there is no revision of it, and nothing is downloaded or unpickled.
        options = {"add_pooling_layer": False, "local_files_only": True, "weights_only": True}
        return BertModel.from_pretrained(folder, **options)  # nosec B615
    except (OSError, ValueError) as error:
        raise InputError(f"{folder}: the BERT model cannot be read: {str(error).splitlines()[0]}") from None


def check_fits(config: Any, sizes: Sizes, folder: str | Path) -> None:
    """Raise unless the sizes agree with the configuration of BERT."""
    if config.vocab_size != sizes.vocabulary:
        raise InputError(f"vocabulary must be that of {folder}, {config.vocab_size} tokens, got {sizes.vocabulary}")
    if config.max_position_embeddings < sizes.max_length:
        raise InputError(
            f"max_length must be at most {config.max_position_embeddings}, the positions of {folder}, "
            f"got {sizes.max_length}"
        )
