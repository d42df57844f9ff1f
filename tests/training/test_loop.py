import copy

import pytest
import torch

from hkconv.errors import InputError
from hkconv.models import create
from hkconv.training import loop
from hkconv.training.loop import fit
from hkconv.training.seeds import seed_everything
from hkconv.training.settings import Settings
from hkconv.training.tasks import NodeTask, Score, make_task

QUICK = Settings(epochs=5, patience=5)


def make_model(dataset, name="mlp", **config):
    classes = None if dataset.task == "link" else dataset.num_classes
    seed_everything(0)
    config = {"num_layers": 2, "task": dataset.task, **config}
    return create(name, in_features=dataset.num_features, hidden_dim=8, num_classes=classes, **config)


@pytest.mark.parametrize("name", ["hkn", "mlp", "gcn"])
@pytest.mark.parametrize("kind", ["tree", "molecules", "links"])
def test_every_model_trains_on_every_task(kind, name, request):
    dataset = request.getfixturevalue(kind)
    result = fit(make_model(dataset, name), dataset, dataset.splits[0], QUICK)
    assert result.epochs == 5
    assert result.history[-1].loss < result.history[0].loss
    assert 0 <= result.test_metric <= 1
    assert not result.interrupted


def test_learns_and_restores_the_best_epoch(tree, dtype):
    model = make_model(tree).to(dtype)
    seen = []
    result = fit(model, tree, tree.splits[0], Settings(epochs=60, patience=10), seen.append)
    assert seen == result.history
    best = max(result.history, key=lambda epoch: (epoch.val_metric, -epoch.val_loss))
    assert (result.best_epoch, result.val_metric, result.val_loss) == (best.number, best.val_metric, best.val_loss)
    task = make_task(tree, tree.splits[0], next(model.parameters()))
    assert task.evaluate(model, "val") == Score(result.val_metric, result.val_loss)
    assert task.evaluate(model, "test") == Score(result.test_metric, result.test_loss)
    assert result.test_metric > task.chance_score()


def test_stops_after_patience_and_breaks_ties_by_loss(tree, monkeypatch):
    scores = [Score(0.5, 1.0), Score(0.6, 1.0), Score(0.6, 0.9), Score(0.6, 0.9), Score(0.5, 0.1), Score(0.9, 0.1)]
    parts = []

    def scripted(self, model, part):
        parts.append(part)
        return scores[len(parts) - 1]

    monkeypatch.setattr(NodeTask, "evaluate", scripted)
    result = fit(make_model(tree), tree, tree.splits[0], Settings(epochs=100, patience=2))
    assert (result.best_epoch, result.epochs) == (3, 5)
    assert parts == ["val"] * 5 + ["test"]


def test_same_seed_same_result(tree):
    first, second = (fit(make_model(tree, dropout=0.5), tree, tree.splits[0], QUICK) for _ in range(2))
    assert first.history == second.history
    assert first.test_loss == second.test_loss


def test_interrupt_keeps_the_best_weights(tree):
    def interrupt(epoch):
        if epoch.number == 3:
            raise KeyboardInterrupt

    model = make_model(tree)
    result = fit(model, tree, tree.splits[0], QUICK, interrupt)
    assert result.interrupted
    assert result.epochs == 3
    task = make_task(tree, tree.splits[0], next(model.parameters()))
    assert task.evaluate(model, "val").metric == result.val_metric


def test_interrupt_before_the_first_epoch_has_nothing_to_keep(tree, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "_train_epoch", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fit(make_model(tree), tree, tree.splits[0], QUICK)


def test_a_loss_that_is_not_finite_says_when_and_where(tree):
    model = make_model(tree)
    weights = copy.deepcopy(model.state_dict())

    def spoil(epoch):
        if epoch.number == 2:
            with torch.no_grad():
                model.network.lins[1].bias[0] = float("nan")

    with pytest.raises(InputError, match=r"training loss became nan in epoch 3; .* parameter 'network.lins.1.bias'"):
        fit(model, tree, tree.splits[0], QUICK, spoil)
    model.load_state_dict(weights)
    model.network.lins[1].register_forward_hook(lambda *_: torch.full((tree.graph.num_nodes, 3), float("inf")))
    with pytest.raises(InputError, match=r"became nan in epoch 1; first not finite: the output of module"):
        fit(model, tree, tree.splits[0], QUICK)


@pytest.mark.parametrize("name", ["epochs", "patience", "batch_size"])
def test_settings_that_cannot_be(name):
    with pytest.raises(InputError, match=f"{name} must be at least 1, got 0"):
        Settings(**{name: 0})
