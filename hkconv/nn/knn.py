"""Neighborhoods of a point cloud: the nearest points by hyperbolic distance."""

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.geometry.curvature import Curvature
from hkconv.geometry.relative import excess

# Elements of the largest temporary of one block of targets: 64 MiB in float32.
BLOCK_ELEMENTS = 1 << 24


@torch.no_grad()
def knn_graph(
    x: Tensor, k: int, batch: Tensor | None = None, *, loop: bool = False, curvature: Curvature = -1.0
) -> Tensor:
    r"""Edges from the ``k`` nearest points of each point, by :math:`d(x_i, x_j)`, computed exactly in blocks.

    Args:
        x: points, ``(N, n+1)``.
        k: number of neighbors; a point with fewer candidates gets those.
        batch: graph of each point, ``(N,)``; neighbors are sought within the same graph.
        loop: count a point among its own neighbors.
        curvature: negative curvature.

    Returns:
        ``edge_index`` of shape ``(2, E)``: neighbors in the first row, the points they belong to in the second,
        nearest first.
    """
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}")
    if batch is not None and batch.shape != x.shape[:1]:
        raise InputError(f"batch must have shape ({x.size(0)},), got {tuple(batch.shape)}")
    rows = max(1, BLOCK_ELEMENTS // max(1, x.numel()))
    blocks = [_block(x, k, batch, start, start + rows, loop, curvature) for start in range(0, x.size(0), rows)]
    return torch.cat(blocks, dim=1) if blocks else torch.empty(2, 0, dtype=torch.long, device=x.device)


def _block(x: Tensor, k: int, batch: Tensor | None, start: int, stop: int, loop: bool, curvature: Curvature) -> Tensor:
    index = torch.arange(x.size(0), device=x.device)
    target = index[start:stop]
    # The excess orders pairs as the distance does.
    apart = excess(x[start:stop].unsqueeze(1), x, curvature).squeeze(-1)
    excluded = torch.zeros_like(apart, dtype=torch.bool) if loop else target.unsqueeze(1) == index
    if batch is not None:
        excluded = excluded | (batch[start:stop].unsqueeze(1) != batch)
    apart = apart.masked_fill(excluded, torch.inf)
    nearest, source = apart.topk(min(k, x.size(0)), largest=False)
    found = nearest < torch.inf
    return torch.stack([source[found], target.unsqueeze(1).expand_as(source)[found]])
