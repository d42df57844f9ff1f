"""The Transformer of Vaswani et al. (2017), the Euclidean system the hyperbolic ones are measured against."""

from collections.abc import Callable

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
        self.embedding = TokenEmbedding(sizes)
        self.encoder = torch.nn.ModuleList(EncoderLayer(sizes) for _ in range(sizes.num_layers))
        self.decoder = torch.nn.ModuleList(DecoderLayer(sizes) for _ in range(sizes.num_layers))
        self.encoder_norm = torch.nn.LayerNorm(sizes.dim)
        self.decoder_norm = torch.nn.LayerNorm(sizes.dim)

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
    """Self-attention and feed-forward, each as a residual. Shapes: ``(B, S, dim) -> (B, S, dim)``."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.attention = Attention(sizes.dim, sizes.num_heads)
        self.feedforward = FeedForward(sizes)
        self.around_attention, self.around_feedforward = Residual(sizes), Residual(sizes)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        x = self.around_attention(x, lambda y: self.attention.to_itself(y, padding))
        return self.around_feedforward(x, self.feedforward)


class DecoderLayer(torch.nn.Module):
    """Attention to the past, attention to the memory and feed-forward, each as a residual.

    Args:
        sizes: sizes of the system.
        memory_dim: dimension of the memory's states, that of the system if not given.

    Shapes: ``(B, T, dim) -> (B, T, dim)``.
    """

    def __init__(self, sizes: Sizes, memory_dim: int | None = None):
        super().__init__()
        self.attention = Attention(sizes.dim, sizes.num_heads)
        self.memory_attention = Attention(sizes.dim, sizes.num_heads, memory_dim)
        self.feedforward = FeedForward(sizes)
        self.around_attention, self.around_memory, self.around_feedforward = (Residual(sizes) for _ in range(3))

    def forward(self, x: Tensor, memory: Memory, cache: Cache | None) -> Tensor:
        past, read = (None, None) if cache is None else (cache.setdefault("past", {}), cache.setdefault("memory", {}))
        x = self.around_attention(x, lambda y: self.attention.to_the_past(y, past))
        x = self.around_memory(x, lambda y: self.memory_attention.to_memory(y, *memory, read))
        return self.around_feedforward(x, self.feedforward)
