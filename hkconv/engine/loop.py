"""The training loop: one for everything that is trained, by epochs or by steps, to be read in one sitting."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from hkconv.engine.devices import compiled
from hkconv.engine.distributed import ALONE, LostProcessError, Processes
from hkconv.engine.guard import DivergenceError, FaultError, Guard, Rewind, first_non_finite, largest_parameter
from hkconv.engine.optimizer import RiemannianAdam
from hkconv.engine.settings import Settings
from hkconv.engine.step import CapturedMeasure, CapturedSteps, Precision, Step
from hkconv.engine.task import Score, Task
from hkconv.errors import InputError

if TYPE_CHECKING:
    from hkconv.engine.state import Unfinished


@dataclass(frozen=True)
class Epoch:
    """Losses and validation score of one epoch; the first has number 1."""

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
        test_ap: of links the average precision beside the test metric.
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
    test_ap: float | None = None

    @property
    def epochs(self) -> int:
        """Return how many epochs were trained."""
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
    epochs = EpochCourse(model, task, settings, on_epoch, processes, unfinished)
    started = epochs.started
    interrupted = False
    divergence: DivergenceError | None = None
    try:
        epochs.loop.run()
    except (KeyboardInterrupt, LostProcessError):
        if not epochs.progress.history or not processes.is_first:
            raise
        interrupted = True
        processes.leave()
        epochs.keep_interrupted()
    except DivergenceError as error:
        if not epochs.progress.history:
            raise
        interrupted, divergence = True, error
    told = epochs.recovery if divergence is None else str(divergence)
    result = _result(model, task, epochs.progress, started, interrupted, told)
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
        """Return whether a later epoch with that score is better."""
        return (score.metric, -score.loss) > (self.score.metric, -self.score.loss)


@dataclass(frozen=True)
class EpochProgress:
    """State of a training by epochs: its history, the best epoch, the wall time, and what the guard has done."""

    history: list[Epoch] = field(default_factory=list)
    best: Best | None = None
    seconds: float = 0.0
    guard: str | None = None

    def goes_on(self, settings: Settings) -> bool:
        """Return whether another epoch follows."""
        done = len(self.history)
        return done < settings.epochs and (self.best is None or done - self.best.epoch < settings.patience)

    def after(
        self, epoch: Epoch, copy_weights: Callable[[], dict[str, Tensor]], seconds: float, guard: str | None
    ) -> "EpochProgress":
        """Return the progress after one more epoch; its weights are copied if it is the best."""
        score = Score(epoch.val_metric, epoch.val_loss)
        is_best = self.best is None or self.best.is_beaten_by(score)
        best = Best(epoch.number, score, copy_weights()) if is_best else self.best
        return EpochProgress([*self.history, epoch], best, seconds, guard)


class Course(ABC):
    """The windows of a training: epochs, or steps up to the next line of a log. A window ends where the host looks.

    ``losses`` and ``norms`` are those of the steps of the window, 0-d tensors on the device, ``taken`` is how many of
    them were taken since it began. ``recovery`` says what the guard has done, in words; None if nothing.
    """

    advice: str
    recovery: str | None = None

    def __init__(self) -> None:
        self.losses: list[Tensor] = []
        self.norms: list[Tensor] = []
        self.taken = 0

    @abstractmethod
    def goes_on(self) -> bool:
        """Return whether another window follows."""

    @abstractmethod
    def window(self, *, again: bool = False) -> Iterator[tuple[str, Sequence[Any], float | None]]:
        """Yield the steps of the next window: a name, the batches, and a learning rate if it is scheduled.

        ``again`` says that they were taken before: neither a clock nor an interrupt ends the window.
        """

    def begin(self) -> None:
        """Remember the present, which is where :meth:`go_back` leads."""
        self.taken = 0

    @abstractmethod
    def go_back(self) -> None:
        """Be at the start of the window; the loop takes back the model and the optimizer."""

    @abstractmethod
    def measure(self) -> Tensor:
        """Return what the host shall see at the end of a window, on the device; last the largest parameter."""

    @abstractmethod
    def ended(self, losses: list[float], norms: list[float], measured: list[float]) -> None:
        """Record a window of finite steps; the guard may raise for what is measured here."""

    @abstractmethod
    def halve_rate(self) -> str:
        """Go on with half the learning rate; return in words from where and with which."""

    @abstractmethod
    def recovered(self, done: str) -> None:
        """Heed that the guard took back a window, which ``done`` says in words."""

    @abstractmethod
    def when(self, what: str, number: int = 0) -> str:
        """Return when something became not finite: a step of the window, a parameter or the validation."""


class Loop:
    """Takes the steps of a course, window by window, in which everything stays on the device until the end.

    Args:
        course: epochs or steps.
        step: takes a step.
        rewind: of the model and all that a step changes.
    """

    def __init__(self, course: Course, step: Step, rewind: Rewind):
        self.course, self.step, self.rewind = course, step, rewind
        self.guard = Guard(course, step, rewind)

    def run(self) -> None:
        """Train to the end of the course. A window with a number that is not finite is taken back, once."""
        while self.course.goes_on():
            self.run_window()

    def run_window(self) -> None:
        """Take the steps of a window, look at what came of them, and record it or go back."""
        course = self.course
        self.rewind.save()
        course.begin()
        self.step.model.train()
        for _, batches, lr in course.window():
            self.take(batches, lr)
        try:
            losses, norms, measured = self._bring_home()
            self.guard.check_steps(losses, norms, measured[-1])
            course.ended(losses, norms, measured)
        except FaultError as fault:
            course.recovered(self.guard.recover(fault))

    def take(self, batches: Sequence[Any], lr: float | None) -> None:
        """Take one step; the host does not wait for it."""
        loss, norm = self.step(batches, lr)
        self.course.taken += 1
        self.course.losses.append(loss)
        if norm is not None:
            self.course.norms.append(norm)

    def _bring_home(self) -> tuple[list[float], list[float], list[float]]:
        course = self.course
        on_device = torch.stack(course.losses + course.norms).double()
        # The one place where the host waits for a GPU.
        found = self.step.processes.agree(torch.cat([on_device, course.measure()]).tolist())
        first, second = len(course.losses), len(course.losses) + len(course.norms)
        return found[:first], found[first:second], found[second:]


class EpochCourse(Course):
    """Epochs with early stopping, the best weights in memory; arguments are those of :func:`train`."""

    advice = "a smaller lr may help, or for hkn a reach of 5 or norm layer"

    def __init__(
        self,
        model: torch.nn.Module,
        task: Task,
        settings: Settings,
        on_epoch: Callable[[Epoch], None] | None = None,
        processes: Processes = ALONE,
        unfinished: "Unfinished | None" = None,
    ):
        super().__init__()
        self.model, self.task, self.settings, self.processes = model, task, settings, processes
        self.on_epoch, self.unfinished = on_epoch, unfinished
        task.divide_among(processes)
        if settings.capture and processes.count > 1:
            raise InputError(f"capture records whole steps, which {processes.count} processes cannot share: use one")
        processes.copy_model(model)
        self.optimizer = RiemannianAdam(
            model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay, capturable=settings.capture
        )
        self.precision = Precision(settings.precision, next(model.parameters()).device)
        self.runner = compiled(model) if settings.compile else model
        kind = CapturedSteps if settings.capture else Step
        step = kind(model, task, self.optimizer, precision=self.precision, processes=processes, runner=self.runner)
        self.loop = Loop(self, step, Rewind(model, self.optimizer, task.generator, self.precision.scaler))
        self.on_device: Callable[[], Tensor] = self._measure
        if settings.capture:
            self.on_device = CapturedMeasure(model, self._measure)
        self.begun = 0
        self.progress = EpochProgress() if unfinished is None else unfinished.restore(self.loop.rewind)
        self.recovery = self.progress.guard
        if self.progress.history:
            processes.seed_dropout(settings.seed)
        self.started = time.perf_counter() - self.progress.seconds

    @property
    def number(self) -> int:
        """The number of the epoch that is trained next or now."""
        return len(self.progress.history) + 1

    def goes_on(self) -> bool:
        return self.progress.goes_on(self.settings)

    def begin(self) -> None:
        super().begin()
        self.begun = self.number
        self.losses = []

    def window(self, *, again: bool = False) -> Iterator[tuple[str, Sequence[Any], None]]:
        for number, batch in enumerate(self.task.batches(), start=1):
            yield f"batch {number}", [batch], None

    def go_back(self) -> None:
        # The epoch begins with the generators, which the loop takes back.
        pass

    def measure(self) -> Tensor:
        # Running means of a batch norm are each process's own.
        self.processes.copy_model(self.model, buffers_only=True)
        return self.on_device()

    def ended(self, losses: list[float], norms: list[float], measured: list[float]) -> None:
        metric, val_loss, _ = measured
        if self.task.generator is not None:
            self.processes.check_in_step(self.task.generator)
        self.loop.guard.check_validation(val_loss, lambda: self.task.measure(self.model, "val"))
        epoch = Epoch(self.number, sum(losses) / len(losses), val_loss, metric)
        # In one step, so that an interrupt finds all of the epoch or nothing.
        seconds = time.perf_counter() - self.started
        self.progress = self.progress.after(epoch, lambda: _copy_of_weights(self.model), seconds, self.recovery)
        if self.on_epoch is not None:
            self.on_epoch(epoch)
        if self.unfinished is not None and self.processes.is_first:
            self.unfinished.save_if_due(self.loop.rewind, self.progress)

    def halve_rate(self) -> str:
        for group in self.optimizer.param_groups:
            group["lr"] /= 2
        return f"the start of the epoch with lr {self.optimizer.param_groups[0]['lr']:g}"

    def recovered(self, done: str) -> None:
        # The next epoch is kept with it.
        self.recovery = done

    def when(self, what: str, number: int = 0) -> str:
        return f"in epoch {self.number}"

    def keep_interrupted(self) -> None:
        """Write the state after the last epoch, wherever the next one was broken off."""
        if self.unfinished is None:
            return
        if self.begun > len(self.progress.history):
            self.loop.rewind.restore()
        self.unfinished.save(self.loop.rewind, self.progress)

    def _measure(self) -> Tensor:
        """Return metric and mean loss of the validation part, and the largest parameter."""
        return torch.cat([self.task.measure(self.runner, "val"), largest_parameter(self.model)])


def _result(
    model: torch.nn.Module, task: Task, progress: EpochProgress, started: float, interrupted: bool, guard: str | None
) -> FitResult:
    """Leave the model with its best weights, and measure it on the test part if there is one."""
    # At least one epoch was trained: without one, an interrupt was raised again.
    best = cast(Best, progress.best)
    model.load_state_dict(best.weights)
    test = _test_score(model, task) if task.has_test else None
    return FitResult(
        task.metric,
        best.epoch,
        best.score.metric,
        best.score.loss,
        None if test is None else test.metric,
        None if test is None else test.loss,
        time.perf_counter() - started,
        interrupted,
        progress.history,
        guard,
        None if test is None else test.ap,
    )


def _test_score(model: torch.nn.Module, task: Task) -> Score:
    score = task.evaluate(model, "test")
    if not math.isfinite(score.loss):
        place = first_non_finite(model, lambda: task.measure(model, "test"))
        raise DivergenceError(f"the test loss is {score.loss}; first not finite: {place}; {EpochCourse.advice}")
    return score


def _copy_of_weights(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
