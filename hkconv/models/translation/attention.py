"""Dot-product attention with a cache, for every Euclidean decoder."""

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.models.translation.seq2seq import Cache


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

    Shapes: ``(B, T, dim)`` and memory ``(B, S, memory_dim)`` with padding ``(B, S)`` to ``(B, T, dim)``.
    """

    def __init__(self, dim: int, num_heads: int, memory_dim: int | None = None):
        super().__init__()
        self.num_heads = num_heads
        self.query = torch.nn.Linear(dim, dim)
        self.key = torch.nn.Linear(memory_dim or dim, dim)
        self.value = torch.nn.Linear(memory_dim or dim, dim)
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

    def _attend(self, x: Tensor, key: Tensor, value: Tensor, seen: Tensor) -> Tensor:
        heads = F.scaled_dot_product_attention(self._split(self.query(x)), key, value, attn_mask=seen)
        return self.out(heads.transpose(1, 2).flatten(2))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
