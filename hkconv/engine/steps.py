"""Training by steps: a log with a line every few steps, validation, weights on disk, and a state to go on from."""

import json
import math
import time
from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hkconv.engine.callbacks import Callback
from hkconv.engine.files import append_json, write_bytes
from hkconv.engine.guard import Rewind, largest_parameter
from hkconv.engine.interrupts import Interrupt, held_back
from hkconv.engine.loop import Course, Loop
from hkconv.engine.state import read_state, restore_training, write_state
from hkconv.engine.step import Step
from hkconv.engine.task import Objective
from hkconv.errors import InputError, is_out_of_memory
from hkconv.opening import read_bytes


@dataclass(frozen=True)
class LogEntry:
    """A line of the loss curve.

    Args:
        step: the last step it covers.
        loss: mean, over the steps since the last line, of the loss a target token, smoothing included.
        gradient_norm: mean over the same steps of the norm before clipping.
        lr: learning rate of the step.
        epoch: complete passes over the training data.
        target_tokens: target tokens seen so far.
        seconds: time in steps so far, over all parts of the run; validation not counted.
        tokens_per_second: tokens of both sides since the last line, padding not counted.
        validation_loss: mean negative log likelihood of a token of the validation text, without smoothing; None where
            there was no validation after this step.
    """

    step: int
    loss: float
    gradient_norm: float
    lr: float
    epoch: int
    target_tokens: int
    seconds: float
    tokens_per_second: float
    validation_loss: float | None = None


_WHOLE, _NUMBER = (int,), (int, float)
_KINDS = {
    **dict.fromkeys((entry.name for entry in fields(LogEntry)), _NUMBER),
    **dict.fromkeys(("step", "epoch", "target_tokens"), _WHOLE),
    "validation_loss": (*_NUMBER, type(None)),
}


def append_entry(path: Path, entry: LogEntry) -> None:
    """Add a line."""
    append_json(path, asdict(entry), "the log")


def read_log(path: Path) -> list[LogEntry]:
    """Return every line of a log; one that a kill cut short is left out, and a log that does not exist has none."""
    if not path.exists():
        return []
    entries = []
    for line in read_bytes(path).split(b"\n"):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if _is_entry(found):
            entries.append(LogEntry(**found))
    return entries


def forget_after(path: Path, step: int) -> None:
    """Leave out the lines after a step: those steps will be taken again."""
    kept = [json.dumps(asdict(entry)) for entry in read_log(path) if entry.step <= step]
    if path.exists():
        write_bytes(path, "".join(f"{line}\n" for line in kept).encode())


def _is_entry(found: Any) -> bool:
    if not isinstance(found, dict) or found.keys() != _KINDS.keys():
        return False
    return all(type(value) in _KINDS[name] for name, value in found.items())


@dataclass(frozen=True)
class Position:
    """A place in the data: the next batch is number ``batch`` of epoch ``epoch``, both from 0."""

    epoch: int = 0
    batch: int = 0


class StepTask(Objective):
    """Data and objective of a training by steps. Batches have ``target_tokens`` and ``tokens``, those of all ranks."""

    advice: str

    @abstractmethod
    def stream(self, start: Position) -> Generator[tuple[Position, Any], None, None]:
        """Yield batches from a place on without an end, each with the place after it."""

    @abstractmethod
    def rate(self, step: int) -> float:
        """Return the learning rate of a step."""

    @abstractmethod
    def validation_losses(self, model: torch.nn.Module) -> tuple[Tensor, int]:
        """Return the summed losses of this rank's part of the validation data, and the answers of all ranks."""

    @abstractmethod
    def keep_weights(self, model: torch.nn.Module, step: int, validation_loss: float) -> None:
        """Write the weights of a step, beside those of earlier ones."""

    @abstractmethod
    def prune_weights(self) -> None:
        """Remove weights that need not be kept any more; the state says that the latest are there."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return what a state remembers of the data."""

    @abstractmethod
    def check_facts(self, facts: dict[str, Any], path: Path) -> None:
        """Refuse the state of other data."""


