"""Embedded node datasets that need no file and no network: a random hierarchy and an epidemic on a tree."""

import math

import torch
from torch import Tensor
from torch_geometric.data import Data

from hkconv.data.catalog import DISEASE_FRACTIONS
from hkconv.data.checks import check_num_splits
from hkconv.data.dataset import NodeDataset, Split
from hkconv.data.growth import Branching, Tree, grow_tree
from hkconv.data.splits import seeded_generator, stratified_splits
from hkconv.errors import InputError

HIERARCHY_FRACTIONS = (0.6, 0.2, 0.2)

# Split i uses the stream (seed, i); the data itself one that no split reaches.
DATA_STREAM = 2**31

# Standard deviation of susceptibility in log odds. With 1 chance decides nearly alone: who knows tree, rates and
# every susceptibility is right for 70 % of the nodes, guessing the larger class for 69 %. With 3: 81 % and 71 %.
SUSCEPTIBILITY_SPREAD = 3.0
SMALLEST_OUTBREAK = 0.1
OUTBREAK_ATTEMPTS = 100


def hierarchy(
    depth: int = 5,
    branching: Branching = "power-law",
    children: float = 3,
    num_classes: int = 8,
    num_features: int = 16,
    step: float = 1.0,
    noise: float = 1.0,
    num_splits: int = 10,
    seed: int = 0,
) -> NodeDataset:
    """A random hierarchy, such as an organisation or a taxonomy, whose top-level subtree is to be found.

    The root has ``num_classes`` children; a node's label is which of their subtrees it belongs to. The root
    belongs to none: it carries the label of the largest subtree, because every node needs one, and is in no
    split. Features diffuse down the tree, ``z_child = z_parent + step * N(0, I)`` from ``z_root = 0``, and
    are observed with noise, ``x = z + noise * N(0, I)``. Edges go both ways. ``graph.parent`` keeps the tree.

    The defaults are those of a middling organisation: 8 divisions, 5 levels below the root, a mean of 3
    reports, about 970 members in divisions of unequal size. One step down and one measurement blur the
    features equally, the choice that needs no tuning. They were set once, without training a model.

    Args:
        depth: number of edges from the root to the deepest nodes.
        branching: ``"power-law"`` (a few nodes have many children) or ``"fixed"`` (all have the same number).
        children: mean or fixed number of children above the last level, below the root.
        num_classes: number of top-level subtrees.
        num_features: number of feature columns.
        step: standard deviation of a feature's change from parent to child.
        noise: standard deviation of the observation noise.
        num_splits: number of stratified random 60/20/20 splits.
        seed: seed of tree, features and splits.

    Returns:
        The dataset, named ``"tree"``.
    """
    if num_classes < 2:
        raise InputError(f"num_classes must be at least 2, got {num_classes}")
    _check_features_wanted(num_features, noise)
    if not 0 <= step < math.inf:
        raise InputError(f"step must be zero or larger, got {step}")
    check_num_splits(num_splits, "dataset 'tree'")
    generator = seeded_generator(seed, DATA_STREAM)
    tree = grow_tree(depth, branching, children, num_classes, generator)
    x = _observe(_diffuse(tree, num_features, step, generator), noise, generator)
    y = tree.branch.clone()
    y[0] = y[1:].bincount().argmax()
    splits = [
        Split(*(members + 1 for members in split.parts.values()))
        for split in stratified_splits(y[1:], HIERARCHY_FRACTIONS, num_splits, seed)
    ]
    return NodeDataset("tree", _graph(tree, x, y), splits, num_classes, source="embedded: hierarchy")


