import copy

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from watching import Operations, needs_cuda

from hkconv.data import hide_test
from hkconv.engine.loop import EpochCourse
from hkconv.engine.reproducibility import seed_everything
from hkconv.engine.settings import Settings
from hkconv.engine.step import Step
from hkconv.engine.task import Score
from hkconv.errors import InputError
from hkconv.models import create
from hkconv.tasks.fitting import fit
from hkconv.tasks.tasks import NodeTask, make_task

QUICK = Settings(epochs=5, patience=5)


def make_model(dataset, name="mlp", **config):
    classes = None if dataset.task == "link" else dataset.num_classes
    seed_everything(0)
    config = {"num_layers": 2, "task": dataset.task, "dropout": 0.0, **config}
    if name == "hkn, paper":
        name, config = "hkn", {"form": "paper", **config}
    return create(name, in_features=dataset.num_features, hidden_dim=8, num_classes=classes, **config)


@pytest.mark.parametrize("name", ["hkn", "hkn, paper", "mlp", "gcn"])
@pytest.mark.parametrize("kind", ["tree", "molecules", "links"])
def test_every_model_trains_on_every_task(kind, name, request):
    dataset = request.getfixturevalue(kind)
    result = fit(make_model(dataset, name), dataset, dataset.splits[0], QUICK)
    assert result.epochs == 5
    assert result.history[-1].loss < result.history[0].loss
    assert 0 <= result.test_metric <= 1
    assert not result.interrupted


@pytest.mark.parametrize("name", ["hkn", "hkn, paper", "mlp", "gcn", "gat", "graphsage", "gin", "hybonet"])
def test_every_model_trains_on_samples_of_neighbours(tree, name):
    settings = Settings(epochs=4, batch_size=16, neighbors=(4, 3), lr=0.02)
    options = {"hkn": {"dropout": 0.2}, "hkn, paper": {"relative": False, "dropout": 0.2}}
    results = []
    for _ in range(2):
        model = make_model(tree, name, **options.get(name, {}))
        results.append(fit(model, tree, tree.splits[0], settings))
    first, second = results
    assert first.history[-1].loss < first.history[0].loss
    assert first.history == second.history and first.test_loss == second.test_loss
    # The scores are those of the whole graph.
    score = make_task(tree, tree.splits[0], next(model.parameters())).evaluate(model, "test")
    assert (second.test_metric, second.test_loss) == (score.metric, pytest.approx(score.loss, rel=1e-5))


def test_a_loss_on_a_sample_is_traced_back_to_its_batch(tree):
    """The epoch is walked through again with the same batches and the same neighbours."""
    tree.graph.x[tree.splits[0].train[5]] = float("inf")
    with pytest.raises(InputError, match=r"training loss became nan in epoch 1; .* the output of module"):
        fit(make_model(tree, "gcn"), tree, tree.splits[0], Settings(batch_size=16, neighbors=(2, 2)))


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


@pytest.mark.parametrize("kind", ["tree", "molecules", "questions", "links"])
def test_a_hidden_test_part_is_not_measured_and_changes_nothing_else(kind, request):
    dataset = request.getfixturevalue(kind)
    classes = dataset.num_questions * 2 if kind == "questions" else getattr(dataset, "num_classes", None)
    results = []
    for seen in (dataset, hide_test(dataset)):
        seed_everything(0)
        model = create(
            "mlp", in_features=seen.num_features, hidden_dim=8, num_classes=classes, num_layers=2, task=seen.task
        )
        results.append(fit(model, seen, seen.splits[0], QUICK))
    shown, hidden = results
    assert (hidden.test_metric, hidden.test_loss) == (None, None)
    assert 0 <= shown.test_metric <= 1
    assert hidden.history == shown.history
    with pytest.raises(KeyError):
        make_task(hide_test(dataset), hide_test(dataset).splits[0], torch.empty(0)).evaluate(model, "test")


def test_stops_after_patience_and_breaks_ties_by_loss(tree, monkeypatch):
    scores = [Score(0.5, 1.0), Score(0.6, 1.0), Score(0.6, 0.9), Score(0.6, 0.9), Score(0.5, 0.1), Score(0.9, 0.1)]
    parts = []

    def scripted(self, model, part):
        parts.append(part)
        score = scores[len(parts) - 1]
        return torch.tensor([score.metric, score.loss], dtype=torch.float64)

    monkeypatch.setattr(NodeTask, "measure", scripted)
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

    monkeypatch.setattr(Step, "__call__", interrupt)
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
    model.network.lins[1].register_forward_hook(lambda _, __, output: output * float("inf"))
    with pytest.raises(InputError, match=r"became nan in epoch 1; first not finite: the output of module"):
        fit(model, tree, tree.splits[0], QUICK)


def test_an_interrupt_within_an_epoch_keeps_the_best_weights(molecules, monkeypatch):
    steps = []

    def interrupted(*arguments):
        steps.append(1)
        if len(steps) == 13:
            raise KeyboardInterrupt
        return take_step(*arguments)

    take_step = Step.__call__
    monkeypatch.setattr(Step, "__call__", interrupted)
    model = make_model(molecules)
    result = fit(model, molecules, molecules.splits[0], Settings(epochs=5, batch_size=5))
    assert result.interrupted
    assert result.epochs == 2
    task = make_task(molecules, molecules.splits[0], next(model.parameters()))
    assert task.evaluate(model, "val") == Score(result.val_metric, result.val_loss)


