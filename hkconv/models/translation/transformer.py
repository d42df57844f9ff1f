"""The Transformer of Vaswani et al. (2017), the Euclidean system the hyperbolic ones are measured against."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hkconv.models.translation.attention import Attention
from hkconv.models.translation.embedding import TokenEmbedding
from hkconv.models.translation.seq2seq import Cache, Memory, Seq2Seq, Sizes


class Transformer(Seq2Seq):
    """The Transformer in its *pre-norm* form, with learned positions and one embedding for source, target and output.

    Vaswani et al. normalise after each residual; normalising before needs no careful warm-up, and its only price is one
    layer normalisation after the last layer of the encoder and of the decoder.

    Shapes: as :class:`~hkconv.models.translation.seq2seq.Seq2Seq`.
    """

    def __init__(self, sizes: Sizes):
        super().__init__(sizes)
        self.embedding = TokenEmbedding(sizes, scale=sizes.dim**0.5)
        self.encoder = torch.nn.ModuleList(self.make_encoder_layer(number) for number in range(sizes.num_layers))
        self.decoder = torch.nn.ModuleList(self.make_decoder_layer(number) for number in range(sizes.num_layers))
        self.encoder_norm = torch.nn.LayerNorm(sizes.dim)
        self.decoder_norm = torch.nn.LayerNorm(sizes.dim)

    def make_encoder_layer(self, number: int) -> torch.nn.Module:
        """The layer of that number, from 0."""
        return EncoderLayer(self.sizes, Attention(self.sizes.dim, self.sizes.num_heads))

    def make_decoder_layer(self, number: int) -> torch.nn.Module:
        """The layer of that number, from 0."""
        attention, memory_attention = (Attention(self.sizes.dim, self.sizes.num_heads) for _ in range(2))
        return DecoderLayer(self.sizes, attention, memory_attention)

    def finish_encoder(self, states: Tensor) -> Tensor:
        return self.encoder_norm(states)

    def finish_decoder(self, states: Tensor) -> Tensor:
        return self.decoder_norm(states)


class Residual(torch.nn.Module):
    r""":math:`x + \operatorname{dropout}(f(\operatorname{norm}(x)))` for a function :math:`f` given at each call."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.norm = torch.nn.LayerNorm(sizes.dim)
        self.dropout = torch.nn.Dropout(sizes.dropout)

    def forward(self, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        return x + self.dropout(function(self.norm(x)))


class FeedForward(torch.nn.Sequential):
    r""":math:`W_2 \operatorname{relu}(W_1 x + b_1) + b_2`."""

    def __init__(self, sizes: Sizes):
        super().__init__(
            torch.nn.Linear(sizes.dim, sizes.feedforward_dim),
            torch.nn.ReLU(),
            torch.nn.Linear(sizes.feedforward_dim, sizes.dim),
        )


class EncoderLayer(torch.nn.Module):
    """A mixing of positions and feed-forward, each as a residual.

    Args:
        sizes: sizes of the system.
        mixing: called as ``mixing.to_itself(x, padding)``.

    Shapes: ``(B, S, dim) -> (B, S, dim)``.
    """

    mixing: Any

    def __init__(self, sizes: Sizes, mixing: torch.nn.Module):
        super().__init__()
        self.mixing, self.feedforward = mixing, FeedForward(sizes)
        self.around_mixing, self.around_feedforward = Residual(sizes), Residual(sizes)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        x = self.around_mixing(x, lambda y: self.mixing.to_itself(y, padding))
        return self.around_feedforward(x, self.feedforward)


class DecoderLayer(torch.nn.Module):
    """A mixing of the positions so far, attention to the memory and feed-forward, each as a residual.

    Args:
        sizes: sizes of the system.
        mixing: called as ``mixing.to_the_past(x, cache)``.
        memory_attention: attention to the memory.

    Shapes: ``(B, T, dim) -> (B, T, dim)``.
    """

    mixing: Any

    def __init__(self, sizes: Sizes, mixing: torch.nn.Module, memory_attention: Attention):
        super().__init__()
        self.mixing, self.memory_attention, self.feedforward = mixing, memory_attention, FeedForward(sizes)
        self.around_mixing, self.around_memory, self.around_feedforward = (Residual(sizes) for _ in range(3))

    def forward(self, x: Tensor, memory: Memory, cache: Cache | None) -> Tensor:
        past, read = (None, None) if cache is None else (cache.setdefault("past", {}), cache.setdefault("memory", {}))
        x = self.around_mixing(x, lambda y: self.mixing.to_the_past(y, past))
        x = self.around_memory(x, lambda y: self.memory_attention.to_memory(y, *memory, read))
        return self.around_feedforward(x, self.feedforward)
