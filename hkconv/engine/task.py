"""The interface between the loop and what it trains: batches, a loss and a measure."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hkconv.engine.distributed import ALONE, Processes
from hkconv.errors import InputError


@dataclass(frozen=True)
class Score:
    """The metric and the mean loss of one part of the data; of links the average precision ``ap`` too."""

    metric: float
    loss: float
    ap: float | None = None


class Objective(ABC):
    """The loss of batches, of which several ranks may have a part each."""

    processes = ALONE

    @abstractmethod
    def loss(self, model: torch.nn.Module, batch: Any) -> Tensor:
        """Return the loss of a batch, with gradient: its mean, or its sum where :meth:`total_weight` is known."""

    def weight(self, batch: Any) -> Tensor | int:
        """Return of how many answers the mean loss of a batch is the mean; a divisible task has to say it."""
        raise NotImplementedError

    def total_weight(self, batches: Sequence[Any]) -> int | None:
        """Return of how many answers all parts of some batches are, where every rank knows it; else None."""
        return None


class Task(Objective):
    """Data and objective of a training by epochs. Nothing here but ``evaluate`` waits for a GPU.

    ``metric`` names the number to maximise. ``generator`` is what batches are drawn with, if they are drawn.
    ``is_divisible`` says that several processes can have a part of every batch each, ``has_test`` that there is a test
    part to measure.
    """

    metric: str
    generator: torch.Generator | None = None
    is_divisible = False
    has_test = True

    @abstractmethod
    def batches(self) -> Iterable[Any]:
        """Return the training batches of one epoch, one for each step of the optimizer.

        A task that takes everything at once has a single batch, a tuple of tensors of the same shapes in every epoch.
        One that is divisible draws the same batches in every process and gives the part of this one, None where it is
        empty.
        """

    def divide_among(self, processes: Processes) -> None:
        """Have a part of every batch, and of every evaluation, in each of several processes."""
        if processes.count > 1 and not self.is_divisible:
            raise InputError(
                f"{processes.count} processes divide mini-batches, and this task takes everything at once: "
                "train it in one process"
            )
        self.processes = processes

    @abstractmethod
    def measure(self, model: torch.nn.Module, part: str) -> Tensor:
        """Return metric and mean loss of all of ``"train"``, ``"val"`` or ``"test"``, in evaluation mode.

        Returns:
            Two float64 numbers, still on the model's device.
        """

    def evaluate(self, model: torch.nn.Module, part: str) -> Score:
        """Return what :meth:`measure` finds, on the host."""
        return Score(*self.measure(model, part).tolist())
