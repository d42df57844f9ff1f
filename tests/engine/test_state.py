import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from fuzzing import changed, damaged, fuzzed, input_errors_alone
from hypothesis import strategies as st
from safetensors.torch import load_file
from watching import needs_cuda

from hkconv.engine import loop
from hkconv.engine.guard import Rewind
from hkconv.engine.optimizer import RiemannianAdam
from hkconv.engine.reproducibility import seed_everything
from hkconv.engine.settings import Settings
from hkconv.engine.state import (
    FILE,
    Unfinished,
    by_part,
    check_shapes,
    count_numbers,
    generator_tensors,
    optimizer_tensors,
    read_facts,
    read_tensors,
    restore_generators,
    restore_optimizer,
    write_tensors,
)
from hkconv.engine.step import Step
from hkconv.errors import InputError
from hkconv.models import create
from hkconv.tasks.fitting import fit


def test_tensors_and_facts_come_back(tmp_path, dtype):
    shared = torch.randn(3, 4, dtype=dtype)
    tensors = {"a": shared, "tied": shared, "part": shared.t()[1:], "count": torch.tensor(7)}
    write_tensors(tmp_path / "file", tensors, {"step": 3, "name": "±"})
    found, facts = read_tensors(tmp_path / "file")
    assert found.keys() == tensors.keys()
    assert all(
        torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype for name, tensor in tensors.items()
    )
    assert facts == read_facts(tmp_path / "file") == {"format_version": 1, "step": 3, "name": "±"}
    assert count_numbers(tmp_path / "file") == 12 + 12 + 9 + 1


@pytest.mark.parametrize("read", [read_facts, read_tensors, count_numbers])
def test_files_that_are_none(tmp_path, read):
    with pytest.raises(InputError, match=r"checkpoint .*absent"):
        read(tmp_path / "absent")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(InputError, match="is damaged: it is not a safetensors file"):
        read(tmp_path / "text")


def test_names_are_sorted_into_parts():
    one = torch.zeros(1)
    found = by_part({"model/a/b": one, "best/c": one}, ("model", "best", "more"), Path("file"))
    assert {part: list(names) for part, names in found.items()} == {"model": ["a/b"], "best": ["c"], "more": []}
    with pytest.raises(InputError, match="has no place for tensor 'other/a'"):
        by_part({"other/a": one}, ("model",), Path("file"))


def test_shapes_and_sizes_that_do_not_fit():
    a, b = torch.zeros(2, 3), torch.zeros(3, 2)
    check_shapes({"a": a}, {"a": a}, Path("file"))
    with pytest.raises(InputError, match=r"'a' is \(3, 2\), expected \(2, 3\)"):
        check_shapes({"a": a}, {"a": b}, Path("file"))
    with pytest.raises(InputError, match=r"'b' is \(3, 2\), expected nothing"):
        check_shapes({"a": a}, {"a": a, "b": b}, Path("file"))


EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])


def make(form):
    """HKN has points of a manifold among its parameters, of which Adam remembers less."""
    seed_everything(0)
    config = {"in_features": 3, "hidden_dim": 4, "num_classes": 2, "num_layers": 2, "kernel_size": 2, "dropout": 0.5}
    model = create("hkn", form=form, **config)
    return model, RiemannianAdam(model.parameters(), lr=0.1)