@dataclass
class StepProgress:
    """State of a training by steps.

    Args:
        step: steps taken.
        position: where the next step's data begins.
        target_tokens: target tokens seen.
        seconds: time spent in steps.
        new_tokens: tokens of both sides since the last line of the log.
        new_seconds: time since then.
    """

    step: int = 0
    position: Position = field(default_factory=Position)
    target_tokens: int = 0
    seconds: float = 0.0
    new_tokens: int = 0
    new_seconds: float = 0.0


@dataclass(frozen=True)
class StepSettings:
    """Steps in all, batches to a step, and steps from one line of the log or one validation to the next."""

    steps: int
    accumulate: int
    log_every: int
    validate_every: int


class StepCourse(Course):
    """Steps up to the next line of the log, from a state on disk or from the beginning.

    Args:
        task: data and objective.
        step: takes one, on the model in training mode.
        settings: when to do what.
        state: file of the state.
        log: file of the loss curve.
        callback: told of every line of the log.
    """

    def __init__(self, task: StepTask, step: Step, settings: StepSettings, state: Path, log: Path, callback: Callback):
        super().__init__()
        self.task, self.step, self.settings, self.callback = task, step, settings, callback
        self.state, self.log, self.advice = state, log, task.advice
        self.model, self.processes = step.model, step.processes
        self.progress = StepProgress()
        if state.exists():
            self._restore()
        self.processes.first(lambda: forget_after(log, self.progress.step))
        self.loop = Loop(self, step, Rewind(self.model, step.optimizer))
        self.batches: Generator[tuple[Position, Any], None, None] | None = None
        self.interrupt, self.deadline = Interrupt(), math.inf
        self.saved = self.progress.step
        self.clock = time.perf_counter()

    def run(self, deadline: float = math.inf) -> None:
        """Take steps until there are enough or the clock of :func:`time.perf_counter` has passed ``deadline``.

        Ctrl-C waits for the end of a step and for the state to be on the disk.
        """
        self.deadline = deadline
        self.callback.steps_started(self.progress.step, self.settings.steps)
        # Several processes stop together: one that finished its step alone would wait for the others forever.
        holding = held_back() if self.processes.count == 1 else nullcontext(Interrupt())
        with holding as self.interrupt, closing(self):
            self.loop.run()
            if self.saved != self.progress.step:
                self._count_time()
                self._save()
            # A kill may have come between the last state and this.
            self.processes.first(self.task.prune_weights)

    def goes_on(self) -> bool:
        return self.progress.step < self.settings.steps and self._has_time() and not self.interrupt.is_waiting

    def begin(self) -> None:
        super().begin()
        self.kept = replace(self.progress), list(self.losses), list(self.norms)

    def window(self, *, again: bool = False) -> Iterator[tuple[str, Sequence[Any], float]]:
        progress = self.progress
        if self.batches is None:
            self.batches = self.task.stream(progress.position)
        while True:
            positions, chosen = zip(*islice(self.batches, self.settings.accumulate))
            progress.step += 1
            yield f"step {progress.step}", chosen, self._rate()
            progress.position = positions[-1]
            progress.target_tokens += sum(batch.target_tokens for batch in chosen)
            progress.new_tokens += sum(batch.tokens for batch in chosen)
            if not again and (self._is_line() or not self.goes_on()):
                return

    def go_back(self) -> None:
        self.close()
        progress, losses, norms = self.kept
        self.progress, self.losses, self.norms = replace(progress), list(losses), list(norms)

    def measure(self) -> Tensor:
        return largest_parameter(self.model)

    def ended(self, losses: list[float], norms: list[float], measured: list[float]) -> None:
        if not self._is_line():
            # The time is up, or somebody interrupts: the rest of the window comes another time.
            return
        self._count_time()
        progress, is_validated = self.progress, self._is_validated()
        entry = LogEntry(
            step=progress.step,
            loss=sum(losses) / len(losses),
            gradient_norm=sum(norms) / len(norms),
            lr=self._rate(),
            epoch=progress.position.epoch,
            target_tokens=progress.target_tokens,
            seconds=progress.seconds,
            tokens_per_second=progress.new_tokens / progress.new_seconds,
            validation_loss=self._validate() if is_validated else None,
        )
        self.processes.first(lambda: append_entry(self.log, entry))
        self.losses, self.norms = [], []
        progress.new_tokens, progress.new_seconds = 0, 0.0
        self.callback.steps_logged(entry)
        self.clock = time.perf_counter()
        if entry.validation_loss is not None:
            self._keep(entry.step, entry.validation_loss)

    def halve_rate(self) -> str:
        # The rate is halved wherever there is a recovery.
        return f"step {self.progress.step} with half the learning rate"

    def recovered(self, done: str) -> None:
        # Whoever is killed now must not begin with the whole rate again.
        self._save()
        self.callback.told(done)

    def when(self, what: str, number: int = 0) -> str:
        last = self.progress.step
        places = {"step": f"in step {last - len(self.losses) + 1 + number}", "parameter": f"by step {last}"}
        return places.get(what, f"after step {last}")

    def close(self) -> None:
        """Load nothing more; the next step begins to load again."""
        if self.batches is not None:
            self.batches.close()
            self.batches = None

    def _rate(self) -> float:
        """Return the learning rate of the last step: the schedule's, and half of it after a recovery."""
        rate = self.task.rate(self.progress.step)
        return rate if self.recovery is None else rate / 2

    def _has_time(self) -> bool:
        """Return whether the time is not up, which the clock of the first process says."""
        return self.deadline == math.inf or bool(self.processes.agree([time.perf_counter() < self.deadline])[0])

    def _is_validated(self) -> bool:
        step, settings = self.progress.step, self.settings
        return step % settings.validate_every == 0 or step == settings.steps

    def _is_line(self) -> bool:
        return self._is_validated() or self.progress.step % self.settings.log_every == 0

    def _validate(self) -> float:
        """Return the mean validation loss of an answer."""
        losses, count = self.task.validation_losses(self.model)
        loss = self.processes.sum_(losses.sum(dtype=torch.float64)).item() / count
        self.loop.guard.check_validation(loss, lambda: self.task.validation_losses(self.model))
        return loss

    def _count_time(self) -> None:
        spent = time.perf_counter() - self.clock
        self.progress.seconds += spent
        self.progress.new_seconds += spent
        self.clock += spent

    def _keep(self, step: int, validation_loss: float) -> None:
        """Keep the weights, and last the state, which says that all of it is there."""
        self.processes.first(lambda: self.task.keep_weights(self.model, step, validation_loss))
        self._save()
        self.processes.first(self.task.prune_weights)

    def _save(self) -> None:
        pending = {"losses": self.losses, "norms": self.norms}
        parts = {"pending": {name: torch.stack(values) for name, values in pending.items() if values}}
        facts = {"progress": {**asdict(self.progress), "guard": self.recovery}, **self.task.facts()}
        write_state(self.state, self.model, self.step.optimizer, facts, parts=parts, processes=self.processes)
        self.saved = self.progress.step
        self.clock = time.perf_counter()

    def _restore(self) -> None:
        parts, facts = read_state(self.state, self.model, ("pending",), self.task.check_facts)
        device = next(self.model.parameters()).device
        try:
            stored = dict(facts["progress"])
            recovery, position = stored.pop("guard", None), Position(**stored["position"])
            progress = StepProgress(**{**stored, "position": position})
            pending = {name: list(values.to(device).unbind()) for name, values in parts["pending"].items()}
            losses, norms = pending.pop("losses", []), pending.pop("norms", [])
            whole = [progress.step, progress.target_tokens, progress.new_tokens, position.epoch, position.batch]
            is_sound = (
                all(type(number) is int and number >= 0 for number in whole)
                and all(type(number) is float for number in (progress.seconds, progress.new_seconds))
                and len(losses) == len(norms)
                and not pending
                and isinstance(recovery, str | None)
            )
        except (KeyError, TypeError, ValueError, RuntimeError, IndexError) as error:
            if is_out_of_memory(error):
                raise
            is_sound = False
        if not is_sound:
            raise InputError(f"checkpoint {self.state} is damaged: it does not say how far the training is")
        self.progress, self.losses, self.norms, self.recovery = progress, losses, norms, recovery
        restore_training(self.state, parts, self.model, self.step.optimizer, processes=self.processes)
