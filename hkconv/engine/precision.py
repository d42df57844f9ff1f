"""In which precision a training step computes.

Only matrix products of Euclidean layers and the like become cheaper: the geometry of hyperbolic layers leaves autocast
by itself and stays in float32 (:func:`hkconv.nn.common.full_precision`), and so do losses and parameters.
"""

from typing import Any

import torch
from torch import Tensor

from hkconv.engine.task import Task

HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """The forward and backward pass of a step, and its update.

    Float16 has five bits of exponent: gradients below 6e-8 vanish in it. Therefore the loss is multiplied by a factor
    as large as it can be, and gradients are divided by it in float32. A step whose gradients overflow is left out and
    the factor lowered, for which the host must wait in every step. Bfloat16 has the range of float32 and needs none of
    this.

    Args:
        name: ``"bf16"`` or ``"fp16"`` for autocast to that type; ``"float32"`` leaves everything as the model is.
        device: where the model is.
    """

    def __init__(self, name: str, device: torch.device):
        self.device, self.half = device, HALVES.get(name)
        self.scaler = torch.amp.GradScaler(device.type) if name == "fp16" else None

    def loss(self, model: torch.nn.Module, task: Task, batch: Any) -> Tensor:
        """The mean loss of a batch, with gradient."""
        if self.half is None:
            return task.loss(model, batch)
        # A step uses each weight once, and a CUDA graph must not hold a copy from outside of it: no cache.
        with torch.autocast(self.device.type, self.half, cache_enabled=False):
            return task.loss(model, batch)

    def update(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
        """Step down the gradient of a loss."""
        optimizer.zero_grad()
        if self.scaler is None:
            loss.backward()
            optimizer.step()
            return
        self.scaler.scale(loss).backward()
        self.scaler.step(optimizer)
        self.scaler.update()


FULL = Precision("float32", torch.device("cpu"))
"""Everything as the model is, on any device."""
