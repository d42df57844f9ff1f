import networkx
import numpy as np
import pytest
import torch
from heterophily_cases import as_networkx, random_graph

from hkconv.models.baselines import isomap as module
from hkconv.models.baselines.isomap import MOST, STEPS, isomap, latent_neighbors
from hkconv.models.baselines.simple_graph import simple_graph


@pytest.fixture(autouse=True)
def nothing_is_remembered():
    isomap.cache_clear()


def graph_of(networkx_graph):
    edges = torch.tensor(list(networkx_graph.edges), dtype=torch.long).reshape(-1, 2).T
    return simple_graph(*edges, networkx_graph.number_of_nodes())


def literal_scaling(squares):
    """Classical scaling to two dimensions, up to the sign of each."""
    centre = np.eye(len(squares)) - 1 / len(squares)
    values, vectors = np.linalg.eigh(-centre @ squares @ centre / 2)
    return np.sqrt(values[-2:][::-1]) * vectors[:, -2:][:, ::-1]


def assert_same_up_to_scale_and_sign(found, expected, tolerance):
    found = found / np.abs(found).max()
    expected = expected / np.abs(expected).max()
    sign = np.sign((found * expected).sum(axis=0))
    np.testing.assert_allclose(found, expected * sign, atol=tolerance)


def test_equals_classical_scaling_of_shortest_paths(generator):
    edge_index = random_graph(generator)
    paths = np.asarray(networkx.floyd_warshall_numpy(as_networkx(edge_index)))
    joined = np.isfinite(paths)
    assert not joined.all()
    paths[~joined] = paths[joined].max() + 1
    assert_same_up_to_scale_and_sign(isomap(simple_graph(*edge_index, 30)), literal_scaling(paths**2), 2 / STEPS)


def test_a_path_is_a_line_and_a_grid_is_a_grid():
    line = isomap(graph_of(networkx.path_graph(9)))
    np.testing.assert_allclose(np.diff(line[:, 0]), np.diff(line[:, 0])[0], rtol=1e-5)
    assert (line[:, 1] == 0).all()
    grid = networkx.convert_node_labels_to_integers(networkx.grid_2d_graph(9, 5), ordering="sorted")
    places = isomap(graph_of(grid)).reshape(9, 5, 2)
    long, short = (np.diff(places[..., 0], axis=0), np.diff(places[..., 1], axis=1))
    assert (long > 0).all() or (long < 0).all()
    assert (short > 0).all() or (short < 0).all()


def test_landmarks_give_nearly_the_same_places(monkeypatch):
    grid = graph_of(networkx.convert_node_labels_to_integers(networkx.grid_2d_graph(20, 10), ordering="sorted"))
    line = graph_of(networkx.path_graph(150))
    exact, exact_line = isomap(grid), isomap(line)
    isomap.cache_clear()
    monkeypatch.setattr(module, "LANDMARKS", 100)
    places = isomap(grid)
    assert not np.array_equal(places, exact)
    for k in range(2):
        assert abs(np.corrcoef(places[:, k], exact[:, k])[0, 1]) > 0.98
    np.testing.assert_allclose(
        np.abs(np.diff(isomap(line)[:, 0])) / STEPS, np.diff(exact_line[:, 0])[0] / STEPS, rtol=0.2
    )


def test_places_move_with_the_nodes(generator):
    edge_index = random_graph(generator)
    order = torch.randperm(30, generator=generator)
    moved = isomap(simple_graph(*order.argsort()[edge_index], 30))
    assert np.array_equal(moved, isomap(simple_graph(*edge_index, 30))[order.numpy()])


def test_nodes_that_no_distance_tells_apart_have_one_place(generator):
    """Five leaves on each of three nodes of a random graph: rounding must not order them."""
    edge_index = random_graph(generator, 20, 40)
    leaves = torch.stack([torch.arange(20, 35), torch.arange(3).repeat_interleave(5)])
    places = isomap(simple_graph(*torch.cat([edge_index, leaves], dim=1), 35))
    assert len(np.unique(places[20:], axis=0)) == 3


def test_one_node_and_no_links_have_places():
    assert isomap(graph_of(networkx.empty_graph(1))).tolist() == [[0, 0]]
    assert np.isfinite(isomap(graph_of(networkx.empty_graph(4)))).all()
    two = isomap(graph_of(networkx.path_graph(2)))
    assert sorted(two[:, 0].tolist()) == [-STEPS, STEPS] and (two[:, 1] == 0).all()


def test_a_copy_of_the_graph_is_known_again(generator):
    edge_index = random_graph(generator)
    assert isomap(simple_graph(*edge_index, 30)) is isomap(simple_graph(*edge_index.clone(), 30))


def squares_of(places):
    gap = places[:, None] - places
    return (gap**2).sum(-1)[np.triu_indices(len(places), 1)]


def assert_is_all_within(places, pairs, square):
    """The pairs are just those whose squared distance is at most ``square``, each once."""
    found = {tuple(sorted(pair)) for pair in pairs.T.tolist()}
    assert len(found) == pairs.shape[1]
    first, second = np.triu_indices(len(places), 1)
    near = squares_of(places) <= square
    assert found == set(zip(first[near].tolist(), second[near].tolist()))


@pytest.mark.parametrize("wanted", [1, 7, 100, 1225])
def test_takes_the_nearest_pairs(wanted):
    places = np.random.default_rng(0).integers(-(10**6), 10**6, (50, 2)).astype(float)
    pairs = latent_neighbors(places, wanted)
    assert pairs.shape == (2, wanted)
    assert_is_all_within(places, pairs, np.sort(squares_of(places))[wanted - 1])


def test_pairs_at_the_same_distance_stand_together():
    places = np.stack(np.meshgrid(np.arange(5.0), np.arange(5.0)), -1).reshape(-1, 2)
    pairs = latent_neighbors(places, 30)
    assert pairs.shape == (2, 40)
    assert_is_all_within(places, pairs, 1)


def test_too_many_at_the_same_distance_fall_together():
    """Of 45 pairs, 36 in one place."""
    places = np.zeros((10, 2))
    places[9] = 5
    assert latent_neighbors(places, 36 // MOST).shape == (2, 36)
    assert latent_neighbors(places, 36 // MOST - 1).shape == (2, 0)


def test_all_pairs_are_the_most_there_can_be():
    places = np.array([[0.0, 0], [1, 0], [5, 5]])
    assert latent_neighbors(places, 1000).shape == (2, 3)
    assert latent_neighbors(places, 0).shape == (2, 0)
    assert latent_neighbors(np.zeros((1, 2)), 3).shape == (2, 0)
