import pytest
import torch
from watching import needs_cuda

from hkconv.data import hierarchy, load
from hkconv.engine.guard import Rewind
from hkconv.engine.loop import EpochCourse
from hkconv.engine.optimizer import RiemannianAdam
from hkconv.engine.reproducibility import seed_everything
from hkconv.engine.settings import Settings
from hkconv.engine.step import (
    HALVES,
    CapturedMeasure,
    CapturedSteps,
    CaptureRefusedError,
    Precision,
    Step,
    check_capture,
)
from hkconv.engine.task import Objective
from hkconv.errors import InputError
from hkconv.models import MLP, MODELS, create
from hkconv.tasks.fitting import fit
from hkconv.tasks.tasks import make_task


def test_a_step_gives_the_loss_before_it_and_goes_down(tree):
    model = MLP(4, 8, 3, num_layers=2)
    task = make_task(tree, tree.splits[0], next(model.parameters()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    (batch,) = task.batches()
    before = task.loss(model, batch)
    loss, norm = Step(model, task, optimizer)([batch])
    assert norm is None
    assert torch.equal(loss, before)
    assert not loss.requires_grad
    assert task.loss(model, batch) < before


halves = pytest.mark.parametrize("name", HALVES)

# Enough of every kind: node tasks with many and few features, and a graph task whose batches differ in size.
SMALL = ("texas", "ptc")


def make_model(dataset, name="hkn", **config):
    seed_everything(0)
    config = {"hidden_dim": 8, "num_layers": 2, "task": dataset.task, **config}
    if name == "hkn, paper":
        name, config["form"] = "hkn", "paper"
    if getattr(MODELS[name], "uses_num_nodes", False):
        config["num_nodes"] = dataset.graph.num_nodes
    classes = None if dataset.task == "link" else dataset.num_classes
    return create(name, in_features=dataset.num_features, num_classes=classes, **config)


@halves
@pytest.mark.parametrize("form", ["hkn", "hkn, paper"])
def test_products_of_features_are_halved_and_the_geometry_is_not(tree, form, name):
    model = make_model(tree, form, dropout=0.0)
    types = {}
    for place, module in model.named_modules():
        module.register_forward_hook(lambda _, __, output, place=place: types.update({place: output.dtype}))
    task = make_task(tree, tree.splits[0], next(model.parameters()))
    (batch,) = task.batches()
    loss = Precision(name, torch.device("cpu")).loss(model, task, batch)
    assert types["embedding.linear"] == HALVES[name]
    assert {types[place] for place in ("embedding", "convs.0", "convs.1", "distance", "")} == {torch.float32}
    assert loss.dtype == torch.float32
    # Eight bits of a feature's product, through distances that are divided by a tenth.
    torch.testing.assert_close(loss, task.loss(model, batch), rtol=0.05, atol=0)


@halves
@pytest.mark.parametrize("model", [*MODELS, "hkn, paper"])
def test_every_model_learns_in_half_precision(tree, molecules, model, name):
    dataset = tree if "node" in getattr(MODELS[model.split(",")[0]], "tasks", ("node",)) else molecules
    # A small rate, for in fp16 the first steps may be left out.
    model = make_model(dataset, model, dropout=0.0)
    result = fit(model, dataset, dataset.splits[0], Settings(epochs=12, lr=0.01, precision=name))
    assert result.guard is None
    assert result.history[-1].loss < result.history[0].loss


def test_scores_are_those_of_the_model_as_it_is(tree):
    model = make_model(tree, "mlp")
    result = fit(model, tree, tree.splits[0], Settings(epochs=3, precision="bf16"))
    task = make_task(tree, tree.splits[0], next(model.parameters()))
    assert task.evaluate(model, "test").loss == result.test_loss
    assert task.evaluate(model, "val").loss == result.val_loss


FORMS = {"hkn": {"dropout": 0.2}, "hkn, paper": {"dropout": 0.2, "relative": False}}


def train_for_200_steps(dataset, name, form):
    steps = -(-len(dataset.splits[0].train) // 64) if dataset.task == "graph" else 1
    settings = Settings(epochs=200 // steps, patience=200, batch_size=64, precision=name, lr=0.02)
    model = make_model(dataset, form, hidden_dim=16, **FORMS[form])
    result = fit(model, dataset, dataset.splits[0], settings)
    assert (result.epochs, result.guard) == (settings.epochs, None)
    assert result.history[-1].loss < 0.9 * result.history[0].loss


@halves
@pytest.mark.parametrize("form", FORMS)
def test_200_steps_on_the_embedded_tree_stay_finite(form, name):
    train_for_200_steps(hierarchy(depth=4, children=3, num_splits=1), name, form)


@pytest.mark.parametrize("dataset", SMALL)
@pytest.mark.parametrize("form", FORMS)
def test_200_steps_on_real_data_stay_finite(real_data, form, dataset):
    train_for_200_steps(load(dataset, root=real_data, num_splits=1), "bf16", form)


@needs_cuda
@pytest.mark.parametrize("form", FORMS)
def test_a_captured_step_in_half_precision_equals_the_plain_one(tree, form):
    losses = []
    for capture in (False, True):
        model = make_model(tree, form, dropout=0.0).cuda()
        settings = Settings(epochs=10, precision="bf16", capture=capture)
        losses.append([epoch.loss for epoch in fit(model, tree, tree.splits[0], settings).history])
    assert losses[1] == pytest.approx(losses[0], rel=1e-2)


class Thrice(Objective):
    def loss(self, model, batch):
        return 3 * batch


def test_gradients_do_not_pile_up():
    weight = torch.nn.Parameter(torch.tensor(1.0))
    model = torch.nn.ParameterList([weight])
    step = Step(model, Thrice(), torch.optim.SGD([weight], lr=0.0))
    for _ in range(2):
        step([weight])
        assert weight.grad == 3


def test_gradients_too_small_for_fp16_survive():
    """1e-9 is nothing in fp16; times the factor it is something."""
    layer, x = torch.nn.Linear(1, 1, bias=False), torch.ones(1, 1)

    class Tiny(Objective):
        def loss(self, model, batch):
            return 1e-9 * model(batch).float().sum()

    moved = []
    for scaled in (False, True):
        precision = Precision("fp16", torch.device("cpu"))
        precision.scaler = precision.scaler if scaled else None
        torch.nn.init.ones_(layer.weight)
        optimizer = torch.optim.SGD(layer.parameters(), lr=1e8)
        Step(layer, Tiny(), optimizer, precision=precision)([x])
        moved.append(1 - layer.weight.item())
    assert moved == [0, pytest.approx(0.1, rel=1e-3)]


def test_a_scaled_loss_may_overflow_without_a_fault(molecules):
    """Steps with infinite gradients are left out in fp16, which is how its factor is found."""
    model = make_model(molecules, "mlp")
    task = make_task(molecules, molecules.splits[0], next(model.parameters()), batch_size=5)
    epochs = EpochCourse(model, task, Settings(precision="fp16", batch_size=5))
    epochs.precision.scaler = epochs.loop.rewind.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120)
    epochs.loop.run_window()
    assert epochs.recovery is None
    assert epochs.precision.scaler.get_scale() == 2.0**115


def test_the_factor_of_a_scaled_loss_goes_back_too(tree):
    model = make_model(tree, "mlp")
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(torch.zeros(()))
    rewind = Rewind(model, torch.optim.SGD(model.parameters()), None, scaler)
    rewind.save()
    scaler.update(2.0)
    rewind.restore()
    assert scaler.get_scale() == 8.0


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"precision": "fp8"}, "precision must be float32 or bf16 or fp16, got 'fp8'"),
        ({"precision": "fp16", "capture": True}, "capture cannot hold a step in fp16"),
        ({"compile": True, "capture": True}, "capture and compile cannot both be on"),
    ],
)
def test_settings_that_cannot_be(settings, words):
    with pytest.raises(InputError, match=words):
        Settings(**settings)


