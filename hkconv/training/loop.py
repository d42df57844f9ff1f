"""The training loop: one for node, graph and link tasks, short enough to be read in one sitting."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hkconv.data import LinkSplit, Split
from hkconv.errors import InputError
from hkconv.training.capture import CapturedMeasure, CapturedStep, check_capture
from hkconv.training.finite import first_non_finite
from hkconv.training.layerwise import check_sampled
from hkconv.training.optimizer import RiemannianAdam
from hkconv.training.rewind import Rewind
from hkconv.training.settings import Settings
from hkconv.training.step import train_step, update
from hkconv.training.tasks import Dataset, Score, Task, make_task


@dataclass(frozen=True)
class Epoch:
    """What one epoch came to; the first has number 1."""

    number: int
    loss: float
    val_loss: float
    val_metric: float


@dataclass(frozen=True)
class FitResult:
    """A finished training; the model is left with the weights of ``best_epoch``.

    Args:
        metric: the name of the metric.
        best_epoch: the epoch with the best validation metric, the lowest validation loss among equals.
        val_metric, val_loss: validation scores of that epoch.
        test_metric, test_loss: test scores, computed once, with the weights of that epoch; None where the split
            hides its test part.
        seconds: wall time.
        interrupted: whether Ctrl-C ended the training.
        history: every epoch.
    """

    metric: str
    best_epoch: int
    val_metric: float
    val_loss: float
    test_metric: float | None
    test_loss: float | None
    seconds: float
    interrupted: bool
    history: list[Epoch]

    @property
    def epochs(self) -> int:
        """How many epochs were trained."""
        return len(self.history)


def fit(
    model: torch.nn.Module,
    dataset: Dataset,
    split: Split | LinkSplit,
    settings: Settings | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
) -> FitResult:
    """Train a model on one split, with early stopping, and leave it with its best weights.

    Ctrl-C ends the training early but in order, unless it comes before the end of the first epoch. The host waits
    for a GPU once an epoch, when it brings home that epoch's losses and scores.

    Args:
        model: a network with the signature of :class:`hkconv.models.HKN`; its device and type are kept.
        dataset: graphs and labels.
        split: one of the dataset's.
        settings: how to train.
        on_epoch: called after every epoch.

    Returns:
        Scores and history.
    """
    settings = settings or Settings()
    reference = next(model.parameters())
    if settings.capture:
        check_capture(reference.device, dataset.task, model)
    check_sampled(model, dataset.task, settings)
    batching = {"batch_size": settings.batch_size, "neighbors": settings.neighbors, "seed": settings.seed}
    task = make_task(dataset, split, reference, **batching)
    trainer = _Trainer(model, task, settings)
    history: list[Epoch] = []
    best: _Best | None = None
    interrupted = False
    started = time.perf_counter()
    try:
        for number in range(1, settings.epochs + 1):
            loss, val = trainer.run_epoch(number)
            history.append(Epoch(number, loss, val.loss, val.metric))
            if best is None or best.is_beaten_by(val):
                best = _Best(number, val, _copy_of_weights(model))
            if on_epoch is not None:
                on_epoch(history[-1])
            if number - best.epoch >= settings.patience:
                break
    except KeyboardInterrupt:
        if best is None:
            raise
        interrupted = True
    model.load_state_dict(best.weights)
    test = task.evaluate(model, "test") if split.test is not None else None
    seconds = time.perf_counter() - started
    return FitResult(
        task.metric,
        best.epoch,
        best.score.metric,
        best.score.loss,
        None if test is None else test.metric,
        None if test is None else test.loss,
        seconds,
        interrupted,
        history,
    )


@dataclass(frozen=True)
class _Best:
    epoch: int
    score: Score
    weights: dict[str, Tensor]

    def is_beaten_by(self, score: Score) -> bool:
        return (score.metric, -score.loss) > (self.score.metric, -self.score.loss)


class _Trainer:
    """Epochs, in which everything stays on the device until the end."""

    def __init__(self, model: torch.nn.Module, task: Task, settings: Settings):
        self.model, self.task = model, task
        self.optimizer = RiemannianAdam(
            model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay, capturable=settings.capture
        )
        self.rewind = Rewind(model, self.optimizer, task.generator)
        self.step: Callable[[Any], Tensor] = partial(train_step, model, task, self.optimizer)
        self.measure: Callable[[], Tensor] = partial(task.measure, model, "val")
        if settings.capture:
            self.step = CapturedStep(model, task, self.optimizer)
            self.measure = CapturedMeasure(model, task, "val")

    def run_epoch(self, number: int) -> tuple[float, Score]:
        """One pass over the training data; returns the mean loss of its steps and the validation score."""
        self.rewind.save()
        self.model.train()
        on_device = torch.stack([self.step(batch) for batch in self.task.batches()])
        # The one place where the host waits for a GPU.
        *losses, metric, val_loss = torch.cat([on_device.double(), self.measure()]).tolist()
        for loss in losses:
            if not math.isfinite(loss):
                raise _divergence("training", loss, number, self._retrace())
        if not math.isfinite(val_loss):
            place = first_non_finite(self.model, lambda: self.task.measure(self.model, "val"))
            raise _divergence("validation", val_loss, number, place)
        return sum(losses) / len(losses), Score(metric, val_loss)

    def _retrace(self) -> str:
        """Walk through the epoch again, up to the first loss that is not finite, and say where that one arose."""
        self.rewind.restore()
        self.model.train()
        for batch in self.task.batches():
            loss = self.task.loss(self.model, batch)
            if not loss.isfinite():
                break
            update(self.optimizer, loss)
        return first_non_finite(self.model, lambda: self.task.loss(self.model, batch))


def _divergence(part: str, loss: float, epoch: int, place: str) -> InputError:
    return InputError(
        f"the {part} loss became {loss} in epoch {epoch}; first not finite: {place}; a smaller lr may help"
    )


def _copy_of_weights(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
