"""Interface of the translation systems: as training, beam search and probes call them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.models.translation.tokens import PAD, UNKNOWN
from hkconv.nn.common import check_rate

#: Keys, values or inputs of the positions before, of one decoder layer: tensors of one row a hypothesis.
Cache = dict[str, Any]


class Memory(NamedTuple):
    """Encoder output for a batch of source sentences, which the decoder attends to.

    Attributes:
        states: last states of the encoder, ``(B, S, *)``; what they are at padding is not read.
        padding: True where there is padding, ``(B, S)``.
    """

    states: Tensor
    padding: Tensor

    def pick(self, index: Tensor) -> "Memory":
        """The rows ``index``, ``(B',)``."""
        return Memory(self.states.index_select(0, index), self.padding.index_select(0, index))


@dataclass
class DecodingState:
    """State of incremental decoding.

    Attributes:
        length: positions decoded so far.
        caches: one for each layer of the decoder, of the kind that the system's layers take.
    """

    length: int
    caches: Sequence[Any]


@dataclass(frozen=True)
class Sizes:
    """The sizes of an encoder-decoder.

    Attributes:
        vocabulary: number of tokens, which source and target share.
        dim: dimension of the states.
        num_heads: heads of every attention; they divide ``dim``.
        feedforward_dim: hidden dimension of every feed-forward block.
        num_layers: layers of the encoder, and as many of the decoder.
        dropout: probability of dropping an entry.
        max_length: longest sentence, of source and target alike.
    """

    vocabulary: int
    dim: int = 64
    num_heads: int = 4
    feedforward_dim: int = 256
    num_layers: int = 6
    dropout: float = 0.1
    max_length: int = 256

    def __post_init__(self) -> None:
        if self.vocabulary <= UNKNOWN + 1:
            raise InputError(
                f"vocabulary must have more than the {UNKNOWN + 1} special tokens, got {self.vocabulary} tokens"
            )
        for name in ("dim", "num_heads", "feedforward_dim", "num_layers", "max_length"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.dim % self.num_heads:
            raise InputError(f"dim must be a multiple of num_heads, got dim {self.dim} and {self.num_heads} heads")
        check_rate(self.dropout)


class Seq2Seq(torch.nn.Module):
    """An encoder-decoder over token ids: an embedding, layers of an encoder, layers of a decoder, and logits.

    A system adds three modules after ``super().__init__(sizes)``:

    - ``embedding(ids, first)``: states of tokens at the positions from ``first`` on; ``embedding.logits(states)``: the
      logits of all tokens;
    - ``encoder``: a list of layers, called as ``layer(states, padding)``;
    - ``decoder``: a list of layers, called as ``layer(states, memory, cache)``, where a cache is None in teacher
      forcing; otherwise the layer reads there what it needs of earlier positions and writes what later ones will need.

    Shapes:
        - **source**: ids ``(B, S)``, padded at the end by :data:`~hkconv.models.translation.tokens.PAD`
        - **target**: ids ``(B, T)`` that begin with :data:`~hkconv.models.translation.tokens.BEGIN`; padding at the end
          needs no mask, because no position sees later ones
        - **output**: logits ``(B, T, vocabulary)`` of the token after each position
    """

    #: Space of the encoder's states: vectors, or points of the Lorentz model.
    geometry: Literal["euclidean", "lorentz"] = "euclidean"
    embedding: Any
    encoder: torch.nn.ModuleList
    decoder: torch.nn.ModuleList

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.sizes = sizes

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.decode(target, self.encode(source))

    def encode(self, source: Tensor) -> Memory:
        """Encode source sentences for the decoder."""
        return Memory(self.encoder_layers(source)[-1], source == PAD)

    def encoder_layers(self, source: Tensor) -> list[Tensor]:
        """The states of source sentences after the embedding and after each layer, ``(B, S, *)`` each."""
        self._check_ids(source, "source", first=0)
        padding = source == PAD
        found = [self.embedding(source, 0)]
        for layer in self.encoder:
            found.append(layer(found[-1], padding))
        found[-1] = self.finish_encoder(found[-1])
        return found

    def finish_encoder(self, states: Tensor) -> Tensor:
        """Hook after the last layer of the encoder."""
        return states

    def finish_decoder(self, states: Tensor) -> Tensor:
        """Hook between the last layer of the decoder and the logits."""
        return states

    def decode(self, target: Tensor, memory: Memory, state: DecodingState | None = None) -> Tensor:
        """The logits of the token after each position.

        Args:
            target: all tokens from the beginning, or with a state only those after the ones already decoded.
            memory: of :meth:`encode`.
            state: of :meth:`start`; updated in place.
        """
        first = 0 if state is None else state.length
        self._check_ids(target, "target", first)
        caches: Sequence[Any] = [None] * len(self.decoder) if state is None else state.caches
        states = self.run_decoder(self.embedding(target, first), memory, caches)
        if state is not None:
            state.length += target.size(1)
        return self.embedding.logits(self.finish_decoder(states))

    def run_decoder(self, states: Tensor, memory: Memory, caches: Sequence[Any]) -> Tensor:
        """The layers of the decoder one after the other."""
        for layer, cache in zip(self.decoder, caches):
            states = layer(states, memory, cache)
        return states

    def start(self, memory: Memory) -> DecodingState:
        """The state before the first token of the target."""
        return DecodingState(0, [{} for _ in self.decoder])

    def reorder(self, state: DecodingState, memory: Memory, index: Tensor) -> tuple[DecodingState, Memory]:
        """State and memory of the hypotheses ``index``, ``(B',)``; one can be named several times. The state that was
        given is of no use afterwards."""
        caches = [_pick(cache, index) for cache in state.caches]
        return DecodingState(state.length, caches), memory.pick(index)

    def _check_ids(self, ids: Tensor, name: str, first: int) -> None:
        if ids.dim() != 2:
            raise InputError(f"{name} must be ids of shape (sentences, positions), got shape {tuple(ids.shape)}")
        if first + ids.size(1) > self.sizes.max_length:
            raise InputError(
                f"{name} must have at most max_length = {self.sizes.max_length} positions, got {first + ids.size(1)}"
            )


def _pick(cache: Cache, index: Tensor) -> Cache:
    return {
        name: kept.index_select(0, index) if isinstance(kept, Tensor) else _pick(kept, index)
        for name, kept in cache.items()
    }