def test_what_cannot_be_captured():
    with pytest.raises(InputError, match=r"^capture needs a CUDA device, got device cpu$"):
        check_capture(torch.device("cpu"), "node")
    message = r"^capture of a graph task needs batches that return: give it groupings, such as 2$"
    with pytest.raises(InputError, match=message):
        check_capture(torch.device("cuda"), "graph")


@pytest.mark.parametrize("task, groupings", [("node", None), ("link", None), ("graph", 2)])
def test_what_can_be_captured(task, groupings):
    check_capture(torch.device("cuda:1"), task, groupings)


def make_training(dataset, name, lr, **config):
    classes = None if dataset.task == "link" else dataset.num_classes
    given = {"in_features": dataset.num_features, "hidden_dim": 8, "num_classes": classes, "num_layers": 2, **config}
    if name == "hkn, paper":
        name, given["form"] = "hkn", "paper"
    model = create(name, task=dataset.task, **given).cuda().train()
    task = make_task(dataset, dataset.splits[0], next(model.parameters()), batch_size=4, groupings=4)
    optimizer = RiemannianAdam(model.parameters(), lr=lr, capturable=True)
    return model, task, CapturedSteps(model, task, optimizer)


def losses_of(task, step, count):
    return [step([batch])[0].item() for _ in range(count) for batch in task.batches()]


