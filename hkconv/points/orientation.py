"""The energy does not change under rotations about the origin, so solvers turn their result into one fixed pose."""

import torch
from torch import Tensor


def canonical_pose(vectors: Tensor) -> Tensor:
    r"""Rotate (or reflect) ``K`` vectors so that the first lies on the first axis, the second in the plane of
    the first two axes with a positive second coordinate, and so on: a lower triangular matrix.

    Args:
        vectors: one vector a row, ``(K, n)`` with ``n <= K``.

    Returns:
        Vectors with the same lengths and angles, ``(K, n)``.
    """
    upper = torch.linalg.qr(vectors.mT).R
    sign = torch.where(upper.diagonal() < 0, -1, 1).to(vectors.dtype)
    return (sign.unsqueeze(-1) * upper).mT.contiguous()
