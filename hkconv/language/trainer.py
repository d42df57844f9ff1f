"""The steps of training a translator. The host waits for a GPU only where a line is logged."""

import math
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from hkconv.engine.distributed import ALONE, Processes
from hkconv.engine.guard import largest_parameter
from hkconv.engine.interrupts import Interrupt, held_back
from hkconv.engine.reproducibility import seed_everything
from hkconv.language import runs
from hkconv.language.batches import Batch, Buckets, Position, prefetch
from hkconv.language.captured_step import CapturedStep
from hkconv.language.guard import FaultError, Guard
from hkconv.language.log import LogEntry, append_entry, forget_after
from hkconv.language.loss import summed_loss
from hkconv.language.recipe import TranslationRecipe
from hkconv.language.state import Progress, restore_state, save_state
from hkconv.language.step import Step
from hkconv.language.walk import Walk

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Watcher:
    """Hears of every stage of a training and does nothing; subclasses show what they like."""

    def told(self, text: str) -> None:
        """Something a user should know."""

    def started(self, step: int, steps: int) -> None:
        """Steps begin after ``step`` and go to ``steps``."""

    def logged(self, entry: LogEntry) -> None:
        """A line was added to the log."""


class Trainer:
    """A training, from its state on disk or from its beginning.

    Args:
        recipe: what to train.
        folder: of the run.
        tokenizer: the run's.
        train: training data.
        valid: validation data.
        device: where to train.
        watcher: told of every line of the log.
        processes: which train it together; the first of them writes.
    """

    def __init__(
        self,
        recipe: TranslationRecipe,
        folder: Path,
        tokenizer: "Tokenizer",
        train: Buckets,
        valid: Buckets,
        device: torch.device,
        watcher: Watcher,
        processes: Processes = ALONE,
    ):
        self.recipe, self.folder, self.tokenizer, self.processes = recipe, folder, tokenizer, processes
        self.train, self.valid, self.device, self.watcher = train, valid, device, watcher
        seed_everything(recipe.seed)
        self.model = runs.build_model(recipe, tokenizer).to(device).train()
        processes.copy_model(self.model)
        processes.seed_dropout(recipe.seed)
        make_step = CapturedStep if recipe.capture else Step
        batch_loss = partial(self._loss, smoothing=recipe.label_smoothing)
        self.step = make_step(self.model, batch_loss, recipe.clip, processes)
        progress = Progress()
        state = folder / runs.STATE_FILE
        if state.exists():
            digest = train.corpus.info.digest
            progress = restore_state(state, self.model, self.step.optimizer, tokenizer, digest, processes)
        processes.first(lambda: forget_after(folder / runs.LOG_FILE, progress.step))
        self.walk = Walk(recipe, self.step, train, device, progress)
        self.guard = Guard(self.walk, self._validation_losses, processes)
        self.saved = progress.step
        self.clock = time.perf_counter()

    @property
    def progress(self) -> Progress:
        """How far the training is."""
        return self.walk.progress

    def run(self, deadline: float = math.inf) -> None:
        """Take steps until there are enough or the clock of :func:`time.perf_counter` has passed ``deadline``.

        Ctrl-C waits for the end of a step and for the state to be on the disk. If a number that is looked at is not
        finite, the steps since the last line of the log are taken again with half the learning rate, once; the second
        time a :class:`~hkconv.engine.guard.DivergenceError` ends the training.
        """
        recipe = self.recipe
        self.watcher.started(self.progress.step, recipe.steps)
        # Several processes stop together: one that finished its step alone would wait for the others forever.
        holding = held_back() if self.processes.count == 1 else nullcontext(Interrupt())
        with holding as interrupt, closing(self.walk):
            while self.progress.step < recipe.steps and self._has_time(deadline) and not interrupt.is_waiting:
                self.walk.take()
                step = self.progress.step
                if step % recipe.validate_every == 0 or step == recipe.steps:
                    self._guarded(self._validate_and_save)
                elif step % recipe.log_every == 0:
                    self._guarded(self._log)
            if self.saved != self.progress.step:
                self._guarded(self._stop)

    def _guarded(self, look: Callable[[], object]) -> None:
        """Look at the last steps, and go back if something was wrong with them."""
        try:
            look()
        except FaultError as fault:
            done = self.guard.recover(fault)
            # Whoever is killed now must not begin with the whole rate again.
            self._save_state()
            self.watcher.told(done)

    def _has_time(self, deadline: float) -> bool:
        """Whether the time is not up, which the clock of the first process says."""
        return deadline == math.inf or bool(self.processes.agree([time.perf_counter() < deadline])[0])

    def _loss(self, batch: Batch, smoothing: float) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.recipe.bf16):
            logits = self.model(batch.source, batch.target[:, :-1])
        return summed_loss(logits, batch.target[:, 1:], smoothing)

    def _stop(self) -> None:
        """The state between two lines of the log, if it is one to go on from."""
        if self.progress.losses:
            self._bring_home()
        self._count_time()
        self._save_state()

    def _validate_and_save(self) -> None:
        """A line with the validation loss, the weights, and last the state, which says that all of it is there."""
        entry = self._log(validate=True)
        weights = (self.folder, self.model, self.tokenizer, entry.step, cast(float, entry.validation_loss))
        self.processes.first(lambda: runs.write_weights(*weights))
        self._save_state()
        self.processes.first(lambda: runs.prune_weights(self.folder, self.recipe.keep))

    def _save_state(self) -> None:
        path, digest = self.folder / runs.STATE_FILE, self.train.corpus.info.digest
        save_state(path, self.model, self.step.optimizer, self.tokenizer, self.progress, digest, self.processes)
        self.saved = self.progress.step
        self.clock = time.perf_counter()

    def _log(self, *, validate: bool = False) -> LogEntry:
        """Write a line of the steps since the last one."""
        progress = self.progress
        losses, norms = self._bring_home()
        self._count_time()
        entry = LogEntry(
            step=progress.step,
            loss=sum(losses) / len(losses),
            gradient_norm=sum(norms) / len(norms),
            lr=self.walk.lr(),
            epoch=progress.position.epoch,
            target_tokens=progress.target_tokens,
            seconds=progress.seconds,
            tokens_per_second=progress.new_tokens / progress.new_seconds,
            validation_loss=self._validate() if validate else None,
        )
        self.processes.first(lambda: append_entry(self.folder / runs.LOG_FILE, entry))
        progress.losses, progress.norms = [], []
        progress.new_tokens, progress.new_seconds = 0, 0.0
        self.walk.keep()
        self.watcher.logged(entry)
        self.clock = time.perf_counter()
        return entry

    def _bring_home(self) -> tuple[list[float], list[float]]:
        """The losses since the last line and the norms of the gradients, all of them finite."""
        on_device = torch.stack(self.progress.losses + self.progress.norms).double()
        # The one place where the host waits for a GPU.
        found = torch.cat([on_device, largest_parameter(self.model)]).tolist()
        *numbers, largest = self.processes.agree(found)
        losses, norms = numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]
        self.guard.check_steps(losses, norms, largest)
        return losses, norms

    def _validate(self) -> float:
        """Mean negative log likelihood of a token of the validation text."""
        losses, tokens = self._validation_losses()
        loss = self.processes.sum_(losses.sum(dtype=torch.float64)).item() / tokens
        self.guard.check_validation(loss)
        return loss

    @torch.no_grad()
    def _validation_losses(self) -> tuple[Tensor, int]:
        """The summed losses of this process's part of every batch of the validation text, and its tokens."""
        self.model.eval()
        plan = ((Position(), pairs) for pairs in self.valid.in_order())
        losses, tokens = [], 0
        for _, batch in prefetch(self.valid, plan, self.device):
            losses.append(self._loss(batch, smoothing=0.0))
            tokens += batch.target_tokens
        self.model.train()
        return torch.stack(losses), tokens

    def _count_time(self) -> None:
        spent = time.perf_counter() - self.clock
        self.progress.seconds += spent
        self.progress.new_seconds += spent
        self.clock += spent
