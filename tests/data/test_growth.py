import pytest
import torch

from hkconv.data.growth import grow_tree
from hkconv.data.splits import seeded_generator
from hkconv.errors import InputError


def grow(depth=5, branching="power-law", children=3, num_branches=6, seed=0):
    return grow_tree(depth, branching, children, num_branches, seeded_generator(seed))


@pytest.mark.parametrize("branching", ["power-law", "fixed"])
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_every_node_hangs_one_level_below_an_earlier_one_in_its_branch(branching, depth):
    tree = grow(depth, branching)
    nodes = torch.arange(1, len(tree.parent))
    assert tree.parent[0] == -1 and tree.depth[0] == 0 and tree.branch[0] == -1
    assert (tree.parent[1:] < nodes).all() and (tree.parent[1:] >= 0).all()
    assert torch.equal(tree.depth[1:], tree.depth[tree.parent[1:]] + 1)
    below_heads = nodes[tree.depth[1:] > 1]
    assert torch.equal(tree.branch[below_heads], tree.branch[tree.parent[below_heads]])


@pytest.mark.parametrize("branching", ["power-law", "fixed"])
def test_every_branch_reaches_exactly_the_depth(branching):
    tree = grow(4, branching)
    assert [int(tree.depth[tree.branch == branch].max()) for branch in range(6)] == [4] * 6


def test_edges_go_both_ways_along_the_tree():
    tree = grow()
    num_links = len(tree.parent) - 1
    down, up = tree.edge_index.split(num_links, dim=1)
    assert torch.equal(down, up.flip(0))
    assert torch.equal(tree.parent[down[1]], down[0])


def test_fixed_branching_is_exact():
    tree = grow(4, "fixed", children=3, num_branches=5)
    counts = tree.parent[1:].bincount(minlength=len(tree.parent))
    assert counts[0] == 5
    assert (counts[(tree.depth > 0) & (tree.depth < 4)] == 3).all()
    assert (counts[tree.depth == 4] == 0).all()
    assert len(tree.parent) == 1 + 5 * (1 + 3 + 9 + 27)


def test_power_law_grows_as_much_but_has_hubs_and_early_leaves():
    largest = []
    for seed in range(5):
        tree = grow(seed=seed)
        counts = tree.parent[1:].bincount(minlength=len(tree.parent))
        inner = counts[(tree.depth > 0) & (tree.depth < 5)]
        assert inner.float().mean() == pytest.approx(3, rel=0.05)
        assert (inner == 0).float().mean() > 0.05
        largest.append(int(inner.max()))
    # With the same mean, Poisson numbers of children would hardly ever pass 11.
    assert sorted(largest)[2] > 14


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"branching": "wild"}, "branching must be 'power-law' or 'fixed', got 'wild'"),
        ({"depth": 0}, "depth must be at least 1, got 0"),
        ({"children": 0.5}, "children must be at least 1, got 0.5"),
        ({"children": float("nan")}, "children must be at least 1, got nan"),
        ({"children": 2.5, "branching": "fixed"}, "children must be a whole number with fixed branching"),
        ({"depth": 10**9}, "give over 10,000,000 nodes"),
    ],
)
def test_impossible_trees_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        grow(**options)