def take_steps(model, optimizer, own, count):
    losses = []
    for _ in range(count):
        x = torch.randn(4, 3, generator=own)
        loss = torch.nn.functional.cross_entropy(model.train()(x, EDGES), torch.tensor([0, 1, 0, 1]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("form", ["views", "paper"])
def test_steps_after_a_restore_are_those_that_would_have_followed(form):
    (model, optimizer), own = make(form), torch.Generator().manual_seed(5)
    take_steps(model, optimizer, own, 3)
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    memory = {name: tensor.clone() for name, tensor in optimizer_tensors(optimizer).items()}
    draws = generator_tensors(torch.device("cpu"), own)
    expected = take_steps(model, optimizer, own, 3)

    (again, other), drawn = make(form), torch.Generator()
    again.load_state_dict(weights)
    restore_optimizer(other, memory, Path("file"))
    restore_generators(draws, torch.device("cpu"), Path("file"), drawn)
    assert take_steps(again, other, drawn, 3) == expected
    for name, tensor in again.state_dict().items():
        torch.testing.assert_close(tensor, model.state_dict()[name], rtol=0, atol=0)


SETTINGS = Settings(epochs=8, patience=4, batch_size=7, seed=3)
FP16 = replace(SETTINGS, precision="fp16")


class Killed(BaseException):
    """Ends a training as a kill does: nothing is done in order."""


def train(dataset, unfinished=None, on_epoch=None, name="hkn", settings=SETTINGS, device="cpu"):
    """A training of its own, as a process of its own would begin it."""
    seed_everything(3)
    classes = None if dataset.task == "link" else dataset.num_classes
    model = create(
        name,
        in_features=dataset.num_features,
        hidden_dim=6,
        num_classes=classes,
        num_layers=2,
        task=dataset.task,
        dropout=0.3,
        **({"norm": "batch"} if name == "hkn" else {}),
    ).to(device)
    return fit(model, dataset, dataset.splits[0], settings, on_epoch, unfinished=unfinished), model.state_dict()


def ending(error, at):
    def end(epoch):
        if epoch.number == at:
            raise error

    return end


def assert_equal(found, expected):
    (result, weights), (other, other_weights) = found, expected
    assert result.history == other.history
    scores = ("best_epoch", "val_metric", "val_loss", "test_metric", "test_loss", "epochs")
    assert all(getattr(result, name) == getattr(other, name) for name in scores)
    for name, tensor in weights.items():
        torch.testing.assert_close(tensor, other_weights[name], rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["tree", "molecules", "links"])
def test_a_killed_training_goes_on_as_if_nothing_had_happened(kind, request, tmp_path):
    dataset = request.getfixturevalue(kind)
    whole = train(dataset)
    with pytest.raises(Killed):
        train(dataset, Unfinished(tmp_path, every=0), ending(Killed, at=3))
    epochs = []
    found = train(dataset, Unfinished(tmp_path, every=0), lambda epoch: epochs.append(epoch.number))
    # Killed after the third epoch, before it was kept.
    assert epochs == list(range(3, whole[0].epochs + 1))
    assert_equal(found, whole)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
@pytest.mark.parametrize("error", [Killed, KeyboardInterrupt])
def test_a_training_in_fp16_goes_on_with_its_factor(tree, tmp_path, monkeypatch, error, device):
    """Three factors overflow and cost a step each; three steps later the fourth grows into one that does so again."""
    growth = {"growth_factor": 2.0**40, "backoff_factor": 2.0**-40, "growth_interval": 3}
    monkeypatch.setattr(torch.amp, "GradScaler", partial(torch.amp.GradScaler, init_scale=2.0**127, **growth))
    run = partial(train, tree, name="mlp", settings=replace(FP16, patience=8), device=device)
    whole = run()
    assert whole[0].epochs == 8
    unfinished = Unfinished(tmp_path, every=0)
    if error is Killed:
        with pytest.raises(Killed):
            run(unfinished, ending(error, at=6))
    else:
        assert run(unfinished, ending(error, at=5))[0].interrupted
    facts = read_tensors(tmp_path / FILE)[1]
    assert len(facts["history"]) == 5
    assert facts["scaler"] == {"scale": 2.0**7, "growth_tracker": 2}
    assert_equal(run(unfinished), whole)


def test_a_file_from_before_factors_were_kept_goes_on(tree, tmp_path):
    whole = train(tree, name="mlp", settings=FP16)
    train(tree, Unfinished(tmp_path, 0), ending(KeyboardInterrupt, at=3), name="mlp", settings=FP16)
    tensors, facts = read_tensors(tmp_path / FILE)
    # No gradient of this training overflows: the first factor is the last.
    assert facts.pop("scaler")["scale"] == 2.0**16
    write_tensors(tmp_path / FILE, tensors, facts)
    assert_equal(train(tree, Unfinished(tmp_path, 0), name="mlp", settings=FP16), whole)


@pytest.mark.parametrize("kind", ["tree", "molecules"])
def test_an_interrupt_keeps_the_epochs_that_ended(kind, request, tmp_path):
    dataset = request.getfixturevalue(kind)
    whole = train(dataset)
    # It is not time yet, but an interrupt is a reason too.
    unfinished = Unfinished(tmp_path, every=1000)
    result, _ = train(dataset, unfinished, ending(KeyboardInterrupt, at=3))
    assert (result.interrupted, result.epochs) == (True, 3)
    epochs = []
    assert_equal(train(dataset, unfinished, lambda epoch: epochs.append(epoch.number)), whole)
    assert epochs[0] == 4


@pytest.mark.parametrize("step", [5, 6, 7, 8, 9])
def test_an_interrupt_in_the_middle_of_an_epoch_takes_it_back(molecules, tmp_path, monkeypatch, step):
    """An epoch has four steps. The interrupt comes when the weights have moved and the optimizer has not counted."""
    whole = train(molecules)
    steps = []

    def interrupted(taken, *arguments):
        steps.append(1)
        if len(steps) == step:
            with torch.no_grad():
                for parameter in taken.model.parameters():
                    parameter.add_(1)
            raise KeyboardInterrupt
        return take_step(taken, *arguments)

    take_step = Step.__call__
    with monkeypatch.context() as patch:
        patch.setattr(Step, "__call__", interrupted)
        result, _ = train(molecules, Unfinished(tmp_path))
    assert (result.interrupted, result.epochs) == (True, (step - 1) // 4)
    assert_equal(train(molecules, Unfinished(tmp_path)), whole)


def test_an_interrupt_while_the_way_back_is_laid_loses_nothing(molecules, tmp_path, monkeypatch):
    whole = train(molecules)
    calls = []

    def interrupted(self):
        calls.append(1)
        if len(calls) == 3:
            self.copies[0].fill_(7)
            raise KeyboardInterrupt
        save(self)

    save = loop.Rewind.save
    with monkeypatch.context() as patch:
        patch.setattr(loop.Rewind, "save", interrupted)
        train(molecules, Unfinished(tmp_path))
    assert_equal(train(molecules, Unfinished(tmp_path)), whole)


def test_it_is_kept_when_it_is_time_and_not_before(tree, tmp_path):
    train(tree, Unfinished(tmp_path / "never", every=1000))
    assert not (tmp_path / "never").exists()
    seen = []
    train(tree, Unfinished(tmp_path / "always", every=0), lambda _: seen.append((tmp_path / "always" / FILE).exists()))
    assert seen == [False] + [True] * (len(seen) - 1)
    Unfinished(tmp_path / "always").remove()
    assert list((tmp_path / "always").iterdir()) == []


def test_a_lowered_rate_stays_lowered(tree, tmp_path):
    seed_everything(0)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    progress = loop.EpochProgress().after(loop.Epoch(1, 1.0, 1.0, 0.5), model.state_dict, 2.5, "halved the rate")
    optimizer.param_groups[0]["lr"] = 0.125
    Unfinished(tmp_path).save(Rewind(model, optimizer), progress)
    other = torch.nn.Linear(2, 2)
    restored = torch.optim.Adam(other.parameters(), lr=0.5)
    found = Unfinished(tmp_path).restore(Rewind(other, restored))
    assert restored.param_groups[0]["lr"] == 0.125
    assert (found.history, found.seconds, found.best.epoch) == (progress.history, 2.5, 1)
    assert found.guard == "halved the rate"
    torch.testing.assert_close(other.weight, model.weight, rtol=0, atol=0)


def test_other_data_are_refused(tree, tmp_path):
    train(tree, Unfinished(tmp_path, 0, {"num_nodes": 5}), ending(KeyboardInterrupt, at=2))
    with pytest.raises(InputError, match=r"was begun with num_nodes 5, but here it is 6: remove it"):
        train(tree, Unfinished(tmp_path, 0, {"num_nodes": 6}))


def test_another_model_is_refused(tree, tmp_path):
    train(tree, Unfinished(tmp_path, 0), ending(KeyboardInterrupt, at=2))
    with pytest.raises(InputError, match="does not fit the run"):
        train(tree, Unfinished(tmp_path, 0), name="mlp")


@pytest.fixture
def kept(tree, tmp_path):
    train(tree, Unfinished(tmp_path, 0), ending(KeyboardInterrupt, at=3), name="mlp", settings=FP16)
    return tmp_path / FILE


DAMAGES = {
    "history": [[], [{}], [{"number": 2, "loss": 1.0, "val_loss": 1.0, "val_metric": 1.0}], 3, None],
    "best": [{}, None, {"epoch": 4, "metric": 1.0, "loss": 1.0}, {"epoch": 1, "metric": "a", "loss": 1.0}],
    "seconds": ["1", None],
    "lr": [None, ["a"]],
    "about": [None, []],
}


@pytest.mark.parametrize("key, value", [(key, value) for key, values in DAMAGES.items() for value in values])
def test_damaged_facts(tree, kept, key, value):
    tensors, facts = read_tensors(kept)
    write_tensors(kept, tensors, {**facts, key: value})
    with pytest.raises(InputError, match=r"is damaged: remove it to begin the training anew"):
        train(tree, Unfinished(kept.parent, 0), name="mlp", settings=FP16)


@pytest.mark.parametrize(
    "factor",
    [
        3,
        {"scale": 8.0},
        {"scale": "8", "growth_tracker": 1},
        {"scale": float("nan"), "growth_tracker": 1},
        {"scale": 1e39, "growth_tracker": 1},
        {"scale": 0.0, "growth_tracker": 1},
        {"scale": 8.0, "growth_tracker": -1},
        {"scale": 8.0, "growth_tracker": 2**31},
    ],
)
def test_a_damaged_factor(tree, kept, factor):
    tensors, facts = read_tensors(kept)
    write_tensors(kept, tensors, {**facts, "scaler": factor})
    with pytest.raises(InputError, match="does not hold the factor of the loss"):
        train(tree, Unfinished(kept.parent, 0), name="mlp", settings=FP16)


@pytest.mark.parametrize(
    "name, change, words",
    [
        ("generator/cpu", lambda tensor: tensor[:3], "states of the generators"),
        ("generator/cpu", lambda tensor: tensor.float(), "states of the generators"),
        ("generator/cpu", None, "states of the generators"),
        ("optimizer/0/exp_avg", lambda tensor: tensor[:1], "memory of parameter 0"),
        ("optimizer/0/step", None, "memory of parameter 0"),
        ("model/network.lins.0.weight", lambda tensor: tensor[:1], "does not fit the run"),
        ("best/network.lins.0.weight", None, "does not fit the run"),
    ],
)
def test_damaged_tensors(tree, kept, name, change, words):
    tensors, facts = read_tensors(kept)
    assert name in load_file(kept)
    tensor = tensors.pop(name)
    if change is not None:
        tensors[name] = change(tensor)
    write_tensors(kept, tensors, facts)
    with pytest.raises(InputError, match=words):
        train(tree, Unfinished(kept.parent, 0), name="mlp", settings=FP16)


@pytest.mark.parametrize("name", ["optimizer/99/step", "optimizer/x/step", "elsewhere/a"])
def test_unknown_tensors(tree, kept, name):
    tensors, facts = read_tensors(kept)
    write_tensors(kept, {**tensors, name: torch.zeros(1)}, facts)
    with pytest.raises(InputError, match="is damaged"):
        train(tree, Unfinished(kept.parent, 0), name="mlp", settings=FP16)


@pytest.mark.parametrize("facts", ["[1]", "3", "{", json.dumps({"format_version": 2})])
def test_files_of_something_else(tree, kept, facts):
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(1)}, kept, {"facts": facts})
    with pytest.raises(InputError, match=r"damaged|format version"):
        train(tree, Unfinished(kept.parent, 0), name="mlp", settings=FP16)


@fuzzed(drawn=st.data())
def test_whatever_the_file_holds_only_input_errors_come_out(tree, kept, drawn):
    sound = kept.read_bytes()
    tensors, facts = read_tensors(kept)
    try:
        if drawn.draw(st.booleans()):
            kept.write_bytes(drawn.draw(damaged(sound)))
        else:
            values = drawn.draw(changed(facts))
            write_tensors(kept, tensors, values if isinstance(values, dict) else {})
        model = create("mlp", in_features=4, hidden_dim=6, num_classes=3, num_layers=2)
        with input_errors_alone():
            scaler = torch.amp.GradScaler("cpu")
            Unfinished(kept.parent).restore(Rewind(model, RiemannianAdam(model.parameters()), None, scaler))
    finally:
        kept.write_bytes(sound)
