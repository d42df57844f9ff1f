"""The training loop: one for node, graph and link tasks, short enough to be read in one sitting."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hkconv.data import LinkSplit, Split
from hkconv.errors import InputError
from hkconv.training.capture import CapturedMeasure, CapturedStep, check_capture
from hkconv.training.finite import first_non_finite
from hkconv.training.optimizer import RiemannianAdam
from hkconv.training.rewind import Rewind
from hkconv.training.settings import Settings
from hkconv.training.step import train_step, update
from hkconv.training.tasks import Dataset, Score, Task, make_task

if TYPE_CHECKING:
    from hkconv.training.unfinished import Unfinished


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
    unfinished: "Unfinished | None" = None,
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
        unfinished: where the training is kept while it lasts, and goes on from if it is there. Its last state stays
            there: remove it when what comes of the training is safe.

    Returns:
        Scores and history.
    """
    settings = settings or Settings()
    reference = next(model.parameters())
    if settings.capture:
        check_capture(reference.device, dataset.task, model)
    task = make_task(dataset, split, reference, batch_size=settings.batch_size, seed=settings.seed)
    trainer = _Trainer(model, task, settings)
    kept = (model, trainer.optimizer, task.generator)
    progress = Progress() if unfinished is None else unfinished.restore(*kept)
    interrupted = False
    started = time.perf_counter() - progress.seconds
    try:
        while progress.goes_on(settings):
            number = len(progress.history) + 1
            loss, val = trainer.run_epoch(number)
            epoch = Epoch(number, loss, val.loss, val.metric)
            # In one step, so that an interrupt finds all of the epoch or nothing.
            progress = progress.after(epoch, model, time.perf_counter() - started)
            if on_epoch is not None:
                on_epoch(epoch)
            if unfinished is not None:
                unfinished.save_if_due(*kept, progress)
    except KeyboardInterrupt:
        if not progress.history:
            raise
        interrupted = True
        if unfinished is not None:
            trainer.undo_after(len(progress.history))
            unfinished.save(*kept, progress)
    best = progress.best
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
        progress.history,
    )


@dataclass(frozen=True)
class Best:
    """The best epoch so far, its validation score and the weights after it."""

    epoch: int
    score: Score
    weights: dict[str, Tensor]

    def is_beaten_by(self, score: Score) -> bool:
        """Whether a later epoch with that score is better."""
        return (score.metric, -score.loss) > (self.score.metric, -self.score.loss)


@dataclass(frozen=True)
class Progress:
    """How far a training is: its epochs, the best of them and the wall time."""

    history: list[Epoch] = field(default_factory=list)
    best: Best | None = None
    seconds: float = 0.0

    def goes_on(self, settings: Settings) -> bool:
        """Whether another epoch follows."""
        done = len(self.history)
        return done < settings.epochs and (done == 0 or done - self.best.epoch < settings.patience)

    def after(self, epoch: Epoch, model: torch.nn.Module, seconds: float) -> "Progress":
        """How far it is after one more epoch, which left the model as it is."""
        score = Score(epoch.val_metric, epoch.val_loss)
        is_best = self.best is None or self.best.is_beaten_by(score)
        best = Best(epoch.number, score, _copy_of_weights(model)) if is_best else self.best
        return Progress([*self.history, epoch], best, seconds)


class _Trainer:
    """Epochs, in which everything stays on the device until the end."""

    def __init__(self, model: torch.nn.Module, task: Task, settings: Settings):
        self.model, self.task = model, task
        self.begun = 0
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
        self.begun = number
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

    def undo_after(self, number: int) -> None:
        """Take back what was done of an epoch after that of this number, wherever it was broken off."""
        if self.begun > number:
            self.rewind.restore()

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
