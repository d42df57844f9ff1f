"""One step of training: forward, loss, backward, update. The same code runs by itself and in a CUDA graph."""

from typing import Any

import torch
from torch import Tensor

from hkconv.engine.precision import FULL, Precision
from hkconv.engine.task import Task


def train_step(
    model: torch.nn.Module, task: Task, optimizer: torch.optim.Optimizer, batch: Any, precision: Precision = FULL
) -> Tensor:
    """Take one step.

    Args:
        model: the network.
        task: what its loss is.
        optimizer: of the network's parameters.
        batch: one of the task's.
        precision: in which the step computes.

    Returns:
        The loss before the step, a 0-d tensor on the model's device that nobody has looked at yet.
    """
    loss = precision.loss(model, task, batch)
    precision.update(optimizer, loss)
    return loss.detach()
