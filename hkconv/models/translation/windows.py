"""What a convolution sees of a sentence: the positions around each one, or those up to it."""

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.models.translation.seq2seq import Cache


def around(x: Tensor, padding: Tensor, width: int) -> Tensor:
    """Each position in the middle of ``width`` ones, with zeros beyond both ends of the sentence.

    Shapes: ``(B, S, d)`` and padding ``(B, S)`` to ``(B, S, d, width)``.
    """
    before = (width - 1) // 2
    x = x.masked_fill(padding.unsqueeze(-1), 0)
    return F.pad(x, (0, 0, before, width - 1 - before)).unfold(1, width, 1)


def up_to(x: Tensor, width: int, cache: Cache | None = None) -> Tensor:
    """Each position as the last of ``width`` ones, with zeros before the sentence; earlier ones come from the cache.

    Shapes: ``(B, T, d) -> (B, T, d, width)``.
    """
    x = torch.cat([cache["inputs"], x], dim=1) if cache else F.pad(x, (0, 0, width - 1, 0))
    if cache is not None:
        cache["inputs"] = x[:, x.size(1) - (width - 1) :]
    return x.unfold(1, width, 1)