def disease(
    depth: int = 6,
    children: float = 3,
    infection: float = 0.8,
    recovery: float = 0.3,
    num_features: int = 11,
    noise: float = 1.0,
    num_splits: int = 10,
    seed: int = 0,
) -> NodeDataset:
    """An SIR epidemic that descends a tree of contacts; who caught it is to be found.

    After the description of the disease-spreading trees of HGCN (Chami et al. 2019): an SIR epidemic on a
    tree, features that tell susceptibility. The rest is a design of our own. Contacts form a power-law tree.
    Every node has a susceptibility ``s ~ N(0, 3²)``, in log odds. The root falls ill; in each round an ill
    node infects each healthy child with the probability ``sigmoid(logit(infection) + s_child)``, then
    recovers for good with the probability ``recovery``, until nobody is ill. The label is 1 for a node that
    was ever ill. Features measure susceptibility along a random unit vector, ``x = s v + noise * N(0, I)``:
    they say who would catch it, the tree who could. Edges go both ways. ``graph.parent`` keeps the tree.

    By default about 1,100 nodes, the size of HGCN's tree (1,044), of which mostly 15 to 40 % fall ill, as in
    HGCN's two files (20 and 40 %). An epidemic that reaches or spares less than a tenth of the nodes is run
    anew.

    Args:
        depth: number of edges from the root to the deepest nodes.
        children: mean number of children above the last level.
        infection: probability that an ill node infects an average child in one round, between 0 and 1.
        recovery: probability that an ill node recovers in one round, above 0.
        num_features: number of feature columns.
        noise: standard deviation of the observation noise.
        num_splits: number of stratified random 30/10/60 splits.
        seed: seed of tree, epidemic, features and splits.

    Returns:
        The dataset, named ``"disease"``.
    """
    _check_features_wanted(num_features, noise)
    if not 0 < infection < 1:
        raise InputError(f"infection must lie between 0 and 1, got {infection}")
    if not 0 < recovery <= 1:
        raise InputError(f"recovery must be above 0 and at most 1, got {recovery}")
    check_num_splits(num_splits, "dataset 'disease'")
    generator = seeded_generator(seed, DATA_STREAM)
    tree = grow_tree(depth, "power-law", children, max(1, round(children)), generator)
    susceptibility = SUSCEPTIBILITY_SPREAD * torch.randn(len(tree.parent), generator=generator)
    chance = torch.sigmoid(math.log(infection / (1 - infection)) + susceptibility)
    y = _outbreak(tree, chance, recovery, generator).long()
    direction = torch.randn(num_features, generator=generator)
    latent = susceptibility[:, None] * (direction / direction.norm())
    x = _observe(latent, noise, generator)
    splits = stratified_splits(y, DISEASE_FRACTIONS, num_splits, seed)
    return NodeDataset("disease", _graph(tree, x, y), splits, num_classes=2, source="embedded: disease")


def _check_features_wanted(num_features: int, noise: float) -> None:
    if num_features < 1:
        raise InputError(f"num_features must be at least 1, got {num_features}")
    if not 0 <= noise < math.inf:
        raise InputError(f"noise must be zero or larger, got {noise}")


def _diffuse(tree: Tree, num_features: int, step: float, generator: torch.Generator) -> Tensor:
    """Features that are zero at the root and take one Gaussian step on every edge down."""
    z = torch.zeros(len(tree.parent), num_features)
    for nodes in tree.levels():
        z[nodes] = z[tree.parent[nodes]] + step * torch.randn(len(nodes), num_features, generator=generator)
    return z


def _observe(latent: Tensor, noise: float, generator: torch.Generator) -> Tensor:
    return latent + noise * torch.randn(latent.shape, generator=generator)


def _graph(tree: Tree, x: Tensor, y: Tensor) -> Data:
    return Data(x=x, edge_index=tree.edge_index, y=y, parent=tree.parent)


def _outbreak(tree: Tree, chance: Tensor, recovery: float, generator: torch.Generator) -> Tensor:
    """Who was ever ill, in the first epidemic that reached and spared enough nodes to learn from."""
    for _ in range(OUTBREAK_ATTEMPTS):
        was_ill = _epidemic(tree, chance, recovery, generator)
        if SMALLEST_OUTBREAK <= was_ill.float().mean() <= 1 - SMALLEST_OUTBREAK:
            return was_ill
    raise InputError(
        f"infection and recovery leave fewer than {SMALLEST_OUTBREAK:.0%} of the nodes ill or healthy in "
        f"{OUTBREAK_ATTEMPTS} epidemics: bring infection closer to 0.8 and recovery to 0.3, or lower depth"
    )


def _epidemic(tree: Tree, chance: Tensor, recovery: float, generator: torch.Generator) -> Tensor:
    """One run of the SIR model in synchronous rounds; returns who was ever ill."""
    num_nodes = len(chance)
    was_ill = torch.zeros(num_nodes, dtype=torch.bool)
    was_ill[0] = True
    is_ill = was_ill.clone()
    while is_ill.any():
        luck, strength = torch.rand(2, num_nodes, generator=generator)
        # The root's parent is -1, the last node: harmless, for the root was ill from the start.
        caught = ~was_ill & is_ill[tree.parent] & (luck < chance)
        is_ill = (is_ill & (strength >= recovery)) | caught
        was_ill |= caught
    return was_ill
