"""The tasks that a network can be built for, and what each needs to know."""

from typing import cast

import torch

from hkconv.errors import InputError
from hkconv.models.options import TASKS
from hkconv.nn.common import check_rate


def check_network(
    model: torch.nn.Module, task: str, num_classes: int | None, num_layers: int, hidden_dim: int, dropout: float
) -> None:
    """Raise unless a network of these sizes can be built for the task, and answers it."""
    if task not in TASKS:
        raise InputError(f"task must be one of {', '.join(TASKS)}, got {task!r}")
    if task != "link" and (num_classes is None or num_classes < 2):
        raise InputError(f"num_classes must be at least 2 for the {task} task, got {num_classes}")
    if num_layers < 1:
        raise InputError(f"num_layers must be at least 1, got {num_layers}")
    check_supported(model, task)
    if hidden_dim < 1:
        raise InputError(f"hidden_dim must be at least 1, got {hidden_dim}")
    check_rate(dropout)


def known(num_classes: int | None) -> int:
    """The number of classes of a task that has any, for which :func:`check_network` has seen to it."""
    return cast(int, num_classes)


def check_supported(model: torch.nn.Module, task: str) -> None:
    """Raise unless the task is among the model's ``tasks``; a model without that attribute answers every task."""
    supported = getattr(model, "tasks", TASKS)
    if task not in supported:
        raise InputError(f"task must be {' or '.join(supported)} for {type(model).__name__}, got {task!r}")
