"""Networks that train together: each as it would by itself, and none by another's numbers."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from hkconv import models
from hkconv.data import Split
from hkconv.engine.many import NetworkStack, NotMappedError, OwnRate, train_many
from hkconv.engine.settings import Settings
from hkconv.models import GCN
from hkconv.tasks.fitting import fit
from hkconv.tasks.many import ManyNodeTask

# The reference is what vmap takes; a fused backend differs by rounding, which 20 epochs enlarge.
HKN = {"name": "hkn", "kernel_size": 3, "backend": "reference"}
SYSTEMS = {
    "HKN, views": HKN,
    "HKN, paper": {**HKN, "form": "paper"},
    "GCN": {"name": "gcn"},
    "MLP": {"name": "mlp"},
    "HyboNet": {"name": "hybonet"},
}
SETTINGS = (
    Settings(lr=0.01, weight_decay=0.0, epochs=20, patience=20, seed=0),
    Settings(lr=0.003, weight_decay=5e-3, epochs=20, patience=20, seed=1),
    Settings(lr=0.02, weight_decay=0.1, epochs=20, patience=20, seed=2),
    Settings(lr=0.005, weight_decay=0.01, epochs=20, patience=20, seed=3),
)


def build(tree, seed, dtype=torch.float32, dropout=0.0, *, name, **options):
    torch.manual_seed(seed)
    sizes = {"in_features": tree.num_features, "hidden_dim": 5, "num_classes": tree.num_classes, "num_layers": 2}
    return models.create(name, **sizes, task="node", dropout=dropout, **options).to(dtype)


def splits_of(tree):
    """The splits in turn, the second cut short, so that parts are of different sizes."""
    first, second = tree.splits
    short = Split(second.train[:-5], second.val[:-3], second.test[:-1])
    return [first, short, short, first]


def train_together(tree, system, dtype=torch.float32, settings=SETTINGS, rates=(0.0,) * 4):
    networks = [build(tree, own.seed, dtype, rate, **system) for own, rate in zip(settings, rates)]
    task = ManyNodeTask(tree, splits_of(tree)[: len(networks)], next(networks[0].parameters()))
    return train_many(networks, task, settings, rates)


@pytest.mark.parametrize("system", SYSTEMS.values(), ids=SYSTEMS)
def test_each_network_learns_as_by_itself(tree, system, dtype):
    tolerance = 1e-9 if dtype == torch.float64 else 1e-3
    together = train_together(tree, system, dtype)
    for own, split, found in zip(SETTINGS, splits_of(tree), together):
        alone = fit(build(tree, own.seed, dtype, **system), tree, split, own)
        assert len(found.history) == len(alone.history)
        for here, there in zip(found.history, alone.history):
            assert here.loss == pytest.approx(there.loss, abs=tolerance)
            assert here.val_loss == pytest.approx(there.val_loss, abs=tolerance)
        if dtype == torch.float64:
            assert [epoch.val_metric for epoch in found.history] == [epoch.val_metric for epoch in alone.history]
            assert (found.best_epoch, found.val_metric, found.test_metric) == (
                alone.best_epoch,
                alone.val_metric,
                alone.test_metric,
            )
            assert found.test_loss == pytest.approx(alone.test_loss, abs=tolerance)
        assert not found.interrupted and found.metric == alone.metric and found.guard is None


@pytest.mark.parametrize("system", ["HKN, views", "GCN"])
def test_each_network_stops_where_it_would_by_itself(tree, system):
    hasty = [replace(own, lr=10 * own.lr, patience=2) for own in SETTINGS]
    together = train_together(tree, SYSTEMS[system], torch.float64, hasty)
    alone = [
        fit(build(tree, own.seed, torch.float64, **SYSTEMS[system]), tree, split, own)
        for own, split in zip(hasty, splits_of(tree))
    ]
    stops = [(len(found.history), found.best_epoch) for found in alone]
    assert [(len(found.history), found.best_epoch) for found in together] == stops
    assert len({epochs for epochs, _ in stops}) > 1


def test_who_stops_early_leaves_the_others_alone(tree):
    patient = [replace(own, epochs=12, patience=12) for own in SETTINGS]
    together = train_together(tree, SYSTEMS["HKN, views"], settings=patient)
    hasty = [replace(own, epochs=3) if number else own for number, own in enumerate(patient)]
    found = train_together(tree, SYSTEMS["HKN, views"], settings=hasty)
    assert [len(each.history) for each in found] == [12, 3, 3, 3]
    for here, there in zip(found[0].history, together[0].history):
        assert here.loss == pytest.approx(there.loss, abs=1e-5)
    assert found[1].history == together[1].history[:3]


@pytest.mark.parametrize("place", [0, 2])
def test_a_network_that_is_not_finite_is_given_back_and_the_others_go_on(tree, place):
    whole = train_together(tree, SYSTEMS["GCN"])
    wild = [replace(own, lr=1e20) if number == place else own for number, own in enumerate(SETTINGS)]
    found = train_together(tree, SYSTEMS["GCN"], settings=wild)
    assert found[place] is None
    for number, (here, there) in enumerate(zip(found, whole)):
        if number != place:
            assert here.history == there.history and here.test_loss == there.test_loss


def test_a_split_without_a_test_part_has_no_test_scores(tree):
    networks = [build(tree, seed, **SYSTEMS["GCN"]) for seed in range(2)]
    task = ManyNodeTask(tree, [split.without_test() for split in tree.splits], next(networks[0].parameters()))
    for found in train_many(networks, task, SETTINGS[:2], (0.0, 0.0)):
        assert found.test_metric is found.test_loss is None
        assert math.isfinite(found.val_loss)


class Reminded(GCN):
    """A network that multiplies its logits by a number of its own, which is neither parameter nor buffer."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.factor = torch.rand(()).item()

    def forward(self, *inputs):
        return self.factor * super().forward(*inputs)


