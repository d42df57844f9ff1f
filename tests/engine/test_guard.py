import copy
from contextlib import nullcontext

import pytest
import torch
from watching import SpoilGradient, needs_cuda

from hkconv.engine.guard import DivergenceError, Rewind, Watch, first_non_finite, largest_parameter
from hkconv.engine.loop import EpochCourse
from hkconv.engine.optimizer import RiemannianAdam
from hkconv.engine.reproducibility import seed_everything
from hkconv.engine.settings import Settings
from hkconv.engine.step import Step
from hkconv.engine.task import Score
from hkconv.models import create
from hkconv.tasks.fitting import fit
from hkconv.tasks.tasks import make_task


class Root(torch.nn.Module):
    """A network whose second module makes NaN of negative numbers."""

    def forward(self, x):
        return x.sqrt()


def make_root():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), Root(), torch.nn.Linear(2, 2))
    with torch.no_grad():
        model[0].weight.fill_(-1)
        model[0].bias.zero_()
    return model


def test_names_the_first_parameter():
    model = make_root()
    with torch.no_grad():
        model[2].bias[1] = float("inf")
    assert first_non_finite(model, lambda: None) == "parameter '2.bias'"


def test_names_the_first_module_and_leaves_no_hooks():
    model = make_root()
    assert first_non_finite(model, lambda: model(torch.ones(3, 2))) == "the output of module '1'"
    assert not any(module._forward_hooks for module in model.modules())


def test_blames_the_loss_if_the_network_is_fine():
    model = make_root()
    assert first_non_finite(model, lambda: model(-torch.ones(3, 2))) == "the loss"


def test_the_largest_parameter_is_found_and_shows_what_is_not_finite():
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(0, 2, bias=False), torch.nn.Linear(3, 1))
    with torch.no_grad():
        model[2].weight[0, 1] = -7.5
    assert largest_parameter(model).tolist() == [7.5]
    for bad in (float("inf"), float("nan")):
        with torch.no_grad():
            model[0].bias[1] = bad
        assert not largest_parameter(model).isfinite()


class Steep(torch.nn.Module):
    """The root, whose slope at 0 is infinite; from 0 it comes out finite."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.scale * x.sqrt()


class Branches(torch.nn.Module):
    """Several modules that read the same tensor."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(2, 2)
        self.left, self.steep, self.right = torch.nn.Linear(2, 2), Steep(), torch.nn.Linear(2, 2)
        with torch.no_grad():
            self.first.weight.zero_()
            self.first.bias.zero_()

    def forward(self, x):
        h = self.first(x)
        return self.left(h) + self.steep(h) + self.right(h)


def test_a_gradient_is_blamed_on_the_module_it_came_through():
    model = Branches()
    with Watch(model) as watch:
        loss = model(torch.ones(3, 2)).sum()
        assert loss.isfinite() and watch.gradient is None
        loss.backward()
    assert watch.gradient == "the gradient through module 'steep'"
    assert not model.first.weight.grad.isfinite().all()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert not any(parameter._backward_hooks for parameter in model.parameters())


def test_a_gradient_of_a_parameter_is_named():
    model = Branches()
    model.steep.scale.register_hook(lambda gradient: gradient * float("nan"))
    with torch.no_grad():
        model.first.bias.fill_(1.0)
    with Watch(model) as watch:
        model(torch.ones(3, 2)).sum().backward()
    assert watch.gradient == "the gradient of parameter 'steep.scale'"


def test_watching_changes_no_gradient():
    model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    gradients = []
    for watched in (False, True):
        model.zero_grad()
        with Watch(model) if watched else nullcontext() as watch:
            model(torch.arange(6.0).view(3, 2)).sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    assert watch.output is None and watch.gradient is None
    assert all(map(torch.equal, *gradients))


def make_training(dataset, name="hkn", **options):
    sizes = {"in_features": 1, "hidden_dim": 4, "num_classes": 2, "num_layers": 2}
    model = create(name, **sizes, task="graph", dropout=0.3, **options)
    model.register_buffer("seen", torch.zeros((), dtype=torch.long))
    task = make_task(dataset, dataset.splits[0], next(model.parameters()), batch_size=5)
    return model, task, RiemannianAdam(model.parameters(), lr=0.02)


def epoch(model, task, optimizer):
    """The losses of one epoch, which count in a buffer too."""
    model.train()
    model.seen += 1
    return [Step(model, task, optimizer)([batch])[0].item() for batch in task.batches()]


def test_samples_of_neighbours_come_again(tree):
    model = create("mlp", in_features=4, hidden_dim=4, num_classes=3, num_layers=2)
    task = make_task(tree, tree.splits[0], next(model.parameters()), batch_size=20, neighbors=(3, 2))
    rewind = Rewind(model, RiemannianAdam(model.parameters(), lr=0.02), task.generator)

    def epoch():
        return [batch.n_id.tolist() for batch in task.batches()]

    epoch()
    rewind.save()
    first, other = epoch(), epoch()
    rewind.restore()
    assert epoch() == first != other


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("form", ["views", "paper"])
def test_the_same_epoch_comes_again(molecules, form, before):
    """With its weights, dropout and batches, and Adam's memory: from nothing, or from what it had."""
    model, task, optimizer = make_training(molecules, form=form)
    rewind = Rewind(model, optimizer, task.generator)
    for _ in range(before):
        rewind.save()
        epoch(model, task, optimizer)
    rewind.save()
    first = epoch(model, task, optimizer)
    other = epoch(model, task, optimizer)
    rewind.restore()
    assert model.seen == before
    again = epoch(model, task, optimizer)
    assert again == first != other


def test_parameters_stay_where_they_are(molecules):
    model, task, optimizer = make_training(molecules, "mlp")
    rewind = Rewind(model, optimizer)
    rewind.save()
    places = [parameter.data_ptr() for parameter in model.parameters()]
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    epoch(model, task, optimizer)
    rewind.restore()
    assert [parameter.data_ptr() for parameter in model.parameters()] == places
    for parameter, weight in zip(model.parameters(), weights):
        assert torch.equal(parameter, weight)


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
    epochs = EpochCourse(plain, task, SETTINGS)
    for number in range(1, 7):
        if number == 3:
            epochs.optimizer.param_groups[0]["lr"] = 0.01
        epochs.loop.run_window()
    assert found.history == epochs.progress.history


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
    assert "first not finite: nothing, when the steps were taken once more; went back" in result.guard


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
