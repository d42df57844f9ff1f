"""The steps of training a translator. The host waits for a GPU only where a line is logged."""

import math
import time
from collections.abc import Iterator
from contextlib import closing, nullcontext
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.language import runs
from hkconv.language.batches import Batch, Buckets, Position, prefetch, training_batches
from hkconv.language.captured_step import CapturedStep
from hkconv.language.log import LogEntry, append_entry, forget_after
from hkconv.language.loss import summed_loss
from hkconv.language.recipe import TranslationRecipe
from hkconv.language.schedule import noam
from hkconv.language.state import Progress, restore_state, save_state
from hkconv.language.step import Step
from hkconv.training.distributed import ALONE, Processes
from hkconv.training.finite import first_non_finite
from hkconv.training.interrupts import Interrupt, held_back
from hkconv.training.seeds import seed_everything

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
        self.progress = Progress()
        state = folder / runs.STATE_FILE
        if state.exists():
            digest = train.corpus.info.digest
            self.progress = restore_state(state, self.model, self.step.optimizer, tokenizer, digest, processes)
        processes.first(lambda: forget_after(folder / runs.LOG_FILE, self.progress.step))
        self.clock = time.perf_counter()

    def run(self, deadline: float = math.inf) -> None:
        """Take steps until there are enough or the clock of :func:`time.perf_counter` has passed ``deadline``.

        Ctrl-C waits for the end of a step and for the state to be on the disk.
        """
        recipe, progress = self.recipe, self.progress
        self.watcher.started(progress.step, recipe.steps)
        saved = progress.step
        plan = training_batches(self.train, recipe.seed, progress.position)
        # Several processes stop together: one that finished its step alone would wait for the others forever.
        holding = held_back() if self.processes.count == 1 else nullcontext(Interrupt())
        with holding as interrupt, closing(prefetch(self.train, plan, self.device)) as batches:
            while progress.step < recipe.steps and self._has_time(deadline) and not interrupt.is_waiting:
                self._take_step(batches)
                if progress.step % recipe.validate_every == 0 or progress.step == recipe.steps:
                    self._validate_and_save()
                    saved = progress.step
                elif progress.step % recipe.log_every == 0:
                    self._log()
            if saved != progress.step:
                self._count_time()
                self._save_state()

    def _take_step(self, batches: Iterator[tuple[Position, Batch]]) -> None:
        progress = self.progress
        positions, chosen = zip(*islice(batches, self.recipe.accumulate))
        progress.step += 1
        loss, norm = self.step(list(chosen), self._lr())
        progress.position, self.last_batch = positions[-1], chosen[-1]
        progress.target_tokens += sum(batch.target_tokens for batch in chosen)
        progress.new_tokens += sum(batch.tokens for batch in chosen)
        progress.losses.append(loss)
        progress.norms.append(norm)

    def _has_time(self, deadline: float) -> bool:
        """Whether the time is not up, which the clock of the first process says."""
        return deadline == math.inf or bool(self.processes.agree([time.perf_counter() < deadline])[0])

    def _loss(self, batch: Batch, smoothing: float) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.recipe.bf16):
            logits = self.model(batch.source, batch.target[:, :-1])
        return summed_loss(logits, batch.target[:, 1:], smoothing)

    def _lr(self) -> float:
        return noam(self.progress.step, self.recipe.dim, self.recipe.warmup, self.recipe.lr)

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
        self.clock = time.perf_counter()

    def _log(self, *, validate: bool = False) -> LogEntry:
        """Bring home the losses since the last line, and write a line."""
        progress = self.progress
        # The one place where the host waits for a GPU.
        losses, norms = torch.stack([torch.stack(progress.losses), torch.stack(progress.norms)]).double().tolist()
        self._count_time()
        for name, values in (("training loss", losses), ("gradient's norm", norms)):
            self._check_finite(name, values)
        entry = LogEntry(
            step=progress.step,
            loss=sum(losses) / len(losses),
            gradient_norm=sum(norms) / len(norms),
            lr=self._lr(),
            epoch=progress.position.epoch,
            target_tokens=progress.target_tokens,
            seconds=progress.seconds,
            tokens_per_second=progress.new_tokens / progress.new_seconds,
            validation_loss=self._validate() if validate else None,
        )
        self.processes.first(lambda: append_entry(self.folder / runs.LOG_FILE, entry))
        progress.losses, progress.norms = [], []
        progress.new_tokens, progress.new_seconds = 0, 0.0
        self.watcher.logged(entry)
        self.clock = time.perf_counter()
        return entry

    @torch.no_grad()
    def _validate(self) -> float:
        """Mean negative log likelihood of a token of the validation text."""
        self.model.eval()
        plan = ((Position(), pairs) for pairs in self.valid.in_order())
        losses, tokens = [], 0
        for _, batch in prefetch(self.valid, plan, self.device):
            losses.append(self._loss(batch, smoothing=0.0))
            tokens += batch.target_tokens
        self.model.train()
        loss = self.processes.sum_(torch.stack(losses).sum(dtype=torch.float64)).item() / tokens
        self._check_finite("validation loss", [loss])
        return loss

    def _count_time(self) -> None:
        spent = time.perf_counter() - self.clock
        self.progress.seconds += spent
        self.progress.new_seconds += spent
        self.clock += spent

    def _check_finite(self, name: str, values: list[float]) -> None:
        for value in values:
            if not math.isfinite(value):
                place = first_non_finite(self.model, lambda: self._loss(self.last_batch, smoothing=0.0))
                raise InputError(
                    f"the {name} became {value} by step {self.progress.step}; first not finite: {place}; "
                    "a smaller lr or a longer warmup may help"
                )
