import copy

import pytest
import torch
from watching import SpoilGradient, needs_cuda

from hkconv.engine.guard import DivergenceError
from hkconv.engine.loop import _Trainer
from hkconv.engine.seeds import seed_everything
from hkconv.engine.settings import Settings
from hkconv.engine.task import Score
from hkconv.models import create
from hkconv.tasks.fitting import fit
from hkconv.tasks.tasks import make_task

SETTINGS = Settings(epochs=6, patience=6, batch_size=5, lr=0.02)
MARK = 99.0


class Poison:
    """Spoils what a module gives for a batch with a marked graph, from some epoch on, so many times.

    Told of epochs, so that it can be what ``fit`` calls after each.
    """

    def __init__(self, module, spoil, from_epoch, times):
        self.spoil, self.from_epoch, self.left, self.epoch = spoil, from_epoch, times, 1
        module.register_forward_hook(self.act)
        module.register_forward_pre_hook(self.look)

    def look(self, module, inputs):
        self.is_training = module.training

    def act(self, module, inputs, output):
        if self.is_training and self.marked and self.epoch >= self.from_epoch and self.left > 0:
            self.left -= 1
            return self.spoil(output)
        return output

    def see(self, model):
        """Look at the features that come into a network, of which its inner modules see nothing."""

        def look(_model, inputs):
            self.marked = bool((inputs[0] == MARK).any())

        model.register_forward_pre_hook(look)
        return self

    def __call__(self, epoch):
        self.epoch = epoch.number + 1


SPOILERS = {"output": lambda output: output * float("nan"), "gradient": SpoilGradient.apply}


def make_model(dataset, name="mlp", **config):
    seed_everything(0)
    config = {"hidden_dim": 8, "num_layers": 2, "task": dataset.task, "dropout": 0.3, **config}
    return create(name, in_features=dataset.num_features, num_classes=dataset.num_classes, **config)


@pytest.fixture
def marked(molecules):
    """The graphs, of which one to train on has a feature that no other has."""
    molecules.graphs[7].x = molecules.graphs[7].x.clone()
    molecules.graphs[7].x[0] = MARK
    return molecules


def batch_of_the_mark(dataset, epoch):
    """The number of the batch that the marked graph is in, from batches that are drawn anew."""
    task = make_task(dataset, dataset.splits[0], torch.empty(0), batch_size=SETTINGS.batch_size, seed=SETTINGS.seed)
    for _ in range(epoch):
        found = [number for number, batch in enumerate(task.batches(), 1) if (batch.x == MARK).any()]
    return found[0]


@pytest.mark.parametrize("kind", SPOILERS)
def test_one_fault_is_named_and_recovered_from(marked, kind):
    model = make_model(marked)
    # Once in the epoch itself, once when that is walked through again.
    poison = Poison(model.network.lins[0], SPOILERS[kind], from_epoch=3, times=2).see(model)
    result = fit(model, marked, marked.splits[0], SETTINGS, poison)
    assert poison.left == 0
    batch = batch_of_the_mark(marked, epoch=3)
    place = (
        "the output of module 'network.lins.0'"
        if kind == "output"
        else "the gradient of parameter 'network.lins.0.bias'"
    )
    assert "became nan in epoch 3" in result.guard
    assert f"first not finite: {place} in batch {batch}; went back" in result.guard
    assert result.guard.endswith("with lr 0.01")
    assert result.epochs == 6 and not result.interrupted
    assert all(torch.isfinite(torch.tensor([epoch.loss, epoch.val_loss])).all() for epoch in result.history)


def test_a_network_of_layers_on_the_manifold_names_its_layer(marked):
    model = make_model(marked, "hkn", backend="reference", hidden_dim=4)
    poison = Poison(model.convs[1], SPOILERS["output"], from_epoch=2, times=2).see(model)
    result = fit(model, marked, marked.splits[0], Settings(epochs=3, batch_size=5), poison)
    assert f"the output of module 'convs.1' in batch {batch_of_the_mark(marked, epoch=2)};" in result.guard


