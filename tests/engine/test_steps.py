import json
import signal
from dataclasses import asdict, replace

import pytest
import torch
from fuzzing import changed, damaged, fuzzed, input_errors_alone
from hypothesis import strategies as st
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from toy_translation import SPOILT, prepared, spoils, toy_recipe
from watching import Operations, SpoilGradient, needs_cuda

from hkconv.engine.callbacks import Callback
from hkconv.engine.guard import DivergenceError
from hkconv.engine.loop import Loop
from hkconv.engine.state import read_tensors, write_tensors
from hkconv.engine.steps import LogEntry, append_entry, forget_after, read_log
from hkconv.language.task import noam
from hkconv.language.train import train_translator


@pytest.fixture(autouse=True)
def one_thread():
    """Sums depend on how they are divided."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def entry(step):
    return LogEntry(step, 1 / 3, 0.5, 1e-4, 0, 100, 2.5, 1e4, None if step % 2 else 0.1)


def test_lines_come_back_exactly(tmp_path):
    for step in (1, 2, 3):
        append_entry(tmp_path / "log", entry(step))
    assert read_log(tmp_path / "log") == [entry(1), entry(2), entry(3)]


def test_steps_that_will_be_taken_again_are_forgotten(tmp_path):
    path = tmp_path / "log"
    forget_after(path, 0)
    assert read_log(path) == []
    for step in (1, 2, 3, 4):
        append_entry(path, entry(step))
    with path.open("a") as file:
        file.write('{"step": 5, "los')
    assert len(read_log(path)) == 4
    forget_after(path, 2)
    append_entry(path, entry(3))
    assert [line.step for line in read_log(path)] == [1, 2, 3]


@fuzzed(lines=st.lists(changed(asdict(entry(1))).map(json.dumps).map(str.encode) | damaged(b'{"step": 1}'), max_size=3))
def test_whatever_a_log_holds_it_is_read_and_cut_back(tmp_path, lines):
    path = tmp_path / "log"
    path.write_bytes(b"\n".join(lines))
    with input_errors_alone():
        forget_after(path, 2)
        assert all(found.step <= 2 for found in read_log(path))


@pytest.mark.parametrize("model", ["transformer", "hybonet", "hkn"])
def test_results_come_to_the_host_only_where_a_line_is_logged(tmp_path, monkeypatch, model):
    """Every tensor that is read outside of logging would make the host wait for a GPU in each step."""
    recipe = toy_recipe(tmp_path, model=model, steps=4, log_every=2, validate_every=100, accumulate=2)
    lists = []

    def tolist(tensor):
        if tensor.is_floating_point():
            lists.append(tuple(tensor.shape))
        return original(tensor)

    original = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", tolist)
    seen = Operations()

    def pause(*_):
        seen.paused = True

    def go_on(*_):
        seen.paused = False

    take_step, reads = Loop.take, []

    def watched(*arguments):
        # Optimizers count on the CPU and read only that.
        hooks = register_optimizer_step_pre_hook(pause), register_optimizer_step_post_hook(go_on)
        with seen:
            take_step(*arguments)
        for hook in hooks:
            hook.remove()
        reads.append(seen.reads)

    monkeypatch.setattr(Loop, "take", watched)
    train_translator(recipe)
    # In the first step each hyperbolic layer looks at the first points that it gets.
    assert reads == [0 if model == "transformer" else 22] * 4
    assert seen.counts["aten.embedding_dense_backward"] > 0
    # Two losses, two norms and the largest parameter.
    assert lists == [(5,)] * 2


# Lines after steps 3, 6 and 9; the last is a validation.
PACE = {"dropout": 0.3, "steps": 9, "log_every": 3, "validate_every": 100}
# A step is a call. Step 5 is spoilt, seen after step 6, and then taken again from step 4 on, to be watched.
ONCE = (5, 8)
# Then it goes on with step 4, and all of that comes again.
TWICE = (*ONCE, 10, 13)
FAULT = f"the training loss became nan in step 5; first not finite: the output of module {SPOILT!r} in step 5"
RECOVERY = f"{FAULT}; went back to step 3 with half the learning rate"


class Killed(BaseException):
    """Ends a training as a kill does: nothing is done in order."""


class Recorder(Callback):
    """Hears what is told, and may end a training when it hears of the way back or of the line after it."""

    def __init__(self, killed_by=None):
        self.texts, self.killed_by = [], killed_by

    def told(self, text):
        self.texts.append(text)
        if text == self.killed_by:
            raise Killed

    def steps_logged(self, entry):
        if entry.step == self.killed_by:
            raise Killed


def recipe_in(tmp_path, name, **changes):
    (tmp_path / name).mkdir()
    return toy_recipe(tmp_path / name, **{**PACE, **changes})


def curve(folder):
    """The log without what depends on the clock."""
    entries = [asdict(entry) for entry in read_log(folder / "log.jsonl")]
    return [{name: entry[name] for name in entry if "second" not in name} for entry in entries]


def state_of(folder):
    return read_tensors(folder / "state.safetensors")


def with_half_the_rate_after_three(tmp_path):
    """The run that a recovered one must equal: stopped after step 3, and told to go on with half the rate."""
    recipe = recipe_in(tmp_path, "expected")
    folder = train_translator(replace(recipe, steps=3)).folder
    tensors, facts = state_of(folder)
    assert facts["progress"]["guard"] is None
    facts["progress"]["guard"] = RECOVERY
    write_tensors(folder / "state.safetensors", tensors, facts)
    return train_translator(recipe, resume=True).folder


def assert_same_end(folder, expected):
    first, *rest = curve(expected)
    # The stop after step 3 validated there.
    assert curve(folder) == [{**first, "validation_loss": None}, *rest]
    (tensors, _), (others, _) = state_of(folder), state_of(expected)
    assert tensors.keys() == others.keys()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, others[name]), name


def test_one_fault_is_named_and_the_steps_are_taken_again_with_half_the_rate(tmp_path):
    recipe, recorder = recipe_in(tmp_path, "spoilt"), Recorder()
    with prepared(spoils(ONCE)):
        training = train_translator(recipe, recorder)
    assert training.is_finished and training.guard == RECOVERY
    assert recorder.texts[-1] == RECOVERY
    lines = read_log(training.folder / "log.jsonl")
    assert [line.step for line in lines] == [3, 6, 9]
    rates = [noam(step, recipe.dim, recipe.warmup, recipe.lr) for step in (3, 6, 9)]
    assert [line.lr for line in lines] == [rates[0], rates[1] / 2, rates[2] / 2]
    assert_same_end(training.folder, with_half_the_rate_after_three(tmp_path))


def test_a_gradient_is_named_too(tmp_path):
    with prepared(spoils(ONCE, SpoilGradient.apply)):
        training = train_translator(recipe_in(tmp_path, "spoilt"))
    words = f"the gradient's norm became nan in step 5; first not finite: the gradient of parameter '{SPOILT}.2"
    assert training.guard.startswith(words)
    assert training.is_finished


def test_a_fault_that_does_not_come_again(tmp_path):
    with prepared(spoils([5])):
        training = train_translator(recipe_in(tmp_path, "spoilt"))
    assert "first not finite: nothing, when the steps were taken once more; went back to step 3" in training.guard
    assert training.is_finished


def test_a_parameter_that_no_loss_shows(tmp_path):
    def prepare(model):
        model.extra = torch.nn.Parameter(torch.zeros(()))

        def spoil(output):
            model.extra.data.fill_(float("inf"))
            return output

        spoils(ONCE, spoil)(model)

    with prepared(prepare):
        training = train_translator(recipe_in(tmp_path, "spoilt"))
    assert "a parameter became inf by step 6; first not finite: parameter 'extra' in step 5;" in training.guard
    assert state_of(training.folder)[0]["model/extra"] == 0


def test_a_validation_loss(tmp_path):
    recorder = Recorder()

    def prepare(model):
        def act(module, inputs, output):
            is_spoilt = not module.training and not any("went back" in text for text in recorder.texts)
            return output * float("nan") if is_spoilt else output

        model.get_submodule(SPOILT).register_forward_hook(act)

    with prepared(prepare):
        training = train_translator(recipe_in(tmp_path, "spoilt", log_every=2, validate_every=3, steps=6), recorder)
    words = f"the validation loss became nan after step 3; first not finite: the output of module {SPOILT!r}"
    assert training.guard == f"{words}; went back to step 2 with half the learning rate"
    assert [line["step"] for line in curve(training.folder)] == [2, 3, 4, 6]


def test_the_second_fault_ends_the_training_and_leaves_a_good_state(tmp_path):
    recipe = recipe_in(tmp_path, "spoilt")
    with prepared(spoils(TWICE)), pytest.raises(DivergenceError) as caught:
        train_translator(recipe)
    assert str(caught.value) == f"{FAULT}; before that, {RECOVERY}; a smaller lr or a longer warmup may help"
    training = train_translator(recipe, resume=True)
    assert training.guard == RECOVERY
    assert_same_end(training.folder, with_half_the_rate_after_three(tmp_path))


@pytest.mark.parametrize("killed_by", [RECOVERY, 6], ids=["the way back", "the next line"])
def test_a_resumed_training_keeps_the_rate_and_has_no_second_chance(tmp_path, killed_by):
    recipe = recipe_in(tmp_path, "spoilt")
    with prepared(spoils(ONCE)), pytest.raises(Killed):
        train_translator(recipe, Recorder(killed_by))
    assert state_of(tmp_path / "spoilt" / "run")[1]["progress"]["step"] == 3
    with prepared(spoils([1, 4])), pytest.raises(DivergenceError, match=rf"in step 4; .*; before that, {RECOVERY}"):
        train_translator(recipe, resume=True)
    assert_same_end(train_translator(recipe, resume=True).folder, with_half_the_rate_after_three(tmp_path))


@pytest.fixture
def ctrl_c_is_heard():
    """Also where the tests were started in the background, with it turned off."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_keeps_no_state_that_is_not_finite(tmp_path, ctrl_c_is_heard):
    """It comes in the middle of a spoilt step, between two lines."""
    recipe, interrupts = recipe_in(tmp_path, "spoilt"), iter([signal.SIGINT])

    def spoil(output):
        for number in interrupts:
            signal.raise_signal(number)
        return output * float("nan")

    # The step after it is not taken.
    with prepared(spoils((5, 7), spoil)):
        training = train_translator(recipe)
    assert (training.interrupted, training.step, training.guard) == (True, 3, RECOVERY)
    assert_same_end(train_translator(recipe, resume=True).folder, with_half_the_rate_after_three(tmp_path))


