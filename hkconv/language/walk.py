"""The steps of a translator's training, one after the other, and the way back to those that were good."""

from collections.abc import Generator
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from hkconv.engine.guard import Rewind
from hkconv.language.batches import Batch, Buckets, Position, prefetch, training_batches
from hkconv.language.recipe import TranslationRecipe
from hkconv.language.schedule import noam
from hkconv.language.state import Progress
from hkconv.language.step import Step


class Walk:
    """Takes steps through the training data, from where a training is.

    Close it when no more are taken: it loads batches ahead.

    Args:
        recipe: how far a step goes, and over how many batches.
        step: takes one.
        train: training data.
        device: where the model is.
        progress: how far the training is; counted on here.
    """

    def __init__(self, recipe: TranslationRecipe, step: Step, train: Buckets, device: torch.device, progress: Progress):
        self.recipe, self.step, self.train, self.device = recipe, step, train, device
        self.progress = progress
        self.rewind = Rewind(step.model, step.optimizer)
        self.batches: Generator[tuple[Position, Batch], None, None] | None = None
        self.keep()

    def lr(self) -> float:
        """The learning rate of the last step: Noam's, and half of it once the guard had something to do."""
        rate = noam(self.progress.step, self.recipe.dim, self.recipe.warmup, self.recipe.lr)
        return rate if self.progress.guard is None else rate / 2

    def take(self, *, unrecorded: bool = False) -> tuple[Tensor, Tensor]:
        """Take the next step.

        Args:
            unrecorded: operation by operation, so that hooks of the model are called.

        Returns:
            Its loss and the norm of its gradient, 0-d tensors that nobody has looked at yet.
        """
        progress = self.progress
        if self.batches is None:
            plan = training_batches(self.train, self.recipe.seed, progress.position)
            self.batches = prefetch(self.train, plan, self.device)
        positions, chosen = zip(*islice(self.batches, self.recipe.accumulate))
        progress.step += 1
        loss, norm = (self.step.unrecorded if unrecorded else self.step)(list(chosen), self.lr())
        progress.position = positions[-1]
        progress.target_tokens += sum(batch.target_tokens for batch in chosen)
        progress.new_tokens += sum(batch.tokens for batch in chosen)
        progress.losses.append(loss)
        progress.norms.append(norm)
        return loss, norm

    def keep(self) -> None:
        """Remember the present, on the device: this waits for nothing."""
        self.kept = _copy(self.progress)
        self.rewind.save()

    def go_back(self) -> None:
        """Be where :meth:`keep` was last called: weights, optimizer, random numbers, and the place in the data."""
        self.close()
        self.progress = _copy(self.kept)
        self.rewind.restore()

    def close(self) -> None:
        """Load nothing more; the next step begins to load again."""
        if self.batches is not None:
            self.batches.close()
            self.batches = None


def _copy(progress: Progress) -> Progress:
    return replace(progress, losses=list(progress.losses), norms=list(progress.norms))
