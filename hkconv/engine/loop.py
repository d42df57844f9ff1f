"""The training loop: one for node, graph and link tasks, short enough to be read in one sitting."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from hkconv.engine.devices import compiled
from hkconv.engine.distributed import ALONE, LostProcessError, Processes
from hkconv.engine.guard import ADVICE, DivergenceError, Guard, Rewind, first_non_finite, largest_parameter
from hkconv.engine.optimizer import RiemannianAdam
from hkconv.engine.settings import Settings
from hkconv.engine.step import CapturedMeasure, CapturedSteps, Precision, shared_step, train_step
from hkconv.engine.task import Score, Task

if TYPE_CHECKING:
    from hkconv.engine.state import Unfinished


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
        interrupted: whether Ctrl-C or the guard ended the training.
        history: every epoch.
        guard: what the guard did when something was not finite, in words; None if it had nothing to do.
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
    guard: str | None = None

    @property
    def epochs(self) -> int:
        """How many epochs were trained."""
        return len(self.history)


def train(
    model: torch.nn.Module,
    task: Task,
    settings: Settings,
    on_epoch: Callable[[Epoch], None] | None = None,
    processes: Processes = ALONE,
    unfinished: "Unfinished | None" = None,
) -> FitResult:
    """Train a model for a task, with early stopping, and leave it with its best weights.

    Ctrl-C ends the training early but in order, unless it comes before the end of the first epoch. The host waits
    for a GPU once an epoch, when it brings home that epoch's losses and scores. If one of them is not finite, the epoch
    is taken back and trained with half the learning rate, once; see :mod:`hkconv.engine.guard`.

    When one of several processes is lost, the first ends the training as after Ctrl-C; the others raise.

    Args:
        model: a network that the task can call; its device and type are kept.
        task: batches, loss and measure.
        settings: how to train.
        on_epoch: called after every epoch.
        processes: which train together, each on its part of every batch; all of them call this function.
        unfinished: where the training is kept while it lasts, and goes on from if it is there. Its last state stays
            there: remove it when what comes of the training is safe.

    Returns:
        Scores and history; a :class:`~hkconv.engine.guard.DivergenceError` if that did not help.
    """
    trainer = _Trainer(model, task, settings, processes)
    kept = (model, trainer.optimizer, trainer.task.generator, trainer.precision.scaler)
    progress = Progress() if unfinished is None else unfinished.restore(*kept)
    trainer.guard.recovery = progress.guard
    if progress.history:
        processes.seed_dropout(settings.seed)
    interrupted = False
    divergence: DivergenceError | None = None
    started = time.perf_counter() - progress.seconds
    try:
        while progress.goes_on(settings):
            number = len(progress.history) + 1
            loss, val = trainer.run_epoch(number)
            epoch = Epoch(number, loss, val.loss, val.metric)
            # In one step, so that an interrupt finds all of the epoch or nothing.
            progress = progress.after(epoch, model, time.perf_counter() - started, trainer.guard.recovery)
            if on_epoch is not None:
                on_epoch(epoch)
            if unfinished is not None and processes.is_first:
                unfinished.save_if_due(*kept, progress)
    except (KeyboardInterrupt, LostProcessError):
        if not progress.history or not processes.is_first:
            raise
        interrupted = True
        processes.leave()
        if unfinished is not None:
            trainer.undo_after(len(progress.history))
            unfinished.save(*kept, progress)
    except DivergenceError as error:
        if not progress.history:
            raise
        interrupted, divergence = True, error
    told = trainer.guard.recovery if divergence is None else str(divergence)
    result = _result(trainer, progress, task.has_test, started, interrupted, told)
    if divergence is not None:
        divergence.best = result
        raise divergence
    return result


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
    """How far a training is: its epochs, the best of them, the wall time, and what the guard has done."""

    history: list[Epoch] = field(default_factory=list)
    best: Best | None = None
    seconds: float = 0.0
    guard: str | None = None

    def goes_on(self, settings: Settings) -> bool:
        """Whether another epoch follows."""
        done = len(self.history)
        return done < settings.epochs and (self.best is None or done - self.best.epoch < settings.patience)

    def after(self, epoch: Epoch, model: torch.nn.Module, seconds: float, guard: str | None) -> "Progress":
        """How far it is after one more epoch, which left the model as it is."""
        score = Score(epoch.val_metric, epoch.val_loss)
        is_best = self.best is None or self.best.is_beaten_by(score)
        best = Best(epoch.number, score, _copy_of_weights(model)) if is_best else self.best
        return Progress([*self.history, epoch], best, seconds, guard)


class _Trainer:
    """Epochs, in which everything stays on the device until the end."""

    def __init__(self, model: torch.nn.Module, task: Task, settings: Settings, processes: Processes = ALONE):
        self.model, self.task, self.processes = model, task, processes
        task.divide_among(processes)
        processes.copy_model(model)
        self.begun = 0
        self.optimizer = RiemannianAdam(
            model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay, capturable=settings.capture
        )
        self.precision = Precision(settings.precision, next(model.parameters()).device)
        self.rewind = Rewind(model, self.optimizer, task.generator, self.precision.scaler)
        self.guard = Guard(model, task, self.optimizer, partial(self._plain_step, model), self.rewind)
        self.runner = compiled(model) if settings.compile else model
        self.step: Callable[[Any], Tensor] = partial(self._plain_step, self.runner)
        self.measure: Callable[[], Tensor] = self._measure
        if settings.capture:
            self.step = CapturedSteps(model, task, self.optimizer, self.precision)
            self.measure = CapturedMeasure(model, self._measure)

    def run_epoch(self, number: int) -> tuple[float, Score]:
        """One pass over the training data; returns the mean loss of its steps and the validation score."""
        self.rewind.save()
        self.begun = number
        self.model.train()
        on_device = torch.stack([self.step(batch) for batch in self.task.batches()])
        # Running means of a batch norm are each process's own.
        self.processes.copy_model(self.model, buffers_only=True)
        # The one place where the host waits for a GPU.
        found = torch.cat([on_device.double(), self.measure()]).tolist()
        *losses, metric, val_loss, largest = self.processes.agree(found)
        if self.task.generator is not None:
            self.processes.check_in_step(self.task.generator)
        fault = self.guard.find_fault(number, losses, val_loss, largest)
        if fault is None:
            return sum(losses) / len(losses), Score(metric, val_loss)
        self.guard.recover(fault)
        # A CUDA graph goes on with the learning rate that it was recorded with.
        self.step = partial(self._plain_step, self.runner)
        return self.run_epoch(number)

    def undo_after(self, number: int) -> None:
        """Take back what was done of an epoch after that of this number, wherever it was broken off."""
        if self.begun > number:
            self.rewind.restore()

    def _plain_step(self, runner: torch.nn.Module, batch: Any) -> Tensor:
        if self.processes.count > 1:
            return shared_step(runner, self.task, self.optimizer, self.processes, batch)
        return train_step(runner, self.task, self.optimizer, batch, self.precision)

    def _measure(self) -> Tensor:
        """Metric and mean loss of the validation part, and the largest parameter."""
        return torch.cat([self.task.measure(self.runner, "val"), largest_parameter(self.model)])


def _result(
    trainer: _Trainer, progress: Progress, has_test: bool, started: float, interrupted: bool, guard: str | None
) -> FitResult:
    """Leave the model with its best weights, and measure it on the test part if there is one."""
    # At least one epoch was trained: without one, an interrupt was raised again.
    best = cast(Best, progress.best)
    trainer.model.load_state_dict(best.weights)
    test = _test_score(trainer.model, trainer.task) if has_test else None
    return FitResult(
        trainer.task.metric,
        best.epoch,
        best.score.metric,
        best.score.loss,
        None if test is None else test.metric,
        None if test is None else test.loss,
        time.perf_counter() - started,
        interrupted,
        progress.history,
        guard,
    )


def _test_score(model: torch.nn.Module, task: Task) -> Score:
    score = task.evaluate(model, "test")
    if not math.isfinite(score.loss):
        place = first_non_finite(model, lambda: task.measure(model, "test"))
        raise DivergenceError(f"the test loss is {score.loss}; first not finite: {place}; {ADVICE}")
    return score


def _copy_of_weights(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
