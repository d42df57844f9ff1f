import math
from dataclasses import replace

import pytest
import torch
from toy_translation import toy_recipe
from watching import needs_cuda

from hkconv.engine import step as engine_step
from hkconv.engine.step import CapturedParts, Step
from hkconv.engine.steps import read_log
from hkconv.engine.task import Objective
from hkconv.errors import InputError
from hkconv.geometry.lorentz import dist
from hkconv.language.batches import Buckets
from hkconv.language.loss import summed_loss
from hkconv.language.task import make_optimizer, noam
from hkconv.language.train import train_translator
from hkconv.models.translation import create_translator


class Smoothed(Objective):
    """The loss of translation without a run."""

    def loss(self, model, batch):
        return summed_loss(model(batch.source, batch.target[:, :-1]), batch.target[:, 1:], 0.1)

    def total_weight(self, batches):
        return sum(batch.target_tokens for batch in batches)


def make_step(kind, model):
    return kind(model, Smoothed(), make_optimizer(model, capturable=kind is CapturedParts), clip=1.0)


@pytest.mark.parametrize("dim, warmup, factor", [(64, 4000, 1.0), (512, 8000, 2.0)])
def test_the_formula(dim, warmup, factor):
    for step in (1, 2, 100, warmup - 1, warmup, warmup + 1, 10 * warmup):
        rising = factor / math.sqrt(dim) * step / (warmup * math.sqrt(warmup))
        falling = factor / math.sqrt(dim) / math.sqrt(step)
        expected = rising if step < warmup else falling
        assert noam(step, dim, warmup, factor) == pytest.approx(expected, rel=1e-12)


def test_values_of_the_transformer_paper():
    assert noam(4000, 512, 4000) == pytest.approx(6.9877e-4, rel=1e-4)
    assert max(noam(step, 512, 4000) for step in range(1, 9000)) == noam(4000, 512, 4000)


@pytest.mark.parametrize("name", ["hkn", "transformer"])
def test_a_point_moves_as_far_as_a_vector_of_its_dimension(corpus, name):
    """Adam's first step has the length of the learning rate in every coordinate, whatever the gradient."""
    dim, lr = 8, 1e-3
    torch.manual_seed(0)
    model = create_translator(name, 200, dim, 2, 16, 1, max_length=64)
    step = make_step(Step, model)
    buckets = Buckets(corpus, 128)
    before = {key: value.detach().clone() for key, value in model.named_parameters()}
    step([buckets.load(buckets.shuffled(0, 0)[0])], lr)
    after = dict(model.named_parameters())
    tokens = after["embedding.tokens"]
    has_gradient = tokens.grad.norm(dim=-1) > 1e-5
    if name == "hkn":
        moved = dist(before["embedding.tokens"], tokens.detach())
    else:
        moved = (before["embedding.tokens"] - tokens.detach()).norm(dim=-1)
    assert has_gradient.any()
    torch.testing.assert_close(
        moved[has_gradient], torch.full_like(moved[has_gradient], lr * math.sqrt(dim)), rtol=0.02, atol=0
    )
    flat = next(key for key in before if key.startswith("encoder.0") and key.endswith("weight"))
    largest = (after[flat] - before[flat]).abs().max().item()
    assert largest == pytest.approx(lr, rel=0.02)


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
    step = make_step(kind, model)
    monkeypatch.setattr(step, "_update", lambda lr: torch.tensor(lr))
    losses = [step(batches[start : start + 2], 0.5)[0] for start in (0, 2)]
    return losses, [parameter.grad.clone() for parameter in model.parameters()]


def test_recording_leaves_no_trace_in_gradients_and_random_numbers(corpus, monkeypatch):
    monkeypatch.setattr(engine_step, "Captured", Recorded)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    buckets = Buckets(corpus, 128, fill=True)
    batches = [buckets.load(pairs) for pairs in buckets.shuffled(0, 0)[:4]]
    assert len({batch.source.shape for batch in batches}) > 1
    expected, found = (gradient_of(kind, batches, monkeypatch) for kind in (Step, CapturedParts))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


def test_a_step_that_is_watched_records_nothing(corpus, monkeypatch):
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    buckets = Buckets(corpus, 128, fill=True)
    batches = [buckets.load(pairs) for pairs in buckets.shuffled(0, 0)[:2]]
    found = []
    for kind in (Step, CapturedParts):
        torch.manual_seed(0)
        model = create_translator("transformer", 200, 8, 2, 16, 1, dropout=0.3, max_length=64)
        step = make_step(kind, model)
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
