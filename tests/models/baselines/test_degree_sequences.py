import math
from functools import cache

import networkx
import numpy as np
import pytest
import torch
from heterophily_cases import as_networkx, random_graph

from hkconv.models.baselines.degree_sequences import compare_degrees
from hkconv.models.baselines.simple_graph import simple_graph


def literal_warping(a, b):
    """The least cost over all alignments of two sequences of (degree, number), by recursion."""

    @cache
    def least(i, j):
        ratio = max(a[i][0], b[j][0]) / min(a[i][0], b[j][0]) - 1
        before = [least(*p) for p in ((i - 1, j), (i, j - 1), (i - 1, j - 1)) if min(p) >= 0]
        return ratio * max(a[i][1], b[j][1]) + min(before, default=0.0)

    return least(len(a) - 1, len(b) - 1)


def literal_distances(graph, u, v, hops):
    """f_0 to f_hops of struc2vec, NaN from where a ring is empty."""
    out, total = [], 0.0
    for k in range(hops + 1):
        rings = []
        for node in (u, v):
            paths = networkx.single_source_shortest_path_length(graph, node)
            degrees = sorted(graph.degree[other] for other, path in paths.items() if path == k)
            rings.append([(degree, degrees.count(degree)) for degree in sorted(set(degrees))])
        total = total + literal_warping(*rings) if all(rings) else math.nan
        out.append(total)
    return out


@pytest.mark.parametrize("hops", [0, 1, 3])
def test_equals_the_equations_of_struc2vec(hops, generator):
    edge_index = random_graph(generator)
    graph = as_networkx(edge_index)
    for u, v, distance in zip(*compare_degrees(simple_graph(*edge_index, 30), hops)):
        if graph.degree[u] and graph.degree[v]:
            np.testing.assert_allclose(distance, literal_distances(graph, u, v, hops))


def test_a_node_is_compared_with_few_of_like_degree(generator):
    nodes = 200
    graph = simple_graph(*random_graph(generator, nodes, 500), nodes)
    pairs = compare_degrees(graph, 1)
    reach = math.ceil(math.log2(nodes))
    number = np.bincount(np.concatenate([pairs.first, pairs.second]), minlength=nodes)
    assert number.max() == 2 * reach and number.min() == reach
    assert len(set(zip(pairs.first.tolist(), pairs.second.tolist()))) == pairs.first.size
    ordered = np.sort(graph.degree)
    furthest = np.abs(ordered[reach:] - ordered[:-reach]).max()
    assert np.abs(graph.degree[pairs.first] - graph.degree[pairs.second]).max() <= furthest


def test_among_equal_degrees_the_neighbours_decide(generator):
    """Two stars of 40 and of 3 leaves, numbered at random: all leaves of the small one are compared with each other."""
    graph = networkx.disjoint_union(networkx.star_graph(40), networkx.star_graph(3))
    order = torch.randperm(45, generator=generator)
    pairs = compare_degrees(simple_graph(*order[torch.tensor(list(graph.edges)).T], 45), 1)
    leaves = order[42:].numpy()
    small = np.isin(pairs.first, leaves) & np.isin(pairs.second, leaves)
    assert small.sum() == 3
    assert (pairs.distance[small] == 0).all()


def test_a_node_without_links_is_unlike_one_with():
    pairs = compare_degrees(simple_graph(torch.tensor([0]), torch.tensor([1]), 4), 1)
    found = {frozenset(pair): f for *pair, f in zip(pairs.first.tolist(), pairs.second.tolist(), pairs.distance)}
    assert found[frozenset((0, 1))].tolist() == [0, 0]
    assert found[frozenset((2, 3))][0] == 0 and np.isnan(found[frozenset((2, 3))][1])
    assert found[frozenset((0, 2))][0] == math.inf


def test_one_node_has_nobody_to_be_compared_with():
    empty = torch.empty(0, dtype=torch.long)
    assert compare_degrees(simple_graph(empty, empty, 1), 2).first.size == 0
