from dataclasses import replace

import pytest
import torch
from toy_translation import toy_recipe
from watching import needs_cuda

from hkconv.errors import InputError
from hkconv.language import captured_step
from hkconv.language.batches import Buckets
from hkconv.language.captured_step import CapturedStep
from hkconv.language.log import read_log
from hkconv.language.loss import summed_loss
from hkconv.language.step import Step
from hkconv.language.train import train_translator
from hkconv.models.translation import create_translator


class Recorded:
    """In the place of a CUDA graph on a machine without a GPU: the same first runs, then the function itself."""

    def __init__(self, function, owner, undo, pool):
        for _ in range(4):
            function()
        undo()
        self.function = function

    def __call__(self):
        return self.function()


def gradient_of(kind, batches, monkeypatch):
    torch.manual_seed(0)
    model = create_translator("hkn", 200, 8, 2, 16, 1, dropout=0.3, max_length=64)

    def batch_loss(batch):
        return summed_loss(model(batch.source, batch.target[:, :-1]), batch.target[:, 1:], 0.1)

    step = kind(model, batch_loss, clip=1.0)
    monkeypatch.setattr(step, "_update", lambda lr: torch.tensor(lr))
    losses = [step(batches[start : start + 2], 0.5)[0] for start in (0, 2)]
    return losses, [parameter.grad.clone() for parameter in model.parameters()]


def test_recording_leaves_no_trace_in_gradients_and_random_numbers(corpus, monkeypatch):
    monkeypatch.setattr(captured_step, "Captured", Recorded)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    buckets = Buckets(corpus, 128, fill=True)
    batches = [buckets.load(pairs) for pairs in buckets.shuffled(0, 0)[:4]]
    assert len({batch.source.shape for batch in batches}) > 1
    expected, found = (gradient_of(kind, batches, monkeypatch) for kind in (Step, CapturedStep))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


def test_a_step_that_is_watched_records_nothing(corpus, monkeypatch):
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    buckets = Buckets(corpus, 128, fill=True)
    batches = [buckets.load(pairs) for pairs in buckets.shuffled(0, 0)[:2]]
    found = []
    for kind in (Step, CapturedStep):
        torch.manual_seed(0)
        model = create_translator("transformer", 200, 8, 2, 16, 1, dropout=0.3, max_length=64)
        step = kind(model, lambda batch, model=model: model(batch.source, batch.target[:, :-1]).sum(), clip=1.0)
        # Adam that counts on a GPU takes no step on a CPU.
        monkeypatch.setattr(step, "_clip_and_move", lambda: torch.zeros(()))
        loss, _ = step.unrecorded(batches, 0.5)
        found.append([loss, *(parameter.grad for parameter in model.parameters())])
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)
    assert (step.gradients, step.update) == ({}, None)
    assert step.replays


def test_a_machine_without_a_gpu(tmp_path):
    with pytest.raises(InputError, match="capture needs a CUDA device, got cpu"):
        train_translator(toy_recipe(tmp_path, capture=True))
    assert not (tmp_path / "run").exists()


def losses(folder):
    return [(entry.step, entry.loss, entry.validation_loss) for entry in read_log(folder / "log.jsonl")]


def trained(tmp_path, name, **changes):
    (tmp_path / name).mkdir()
    return toy_recipe(tmp_path / name, device="cuda", **changes)


@needs_cuda
@pytest.mark.parametrize("model", ["transformer", "hybonet", "hkn"])
def test_a_captured_training_is_the_training(tmp_path, model):
    plain, captured = (
        losses(train_translator(trained(tmp_path, str(flag), model=model, dropout=0.0, capture=flag)).folder)
        for flag in (False, True)
    )
    assert [step for step, *_ in captured] == [step for step, *_ in plain]
    for entry, expected in zip(captured, plain):
        # Not every line has a validation.
        assert [value for value in entry if value is not None] == pytest.approx(
            [value for value in expected if value is not None], rel=1e-3
        )


@needs_cuda
def test_a_captured_training_goes_on_as_if_it_had_not_stopped(tmp_path):
    whole = train_translator(trained(tmp_path, "whole", model="hkn", dropout=0.3, capture=True)).folder
    part = trained(tmp_path, "part", model="hkn", dropout=0.3, capture=True, steps=5)
    train_translator(part)
    resumed = train_translator(replace(part, steps=12), resume=True).folder
    assert losses(resumed) == losses(whole)
