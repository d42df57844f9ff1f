"""The Transformer of Vaswani et al. (2017), the Euclidean system the hyperbolic ones are measured against."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.models.translation.seq2seq import Cache, Memory, Seq2Seq, Sizes


class Attention(torch.nn.Module):
    r"""Multi-head attention (Vaswani et al. 2017),

    .. math::
        \operatorname{head}_h = \operatorname{softmax}\Big(\frac{(X W_h^Q)(Y W_h^K)^T}{\sqrt{n/H}}\Big) Y W_h^V, \qquad
        \operatorname{attention}(X, Y) = [\operatorname{head}_1, \dots, \operatorname{head}_H]\, W^O,

    each map with a bias.

    Args:
        dim: dimension :math:`n` of the states.
        num_heads: number :math:`H` of heads.
        memory_dim: dimension of the states :math:`Y` attended to, ``dim`` if not given.
        head_features: numbers that the maps give each head, :math:`n/H` if not given.

    Shapes: ``(B, T, dim)`` and memory ``(B, S, memory_dim)`` with padding ``(B, S)`` to ``(B, T, dim)``.
    """

    def __init__(self, dim: int, num_heads: int, memory_dim: int | None = None, *, head_features: int | None = None):
        super().__init__()
        self.num_heads = num_heads
        features = dim if head_features is None else num_heads * head_features
        self.query = torch.nn.Linear(dim, features)
        self.key = torch.nn.Linear(memory_dim or dim, features)
        self.value = torch.nn.Linear(memory_dim or dim, features)
        self.out = torch.nn.Linear(dim, dim)
        for linear in (self.query, self.key, self.value, self.out):
            torch.nn.init.xavier_uniform_(linear.weight)
            torch.nn.init.zeros_(linear.bias)

    def to_memory(self, x: Tensor, memory: Tensor, padding: Tensor, cache: Cache | None = None) -> Tensor:
        """Attention to a memory, whose keys and values are computed once and then kept in the cache."""
        if not cache:
            key, value = self._keys_and_values(memory)
            if cache is not None:
                cache.update(key=key, value=value)
        else:
            key, value = cache["key"], cache["value"]
        return self._attend(x, key, value, ~padding[:, None, None, :])

    def to_itself(self, x: Tensor, padding: Tensor) -> Tensor:
        """Attention of all positions to all that are not padding."""
        return self.to_memory(x, x, padding)

    def to_the_past(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        """Attention of every position to itself and those before, also to those in the cache."""
        key, value = self._keys_and_values(x)
        if cache is not None:
            if cache:
                key, value = torch.cat([cache["key"], key], 2), torch.cat([cache["value"], value], 2)
            cache.update(key=key, value=value)
        past = key.size(2) - x.size(1)
        seen = torch.ones(x.size(1), key.size(2), dtype=torch.bool, device=x.device).tril(past)
        return self._attend(x, key, value, seen)

    def _keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        return self._split(self.key(memory)), self._split(self.value(memory))

    # The next two are what a system with another kind of attention changes.
    def _attend(self, x: Tensor, key: Tensor, value: Tensor, seen: Tensor) -> Tensor:
        heads = F.scaled_dot_product_attention(self._split(self.query(x)), key, value, attn_mask=seen)
        return self.out(heads.transpose(1, 2).flatten(2))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


class TokenEmbedding(torch.nn.Module):
    r"""The states :math:`\operatorname{dropout}(\alpha (E_w + P_t))` of token :math:`w` at position :math:`t`, and the
    logits :math:`E h` of a state :math:`h`.

    One matrix :math:`E` serves source, target and output, whose vocabulary is one. Positions are learned. Both tables
    start with variance :math:`1/n`, with which the logits of a normalised :math:`h` have variance 1.

    Args:
        sizes: sizes of the system.
        scale: the factor :math:`\alpha`; :math:`\sqrt n` makes the states as large as normalised ones.

    Shapes: ids ``(B, T)`` to states ``(B, T, dim)``; states to logits ``(B, T, vocabulary)``.
    """

    def __init__(self, sizes: Sizes, scale: float):
        super().__init__()
        self.scale = scale
        self.tokens = torch.nn.Parameter(torch.empty(sizes.vocabulary, sizes.dim))
        self.positions = torch.nn.Parameter(torch.empty(sizes.max_length, sizes.dim))
        self.dropout = torch.nn.Dropout(sizes.dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for table in (self.tokens, self.positions):
            torch.nn.init.normal_(table, std=table.size(1) ** -0.5)

    def forward(self, ids: Tensor, first: int) -> Tensor:
        """States of tokens at the positions ``first``, ``first + 1``, ..."""
        position = self.positions[first : first + ids.size(1)]
        return self.dropout(self.scale * (F.embedding(ids, self.tokens) + position))

    def logits(self, states: Tensor) -> Tensor:
        return F.linear(states, self.tokens)


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
        return EncoderLayer(self.sizes, self.make_attention())

    def make_decoder_layer(self, number: int) -> torch.nn.Module:
        """The layer of that number, from 0."""
        return DecoderLayer(self.sizes, self.make_attention(), self.make_attention())

    def make_attention(self) -> Attention:
        """An attention, of which a layer of the encoder has one and a layer of the decoder two."""
        return Attention(self.sizes.dim, self.sizes.num_heads)

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