@needs_cuda
@pytest.mark.parametrize("name", ["hkn", "hkn, paper", "mlp"])
def test_dropout_is_drawn_anew_in_every_replay(tree, name):
    """With lr 0 nothing else can change the loss."""
    _, task, step = make_training(tree, name, 0.0, dropout=0.5)
    assert len(set(losses_of(task, step, 5))) == 5
    _, task, step = make_training(tree, name, 0.0, dropout=0.0)
    assert len(set(losses_of(task, step, 5))) == 1


@needs_cuda
def test_new_negatives_reach_every_replay(links):
    _, task, step = make_training(links, "mlp", 0.0, dropout=0.0)
    assert len(set(losses_of(task, step, 5))) == 5


both_forms = pytest.mark.parametrize("name", ["hkn", "hkn, paper"])


@needs_cuda
@both_forms
def test_recording_leaves_no_trace_in_the_training(tree, name):
    """The first loss is that of the untouched weights, and Adam has counted one step."""
    model, task, step = make_training(tree, name, 0.01, dropout=0.0)
    (batch,) = task.batches()
    expected = task.loss(model, batch).item()
    assert step([batch])[0].item() == pytest.approx(expected, rel=1e-5)
    assert {state["step"].item() for state in step.optimizer.state.values()} == {1.0}


@needs_cuda
@pytest.mark.parametrize("name", ["hkn", "hkn, paper", "hkn-flat", "gin", "hybonet", "hgcn", "wlhn"])
def test_steps_on_batches_that_return_are_those_without_recording(molecules, name, monkeypatch, request):
    """Through the first epochs, in which recordings and replays take turns, and some after them."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    request.addfinalizer(lambda: torch.use_deterministic_algorithms(False))
    curves = []
    for captured in (True, False):
        torch.manual_seed(0)
        model, task, step = make_training(molecules, name, 0.01, dropout=0.0)
        if not captured:
            step = Step(model, task, step.optimizer)
        curves.append(losses_of(task, step, 12))
    assert curves[0] == pytest.approx(curves[1], rel=1e-5)
    assert curves[0][0] != pytest.approx(curves[0][-1], rel=1e-2)


@needs_cuda
@both_forms
def test_a_replay_never_waits(links, name):
    model, task, step = make_training(links, name, 0.01, dropout=0.2)
    measure = CapturedMeasure(model, lambda: task.measure(model, "val"))
    losses_of(task, step, 1)
    measure()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            for batch in task.batches():
                step([batch])
            measure()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@needs_cuda
@both_forms
def test_a_captured_measure_sees_the_weights_of_now_in_evaluation_mode(tree, name):
    model, task, step = make_training(tree, name, 0.05, dropout=0.5)
    measure = CapturedMeasure(model, lambda: task.measure(model, "val"))
    first = measure()
    torch.testing.assert_close(first, task.measure(model, "val"))
    losses_of(task, step, 5)
    torch.testing.assert_close(measure(), task.measure(model, "val"))
    assert not torch.equal(measure(), first)


class Waiting(torch.nn.Module):
    """A network that looks at its numbers."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x, edge_index):
        return self.linear(x) if x.sum() > 0 else -self.linear(x)


@needs_cuda
def test_a_model_that_waits_is_named(tree):
    model = Waiting().cuda()
    task = make_task(tree, tree.splits[0], model.linear.weight)
    step = CapturedSteps(model, task, RiemannianAdam(model.parameters(), capturable=True))
    with pytest.raises(InputError, match="never waits for the GPU, and Waiting does: train it without capture"):
        losses_of(task, step, 1)
    assert torch.cuda.get_sync_debug_mode() == 0


def test_a_model_that_needs_the_host_is_refused_before_anything_is_captured():
    class Fetching(torch.nn.Module):
        needs_host = True

    check_capture(torch.device("cuda"), "node", model=torch.nn.Linear(1, 1))
    with pytest.raises(CaptureRefusedError, match="never waits for the GPU, and Fetching does"):
        check_capture(torch.device("cuda"), "node", model=Fetching())
