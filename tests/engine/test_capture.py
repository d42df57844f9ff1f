from functools import partial

import pytest
import torch
from watching import needs_cuda

from hkconv.engine.capture import CapturedMeasure, CapturedSteps, CaptureRefusedError, check_capture
from hkconv.engine.optimizer import RiemannianAdam
from hkconv.engine.step import train_step
from hkconv.errors import InputError
from hkconv.models import create
from hkconv.tasks.tasks import make_task


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
    return [step(batch).item() for _ in range(count) for batch in task.batches()]


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
    assert step(batch).item() == pytest.approx(expected, rel=1e-5)
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
            step = partial(train_step, model, task, step.optimizer)
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
                step(batch)
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