def test_a_state_that_cannot_be_stacked_is_noticed(tree):
    networks = []
    for seed in range(3):
        torch.manual_seed(seed)
        networks.append(Reminded(tree.num_features, 5, tree.num_classes, num_layers=2))
    task = ManyNodeTask(tree, [tree.splits[0]] * 3, next(networks[0].parameters()))
    with pytest.raises(NotMappedError, match="Reminded"):
        train_many(networks, task, SETTINGS[:3], (0.0, 0.0, 0.0))


def test_every_network_has_a_rate_of_dropout_of_its_own(tree):
    rates = (0.0, 0.8, 0.5)
    networks = [build(tree, 0, dropout=rate, **SYSTEMS["GCN"]) for rate in rates]
    reference = next(networks[0].parameters())
    task = ManyNodeTask(tree, [tree.splits[0]] * 3, reference)
    task.answers = lambda network: F.dropout(reference.new_ones(200, 50), 0.8, networks[1].training)
    stack = NetworkStack(networks, rates)
    outputs = stack.outputs(task, stack.leaves(), training=True)
    for rate, dropped in zip(rates, outputs):
        values = dropped.unique()
        assert values.tolist() == pytest.approx([1.0] if rate == 0 else [0.0, 1 / (1 - rate)])
        assert (dropped == 0).float().mean().item() == pytest.approx(rate, abs=0.02)
    assert (stack.evaluate(task) == 1).all()


def test_dropout_of_another_rate_stays_as_it_is():
    x = torch.ones(1000)
    with OwnRate(0.5, torch.tensor(0.9)):
        assert F.dropout(x, 0.25).unique().tolist() == pytest.approx([0.0, 4 / 3])
        assert torch.equal(F.dropout(x, 0.5, training=False), x)


def test_networks_differ_in_their_noise(tree):
    first, second = (replace(SETTINGS[0], seed=0) for _ in range(2))
    networks = [build(tree, 0, dropout=0.5, **SYSTEMS["HKN, views"]) for _ in range(2)]
    task = ManyNodeTask(tree, [tree.splits[0]] * 2, next(networks[0].parameters()))
    one, other = train_many(networks, task, (first, second), (0.5, 0.5))
    assert one.history[0].loss != other.history[0].loss


def test_a_network_without_dropout_is_exact_beside_one_that_has_it(tree):
    mixed = train_together(tree, SYSTEMS["HyboNet"], torch.float64, rates=(0.0, 0.5, 0.3, 0.0))
    plain = train_together(tree, SYSTEMS["HyboNet"], torch.float64)
    for number in (0, 3):
        losses = ([epoch.loss for epoch in found[number].history] for found in (mixed, plain))
        assert next(losses) == pytest.approx(next(losses), abs=1e-9)
    assert mixed[1].history[0].loss != plain[1].history[0].loss
