"""A training that is not finished, as one file, so that after a kill it goes on as if nothing had happened.

The file holds all that the next epoch depends on: weights, the optimizer's memory, the generators, the factor of the
loss in float16, the epochs so far and the weights of the best of them. It is written every so often and when a training
is interrupted, and it is gone when the training has ended.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from hkconv.engine.files import make_folder
from hkconv.engine.loop import Best, Epoch, Progress
from hkconv.engine.task import Score
from hkconv.engine.tensor_files import by_part, check_shapes, read_tensors, write_tensors
from hkconv.engine.training_state import (
    generator_tensors,
    optimizer_tensors,
    restore_generators,
    restore_optimizer,
    restore_scaler,
    scaler_facts,
)
from hkconv.errors import InputError

FILE = "unfinished.safetensors"
PARTS = ("model", "best", "optimizer", "generator")


class Unfinished:
    """Keeps a training in a file, and brings it back.

    Args:
        folder: of the training; made when first written to.
        every: seconds from one time to the next.
        about: plain data that must be the same for the training to go on, such as what is known of its dataset.
    """

    def __init__(self, folder: Path, every: float = 60.0, about: Mapping[str, Any] | None = None):
        self.path, self.every, self.about = folder / FILE, every, dict(about or {})
        self.saved_at = time.perf_counter()

    def restore(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator | None,
        scaler: torch.amp.GradScaler | None,
    ) -> Progress:
        """Bring a new training to where the file left it.

        Args:
            model: built as it was.
            optimizer: of its parameters.
            generator: what batches are drawn with, if they are drawn.
            scaler: of the loss, if there is one.

        Returns:
            How far it is; nowhere if there is no file.
        """
        if not self.path.exists():
            return Progress()
        tensors, facts = read_tensors(self.path)
        parts, device = by_part(tensors, PARTS, self.path), next(model.parameters()).device
        for part in ("model", "best"):
            check_shapes(model.state_dict(), parts[part], self.path)
        progress = self._progress(facts, {name: tensor.to(device) for name, tensor in parts["best"].items()})
        self._check_same(facts["about"])
        restore_optimizer(optimizer, parts["optimizer"], self.path)
        for group, lr in zip(optimizer.param_groups, facts["lr"]):
            group["lr"] = lr
        model.load_state_dict(parts["model"])
        restore_generators(parts["generator"], device, self.path, generator)
        # A file that was written before factors were kept has none; the training then finds it again.
        if scaler is not None and facts.get("scaler") is not None:
            restore_scaler(scaler, facts["scaler"], self.path)
        return progress

    def save_if_due(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator | None,
        scaler: torch.amp.GradScaler | None,
        progress: Progress,
    ) -> None:
        """Write the file if the last time is long ago; the arguments are those of :meth:`save`."""
        if time.perf_counter() - self.saved_at >= self.every:
            self.save(model, optimizer, generator, scaler, progress)

    def save(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator | None,
        scaler: torch.amp.GradScaler | None,
        progress: Progress,
    ) -> None:
        """Write the file.

        Args:
            model, optimizer, generator, scaler: as :meth:`restore` takes them, between two epochs.
            progress: at least one epoch.
        """
        device, best = next(model.parameters()).device, cast(Best, progress.best)
        contents = {
            "model": model.state_dict(),
            "best": best.weights,
            "optimizer": optimizer_tensors(optimizer),
            "generator": generator_tensors(device, generator),
        }
        facts = {
            "about": self.about,
            "history": [asdict(epoch) for epoch in progress.history],
            "best": {"epoch": best.epoch, **asdict(best.score)},
            "seconds": progress.seconds,
            "guard": progress.guard,
            # The guard may have lowered it.
            "lr": [group["lr"] for group in optimizer.param_groups],
            "scaler": None if scaler is None else scaler_facts(scaler),
        }
        tensors = {f"{part}/{name}": tensor for part, content in contents.items() for name, tensor in content.items()}
        make_folder(self.path.parent, "out")
        write_tensors(self.path, tensors, facts)
        self.saved_at = time.perf_counter()

    def remove(self) -> None:
        """The training has ended."""
        self.path.unlink(missing_ok=True)

    def _progress(self, facts: dict[str, Any], weights: dict[str, Tensor]) -> Progress:
        try:
            history = [Epoch(**epoch) for epoch in facts["history"]]
            score = Score(facts["best"]["metric"], facts["best"]["loss"])
            best, numbers = facts["best"]["epoch"], [score.metric, score.loss, facts["seconds"], *facts["lr"]]
            numbers += [value for epoch in history for value in (epoch.loss, epoch.val_loss, epoch.val_metric)]
            is_sound = (
                all(type(number) in (int, float) for number in numbers)
                and [epoch.number for epoch in history] == list(range(1, len(history) + 1))
                and type(best) is int
                and 1 <= best <= len(history)
                and isinstance(facts["about"], dict)
                and isinstance(facts["guard"], str | None)
            )
        except (KeyError, TypeError):
            is_sound = False
        if not is_sound:
            raise InputError(f"{self.path} is damaged: remove it to begin the training anew")
        return Progress(history, Best(best, score, weights), facts["seconds"], facts["guard"])

    def _check_same(self, about: dict[str, Any]) -> None:
        for key, now in self.about.items():
            if about.get(key) != now:
                raise InputError(
                    f"{self.path} was begun with {key} {about.get(key)!r}, but here it is {now!r}: "
                    "remove it to begin the training anew"
                )
