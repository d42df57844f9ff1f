"""Euclidean products and norms as the maps need them: no overflow before its time, no NaN at zero."""

import torch
from torch import Tensor


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Product over the last dimension, kept as size 1."""
    return (a * b).sum(-1, keepdim=True)


def safe_norm(v: Tensor) -> Tensor:
    """Norm over the last dimension, kept as size 1, with gradient 0 at 0.

    Scaling by the largest coordinate keeps the squares finite for any finite vector; the scale carries no
    gradient because the norm does not depend on it.
    """
    largest = v.detach().abs().amax(-1, keepdim=True)
    zero = largest == 0
    scaled = v / torch.where(zero, 1, largest)
    square = (scaled * scaled).sum(-1, keepdim=True)
    return largest * torch.where(zero, 1, square).sqrt()