def test_what_follows_is_the_same_training_with_half_the_rate(marked):
    """From the weights, the optimizer's memory, the dropout and the batches that it had."""
    model = make_model(marked)
    plain = copy.deepcopy(model)
    poison = Poison(model.network.lins[1], SPOILERS["output"], from_epoch=3, times=2).see(model)
    seed_everything(1)
    found = fit(model, marked, marked.splits[0], SETTINGS, poison)
    seed_everything(1)
    task = make_task(marked, marked.splits[0], next(plain.parameters()), batch_size=5)
    trainer = _Trainer(plain, task, SETTINGS)
    expected = []
    for number in range(1, 7):
        if number == 3:
            trainer.optimizer.param_groups[0]["lr"] = 0.01
        loss, score = trainer.run_epoch(number)
        expected.append((number, loss, score.loss, score.metric))
    assert [(e.number, e.loss, e.val_loss, e.val_metric) for e in found.history] == expected


def test_the_second_fault_ends_the_training_with_its_best_weights(marked):
    model = make_model(marked)
    poison = Poison(model.network.lins[0], SPOILERS["output"], from_epoch=4, times=99).see(model)
    with pytest.raises(DivergenceError) as caught:
        fit(model, marked, marked.splits[0], SETTINGS, poison)
    message = str(caught.value)
    assert message.count("became nan in epoch 4") == 2
    assert message.count(f"'network.lins.0' in batch {batch_of_the_mark(marked, epoch=4)}") == 2
    assert "with lr 0.01; a smaller lr may help" in message
    best = caught.value.best
    assert best.epochs == 3 and best.interrupted and best.guard == message
    task = make_task(marked, marked.splits[0], next(model.parameters()))
    assert task.evaluate(model, "val") == Score(best.val_metric, best.val_loss)
    assert task.evaluate(model, "test") == Score(best.test_metric, best.test_loss)


def test_a_fault_in_the_first_epoch_has_nothing_to_keep(marked):
    model = make_model(marked)
    poison = Poison(model.network.lins[0], SPOILERS["output"], from_epoch=1, times=99).see(model)
    with pytest.raises(DivergenceError, match="in epoch 1") as caught:
        fit(model, marked, marked.splits[0], SETTINGS, poison)
    assert caught.value.best is None


def test_a_parameter_that_no_loss_shows_is_found(marked):
    """Its gradient is not finite, but what it does is multiplied by zero."""
    model = make_model(marked)
    model.extra = torch.nn.Parameter(torch.zeros(()))
    model.extra.register_hook(lambda gradient: gradient * float("inf"))
    seen = []

    def use(module, inputs, output):
        if module.training:
            seen.append(1)
            # The last batch of the first epoch, in which there are five, and the same when it is walked through again.
            return output + model.extra if len(seen) in (5, 10) else output
        return output

    model.register_forward_hook(use)
    result = fit(model, marked, marked.splits[0], SETTINGS)
    assert "a parameter became nan in epoch 1; first not finite: the gradient of parameter 'extra'" in result.guard
    assert "in batch 5;" in result.guard
    assert model.extra == 0


def test_a_fault_that_does_not_come_again_is_recovered_from_too(marked):
    model = make_model(marked)
    poison = Poison(model.network.lins[0], SPOILERS["output"], from_epoch=2, times=1).see(model)
    result = fit(model, marked, marked.splits[0], SETTINGS, poison)
    assert "first not finite: nothing, when the epoch was trained once more; went back" in result.guard


@needs_cuda
def test_a_captured_training_goes_on_with_plain_steps(tree):
    model = make_model(tree).cuda()
    factor = torch.ones((), device="cuda")
    calls = []

    def spoil(module, inputs, output):
        """Replayed, it multiplies; called, it puts the factor right the second time after it was spoilt."""
        if calls and not torch.cuda.is_current_stream_capturing():
            calls.append(1)
            if len(calls) == 3:
                factor.fill_(1)
        return output * factor

    def after(epoch):
        if epoch.number == 2:
            factor.fill_(float("nan"))
            calls.append(1)

    model.network.lins[1].register_forward_hook(spoil)
    result = fit(model, tree, tree.splits[0], Settings(epochs=5, capture=True), after)
    assert "became nan in epoch 3; first not finite: the output of module 'network.lins.1' in batch 1" in result.guard
    assert result.epochs == 5 and len(calls) > 3
