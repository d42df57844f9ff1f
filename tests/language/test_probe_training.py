import numpy as np
import pytest
import torch
from tree_cases import random_trees, root_paths

from hkconv.errors import InputError
from hkconv.language import probe_training
from hkconv.language.probe_training import ProbeData, mean_loss, predict, probe_loss, train_probe
from hkconv.language.probes import PROBES, EuclideanProbe, depth_loss, distance_loss
from hkconv.language.tree_batches import batch_trees
from hkconv.language.tree_scores import score_depths, score_distances

DIM = 9


def make_data(seed, count, states):
    trees = random_trees(seed, np.random.default_rng(seed).integers(2, DIM + 1, size=count))
    return ProbeData(torch.cat([states(entry) for entry in trees]), batch_trees(trees))


def encoded(entry):
    """States whose squared distances and norms are those of the tree."""
    vectors = torch.zeros(len(entry), DIM)
    vectors[:, : len(entry)] = torch.from_numpy(root_paths(entry))
    return vectors


def rotated(entry):
    return encoded(entry) @ torch.linalg.qr(torch.randn(DIM, DIM, generator=torch.Generator().manual_seed(9))).Q


def noise(entry):
    seed = hash((len(entry), *entry.heads.tolist())) % 2**31
    return torch.randn(len(entry), DIM, generator=torch.Generator().manual_seed(seed))


def scores(probe, task, data):
    score = score_distances if task == "distance" else score_depths
    with torch.no_grad():
        return score((predict(probe, task, data.states, batch), batch) for batch in data.batches)


def trained(kind, task, states, seed=0):
    generator = torch.Generator().manual_seed(seed)
    probe = PROBES[kind](DIM, DIM, generator)
    losses = train_probe(probe, task, make_data(1, 800, states), make_data(2, 60, states), generator)
    return probe, losses


def test_states_that_are_the_tree_score_full_marks():
    data = make_data(3, 60, encoded)
    probe = EuclideanProbe(DIM, DIM, torch.Generator())
    with torch.no_grad():
        probe.weight.copy_(torch.eye(DIM))
    assert scores(probe, "distance", data) == pytest.approx((1, 1), abs=1e-12)
    assert scores(probe, "depth", data) == pytest.approx((1, 1), abs=1e-12)
    assert max(mean_loss(probe, task, data) for task in ("distance", "depth")) < 1e-6


@pytest.mark.parametrize("kind", PROBES)
def test_a_probe_finds_the_tree_where_it_is_and_not_in_noise(kind):
    # Equal gold distances are predicted almost equal, and each is a rank of its own: so no correlation of 1.
    test = make_data(3, 60, rotated)
    found = scores(trained(kind, "distance", rotated)[0], "distance", test)
    assert found.uuas > 0.97 and found.dspr > 0.9
    missed = scores(trained(kind, "distance", noise)[0], "distance", make_data(3, 60, noise))
    assert missed.uuas < 0.6 and missed.dspr < 0.6


def test_a_depth_probe_finds_depths_where_they_are_and_not_in_noise():
    found = scores(trained("euclidean", "depth", rotated)[0], "depth", make_data(3, 60, rotated))
    assert found.root > 0.97 and found.nspr > 0.9
    missed = scores(trained("euclidean", "depth", noise)[0], "depth", make_data(3, 60, noise))
    assert missed.root < 0.6 and missed.nspr < 0.3


def test_the_best_weights_are_kept_and_the_loss_falls():
    probe, losses = trained("euclidean", "distance", rotated)
    dev = make_data(2, 60, rotated)
    assert mean_loss(probe, "distance", dev) == pytest.approx(min(losses), rel=2 * probe_training.BETTER_BY)
    assert min(losses) < losses[0] / 2
    assert len(losses) <= probe_training.EPOCHS


def test_training_stops_after_the_last_rate(monkeypatch):
    monkeypatch.setattr(probe_training, "BETTER_BY", 1.0)
    # No loss is better than all of the one before, so each epoch uses up a rate.
    assert len(trained("euclidean", "depth", noise)[1]) == len(probe_training.LEARNING_RATES)


def test_equal_seeds_give_equal_weights():
    first, second, third = (trained("hyperbolic", "distance", noise, seed)[0].weight for seed in (0, 0, 1))
    assert torch.equal(first, second) and not torch.equal(first, third)


def test_the_mean_loss_counts_every_sentence_once(generator):
    data = make_data(4, 130, noise)
    probe = EuclideanProbe(DIM, 4, generator)
    total, count = [0.0, 0.0], 0
    for batch in data.batches:
        for row in range(len(batch.rows)):
            one = type(batch)(*(field[row : row + 1] for field in batch))
            states = data.states[one.rows]
            total[0] += distance_loss(probe.distances(states), one.distances, one.present).item()
            total[1] += depth_loss(probe.depths(states), one.depths, one.present).item()
            count += 1
    assert count == 130
    assert mean_loss(probe, "distance", data) == pytest.approx(total[0] / count, rel=1e-5)
    assert mean_loss(probe, "depth", data) == pytest.approx(total[1] / count, rel=1e-5)
    assert probe_loss(probe, "depth", data.states, data.batches[0]).requires_grad


def test_a_loss_that_is_not_finite_is_named(generator):
    data = make_data(5, 10, lambda entry: torch.full((len(entry), DIM), torch.nan))
    with pytest.raises(InputError, match="loss of a depth probe is nan after epoch 1"):
        train_probe(EuclideanProbe(DIM, DIM, generator), "depth", data, data, generator)
