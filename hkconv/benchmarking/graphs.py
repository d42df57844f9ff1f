"""Seeded random graphs with exactly as many edges as asked for: even ones, and ones with hubs."""

import torch
from torch import Tensor

from hkconv.benchmarking.shapes import check_targets

# Without a bound, Zipf's first node would take a tenth of all edges, more than hubs of real graphs do.
HUB_SHARE = 0.03


def make_edges(nodes: int, edges: int, targets: str, seed: int = 0) -> Tensor:
    """Edges whose sources are uniform; repeats and self loops may occur, as chance has it.

    With ``"power-law"`` targets, the node of rank r is a target with a probability in proportion to 1/r
    (Zipf's law with exponent 1), but at most ``HUB_SHARE``, where the nodes are many enough for that. Ranks are
    dealt to nodes at random, so that hubs do not lie side by side in memory.

    Args:
        nodes: number of nodes.
        edges: number of edges.
        targets: ``"uniform"`` or ``"power-law"``.
        seed: decides everything.

    Returns:
        ``(2, edges)`` int64, source to target, on the CPU.
    """
    check_targets((targets,))
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(nodes, (edges,), generator=generator)
    if targets == "uniform":
        return torch.stack([source, torch.randint(nodes, (edges,), generator=generator)])
    bounds = target_shares(nodes).cumsum(0)
    drawn = torch.rand(edges, generator=generator, dtype=torch.float64) * bounds[-1]
    # A draw may round up to the last bound itself.
    rank = torch.searchsorted(bounds, drawn, right=True).clamp_(max=nodes - 1)
    return torch.stack([source, torch.randperm(nodes, generator=generator)[rank]])


def target_shares(nodes: int) -> Tensor:
    """The probability of each rank to be a target under ``"power-law"``, float64."""
    if nodes * HUB_SHARE <= 1:
        return torch.full((nodes,), 1 / nodes, dtype=torch.float64)
    share = 1 / torch.arange(1, nodes + 1, dtype=torch.float64)
    share /= share.sum()
    hubs = 0
    # What the bound takes from the hubs goes to the others in proportion, which may make a hub of the next one.
    while share[hubs] > HUB_SHARE:
        hubs += int((share[hubs:] > HUB_SHARE).sum())
        share[:hubs] = HUB_SHARE
        share[hubs:] *= (1 - hubs * HUB_SHARE) / share[hubs:].sum()
    return share


def hub_share(edge_index: Tensor) -> float:
    """The share of all edges that end at the most frequent target."""
    return edge_index[1].bincount().max().item() / edge_index.size(1)