def test_nothing_finite_to_go_back_to(tmp_path):
    with prepared(lambda model: model.encoder_norm.weight.data.fill_(float("nan"))):
        words = "parameter 'encoder_norm.weight' before step 1; there is no finite state to go back to; a smaller lr"
        with pytest.raises(DivergenceError, match=words):
            train_translator(recipe_in(tmp_path, "spoilt"))


@needs_cuda
def test_a_captured_training_is_recovered_too(tmp_path):
    factor = torch.ones((), device="cuda")

    class Spoiler(Recorder):
        def told(self, text):
            super().told(text)
            factor.fill_(1)

        def steps_logged(self, entry):
            if entry.step == 3:
                factor.fill_(float("nan"))

    def prepare(model):
        model.get_submodule(SPOILT).register_forward_hook(lambda module, inputs, output: output * factor.to(output))

    recipe = recipe_in(tmp_path, "spoilt", capture=True, device="cuda")
    with prepared(prepare):
        training = train_translator(recipe, Spoiler())
    assert training.guard == RECOVERY.replace("step 5", "step 4")
    lines = read_log(training.folder / "log.jsonl")
    assert [line.step for line in lines] == [3, 6, 9]
    assert lines[-1].lr == noam(9, recipe.dim, recipe.warmup, recipe.lr) / 2
