import networkx
import numpy as np
import pytest
import torch
from heterophily_cases import as_networkx, random_graph

from hkconv.models.baselines.simple_graph import search, simple_graph


def test_directions_loops_and_repeats_do_not_count():
    graph = simple_graph(torch.tensor([0, 1, 0, 2, 3]), torch.tensor([1, 0, 1, 2, 1]), 5)
    neighbours = [graph.neighbor[a:b].tolist() for a, b in zip(graph.pointer, graph.pointer[1:])]
    assert neighbours == [[1], [0, 3], [], [1], []]
    assert graph.degree.tolist() == [1, 2, 0, 1, 0]


@pytest.mark.parametrize("limit", [0, 1, 2, 100])
def test_search_finds_the_shortest_paths_in_order(limit, generator):
    edge_index = random_graph(generator)
    graph = simple_graph(*edge_index, 30)
    expected = as_networkx(edge_index)
    for start in range(30):
        distance, queue = np.full(30, -1, np.int32), np.empty(30, np.int32)
        found = search(start, limit, graph.pointer, graph.neighbor, distance, queue)
        paths = networkx.single_source_shortest_path_length(expected, start, limit)
        assert dict(paths) == {int(node): int(distance[node]) for node in queue[:found]}
        assert (np.diff(distance[queue[:found]]) >= 0).all()
        assert (distance < 0).sum() == 30 - found


def test_graphs_with_the_same_links_are_equal(generator):
    edge_index = random_graph(generator)
    first, second = simple_graph(*edge_index, 30), simple_graph(*edge_index.flip(1), 30)
    assert first == second and hash(first) == hash(second)
    assert first != simple_graph(*edge_index, 31)
    assert first != simple_graph(*edge_index[:, edge_index.min(0).values > 0], 30)