def test_a_loss_of_an_early_step_is_traced_back_though_the_later_ones_spoilt_everything(molecules):
    molecules.graphs[3].x = torch.full_like(molecules.graphs[3].x, float("inf"))
    model = make_model(molecules)
    settings = Settings(batch_size=5)
    with pytest.raises(InputError, match=r"training loss became nan in epoch 1; .* the output of module"):
        fit(model, molecules, molecules.splits[0], settings)
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_steps_that_grew_too_large_are_traced_back_to_their_first_overflow(molecules):
    """Only after the very steps of that epoch, with its dropout and its batches, is there anything to find."""
    model = make_model(molecules, dropout=0.3)
    settings = Settings(batch_size=5, lr=1e20)
    with pytest.raises(InputError, match=r"training loss became .* in epoch 1; first not finite: the output of module"):
        fit(model, molecules, molecules.splits[0], settings)


def test_a_validation_loss_that_is_not_finite_says_so(molecules):
    molecules.graphs[25].x = torch.full_like(molecules.graphs[25].x, float("inf"))
    with pytest.raises(InputError, match=r"validation loss became .* in epoch 1; .* output of module"):
        fit(make_model(molecules), molecules, molecules.splits[0], QUICK)


def watch_steps(seen):
    """Leave out the steps of optimizers, which count on the CPU and read only that."""

    def pause(*_):
        seen.paused = True

    def go_on(*_):
        seen.paused = False

    return register_optimizer_step_pre_hook(pause), register_optimizer_step_post_hook(go_on)


@pytest.mark.parametrize("kind", ["tree", "molecules", "links"])
def test_results_come_to_the_host_once_an_epoch(kind, request, monkeypatch):
    dataset = request.getfixturevalue(kind)
    lists = []

    def tolist(tensor):
        if tensor.is_floating_point():
            lists.append(tensor)
        return original(tensor)

    original = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", tolist)
    seen = Operations()
    hooks = watch_steps(seen)
    with seen:
        fit(make_model(dataset), dataset, dataset.splits[0], Settings(epochs=3, batch_size=5))
    for hook in hooks:
        hook.remove()
    steps = 5 if kind == "molecules" else 1
    assert [len(values) for values in lists] == [steps + 3] * 3 + [3 if kind == "links" else 2]
    assert seen.reads == 0


@needs_cuda
@pytest.mark.parametrize("name", ["hkn", "hkn, paper", "mlp"])
@pytest.mark.parametrize("kind", ["tree", "molecules", "links"])
def test_an_epoch_on_the_gpu_waits_only_at_its_end(kind, name, request):
    dataset = request.getfixturevalue(kind)
    model = make_model(dataset, name, dropout=0.2).cuda()
    task = make_task(dataset, dataset.splits[0], next(model.parameters()), batch_size=5)
    epochs = EpochCourse(model, task, Settings())
    epochs.loop.run_window()
    torch.cuda.set_sync_debug_mode("error")
    try:
        epochs.loop.rewind.save()
        model.train()
        for batch in task.batches():
            epochs.loop.step([batch])
        epochs.measure()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("kind", ["tree", "molecules"])
def test_capture_is_refused_where_it_cannot_be(kind, request):
    dataset = request.getfixturevalue(kind)
    with pytest.raises(InputError, match="capture needs a CUDA device, got device cpu"):
        fit(make_model(dataset), dataset, dataset.splits[0], Settings(capture=True))


@needs_cuda
@pytest.mark.parametrize("name", ["hkn", "hkn, paper", "mlp"])
@pytest.mark.parametrize("kind", ["tree", "links"])
def test_a_captured_training_equals_the_plain_one(kind, name, request):
    dataset = request.getfixturevalue(kind)
    models = [make_model(dataset, name, dropout=0.0).double().cuda() for _ in range(2)]
    plain, captured = (
        fit(model, dataset, dataset.splits[0], Settings(epochs=10, capture=capture))
        for model, capture in zip(models, (False, True))
    )
    # Torch computes Adam's 1 - beta^t in float32 when it counts on the device: four digits of the first steps.
    for mine, theirs in zip(captured.history, plain.history):
        assert mine.number == theirs.number
        assert mine.loss == pytest.approx(theirs.loss, rel=1e-3)
        assert mine.val_loss == pytest.approx(theirs.val_loss, rel=1e-3)
    assert captured.test_loss == pytest.approx(plain.test_loss, rel=1e-3)


@needs_cuda
def test_a_captured_training_that_diverges_says_where(tree):
    model = make_model(tree).cuda()

    def spoil(epoch):
        if epoch.number == 2:
            with torch.no_grad():
                model.network.lins[1].bias[0] = float("nan")

    with pytest.raises(InputError, match=r"training loss became nan in epoch 3; .* parameter 'network.lins.1.bias'"):
        fit(model, tree, tree.splits[0], Settings(epochs=5, capture=True), spoil)


@pytest.mark.parametrize("name", ["epochs", "patience", "batch_size"])
def test_settings_that_cannot_be(name):
    with pytest.raises(InputError, match=f"{name} must be a whole number of at least 1 and at most 1000000000, got 0"):
        Settings(**{name: 0})
