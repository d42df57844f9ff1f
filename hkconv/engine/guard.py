"""What happens when a number of a training is no longer finite: one step back, a smaller step, and then the end.

The guard looks at what the host has anyway once an epoch: the losses, the validation loss and the largest parameter. A
gradient that is not finite has made a parameter so by then.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hkconv.engine.finite import Watch, first_non_finite, non_finite_parameter
from hkconv.engine.rewind import Rewind
from hkconv.engine.task import Task
from hkconv.errors import InputError

ADVICE = "a smaller lr may help, or for hkn a reach of 5 or norm layer"


class DivergenceError(InputError):
    """A training that is no longer finite, after it was put right once.

    ``best`` is what it had reached before, None if it had not finished an epoch: from
    :func:`~hkconv.engine.loop.fit` a result, from :func:`~hkconv.tasks.run.train_cell` a training. The model then
    has the weights of its best epoch. That of a translation has no ``best``: its weights are in the run's folder.
    """

    best: Any = None


class Guard:
    """Finds where an epoch went wrong, and takes it back with half the learning rate, once.

    Args:
        model: the network.
        task: what it is trained for.
        optimizer: of its parameters.
        step: takes a plain step on a batch, with the network as it is, and returns the loss before it.
        rewind: goes back to the start of the epoch, which was finite.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        task: Task,
        optimizer: torch.optim.Optimizer,
        step: Callable[[Any], Tensor],
        rewind: Rewind,
    ):
        self.model, self.task, self.optimizer = model, task, optimizer
        self.step, self.rewind = step, rewind
        #: What it has done, in words.
        self.recovery: str | None = None

    def find_fault(self, epoch: int, losses: list[float], val_loss: float, largest_parameter: float) -> str | None:
        """What became of an epoch and where that began.

        Args:
            epoch: its number.
            losses: of its steps.
            val_loss: after it.
            largest_parameter: after it, in absolute value.

        Returns:
            The fault in words; None if all of these are finite.
        """
        bad_losses = [loss for loss in losses if not math.isfinite(loss)]
        if bad_losses:
            what, value, find = "the training loss", bad_losses[0], self._retrace
        elif not math.isfinite(largest_parameter):
            what, value, find = "a parameter", largest_parameter, self._retrace
        elif not math.isfinite(val_loss):
            what, value, find = "the validation loss", val_loss, self._find_in_validation
        else:
            return None
        return f"{what} became {value} in epoch {epoch}; first not finite: {find()}"

    def recover(self, fault: str) -> None:
        """Go back to the start of the epoch and halve the learning rate; the second time raise."""
        self.rewind.restore()
        if self.recovery is not None:
            raise DivergenceError(f"{fault}; before that, {self.recovery}; {ADVICE}")
        if non_finite_parameter(self.model) is not None:
            raise DivergenceError(f"{fault}; there is no finite state to go back to; {ADVICE}")
        for group in self.optimizer.param_groups:
            group["lr"] /= 2
        self.recovery = f"{fault}; went back to the start of the epoch with lr {self.optimizer.param_groups[0]['lr']:g}"

    def _find_in_validation(self) -> str:
        return first_non_finite(self.model, lambda: self.task.measure(self.model, "val"))

    def _retrace(self) -> str:
        """Walk through the epoch again, up to the first batch with something that is not finite, and say what it is.

        The steps are taken one by one and watched closely, whatever replayed or compiled them before.
        """
        self.rewind.restore()
        self.model.train()
        parameter = non_finite_parameter(self.model)
        if parameter is not None:
            return f"{parameter} before the first batch"
        for number, batch in enumerate(self.task.batches(), start=1):
            place = self._watched_step(batch)
            if place is not None:
                return f"{place} in batch {number}"
        return "nothing, when the epoch was trained once more"

    def _watched_step(self, batch: Any) -> str | None:
        """What is not finite after one more step, None if all is.

        A gradient counts if it reached a parameter: that of a scaled loss may be infinite, and its step is left out.
        """
        with Watch(self.model) as watch:
            loss = self.step(batch)
        if watch.output is not None or not loss.isfinite():
            return watch.output or "the loss"
        parameter = non_finite_parameter(self.model)
        return None if parameter is None else watch.gradient or parameter
