"""Tokens and positions as vectors, and vectors as logits of tokens: what all Euclidean systems begin and end with."""

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.models.translation.seq2seq import Sizes


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
