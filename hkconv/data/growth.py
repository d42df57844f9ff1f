"""Random rooted trees: how many children a node has, and which nodes they are, level by level."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from hkconv.errors import InputError

Branching = Literal["power-law", "fixed"]

# P(k children) falls like k^-2.5: between 2 and 3, the usual range of networks with hubs.
TAIL_EXPONENT = 2.5
LARGEST_TREE = 10_000_000


@dataclass(frozen=True, eq=False)
class Tree:
    """A rooted tree, nodes numbered level by level from the root, which is node 0.

    Args:
        parent: (N,) parent of each node, smaller than the node itself; -1 for the root.
        depth: (N,) number of edges to the root.
        branch: (N,) which child of the root a node is or descends from, from 0; -1 for the root.
    """

    parent: Tensor
    depth: Tensor
    branch: Tensor

    @property
    def edge_index(self) -> Tensor:
        """(2, 2 (N - 1)) edges in both directions."""
        child = torch.arange(1, len(self.parent))
        down = torch.stack([self.parent[1:], child])
        return torch.cat([down, down.flip(0)], dim=1)

    def levels(self) -> list[Tensor]:
        """The nodes of every level below the root, top down."""
        return [(self.depth == level).nonzero().flatten() for level in range(1, int(self.depth.max()) + 1)]


def grow_tree(depth: int, branching: Branching, children: float, num_branches: int, generator: torch.Generator) -> Tree:
    """Grow a tree whose root has ``num_branches`` children, each the head of a branch.

    ``"fixed"``: below the root every node above the last level has exactly ``children`` children.
    ``"power-law"``: a level of a branch has about ``children`` times as many nodes as the one above, and each
    picks its parent there with a probability proportional to the parent's Pareto-distributed appeal. So a few
    nodes have many children, many have none, and every branch still reaches ``depth``. Branches are of
    unequal size: their shares are drawn evenly between a half and one and a half.

    Args:
        depth: number of edges from the root to the deepest nodes.
        branching: ``"power-law"`` or ``"fixed"``.
        children: number (``"fixed"``) or mean number (``"power-law"``) of children above the last level.
        num_branches: number of children of the root.
        generator: source of randomness.

    Returns:
        The tree.
    """
    _check_shape(depth, branching, children, num_branches)
    shares = 0.5 + torch.rand(num_branches, generator=generator)
    growth = (shares / shares.mean()).tolist()
    parents = [torch.tensor([-1]), torch.zeros(num_branches, dtype=torch.int64)]
    branches = [torch.tensor([-1]), torch.arange(num_branches)]
    level_start = 1
    for level in range(1, depth):
        above = branches[-1]
        if branching == "fixed":
            picks = torch.arange(len(above)).repeat_interleave(int(children))
        else:
            sizes = [max(1, round(share * children**level)) for share in growth]
            picks = _parents_by_appeal(above, sizes, generator)
        parents.append(level_start + picks)
        branches.append(above[picks])
        level_start += len(above)
    depths = [torch.full_like(nodes, level) for level, nodes in enumerate(parents)]
    return Tree(parent=torch.cat(parents), depth=torch.cat(depths), branch=torch.cat(branches))


def _parents_by_appeal(branch_of: Tensor, sizes: list[int], generator: torch.Generator) -> Tensor:
    """For every branch as many parents as its next level has nodes, drawn by Pareto-distributed weights.

    Args:
        branch_of: (L,) branches of the nodes of a level.
        sizes: number of nodes of the next level, for every branch.
        generator: source of randomness.

    Returns:
        Positions in the level, with repeats, sorted within a branch.
    """
    uniform = 1 - torch.rand(len(branch_of), generator=generator, dtype=torch.float64)
    appeal = uniform ** (-1 / (TAIL_EXPONENT - 1))
    picks = []
    for branch, size in enumerate(sizes):
        candidates = (branch_of == branch).nonzero().flatten()
        drawn = torch.multinomial(appeal[candidates], size, replacement=True, generator=generator)
        picks.append(candidates[drawn].sort().values)
    return torch.cat(picks)


def _check_shape(depth: int, branching: str, children: float, num_branches: int) -> None:
    if branching not in get_args(Branching):
        raise InputError(f"branching must be 'power-law' or 'fixed', got {branching!r}")
    if depth < 1:
        raise InputError(f"depth must be at least 1, got {depth}")
    if not 1 <= children < float("inf"):
        raise InputError(f"children must be at least 1, got {children}")
    if branching == "fixed" and children != int(children):
        raise InputError(f"children must be a whole number with fixed branching, got {children}")
    num_nodes = 1.0
    for level in range(depth):
        num_nodes += num_branches * children**level
        if num_nodes > LARGEST_TREE:
            raise InputError(f"depth={depth} and children={children} give over {LARGEST_TREE:,} nodes")
