import numpy as np
import pytest

from hkconv.models.baselines.latent_neighbours import MOST, latent_neighbours


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
    pairs = latent_neighbours(places, wanted)
    assert pairs.shape == (2, wanted)
    assert_is_all_within(places, pairs, np.sort(squares_of(places))[wanted - 1])


def test_pairs_at_the_same_distance_stand_together():
    places = np.stack(np.meshgrid(np.arange(5.0), np.arange(5.0)), -1).reshape(-1, 2)
    pairs = latent_neighbours(places, 30)
    assert pairs.shape == (2, 40)
    assert_is_all_within(places, pairs, 1)


def test_too_many_at_the_same_distance_fall_together():
    """Of 45 pairs, 36 in one place."""
    places = np.zeros((10, 2))
    places[9] = 5
    assert latent_neighbours(places, 36 // MOST).shape == (2, 36)
    assert latent_neighbours(places, 36 // MOST - 1).shape == (2, 0)


def test_all_pairs_are_the_most_there_can_be():
    places = np.array([[0.0, 0], [1, 0], [5, 5]])
    assert latent_neighbours(places, 1000).shape == (2, 3)
    assert latent_neighbours(places, 0).shape == (2, 0)
    assert latent_neighbours(np.zeros((1, 2)), 3).shape == (2, 0)
