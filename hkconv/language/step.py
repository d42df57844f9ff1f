"""One step of training a translator: the gradient of some batches together, clipped, and an update."""

import math
from collections.abc import Callable
from typing import Any

import geoopt
import torch
from torch import Tensor

from hkconv.engine.distributed import ALONE, Processes
from hkconv.engine.optimizer import RiemannianAdam
from hkconv.language.batches import Batch

# As Vaswani et al. (2017).
BETAS, EPSILON = (0.9, 0.98), 1e-9


class Step:
    """A step, operation by operation.

    Args:
        model: the translator.
        batch_loss: the summed loss of a batch.
        clip: largest norm of the gradient of all parameters, as one vector.
        processes: which take it together, each with its rows of every batch.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        batch_loss: Callable[[Batch], Tensor],
        clip: float,
        processes: Processes = ALONE,
    ):
        self.model, self.batch_loss, self.clip, self.processes = model, batch_loss, clip, processes
        self.optimizer = self._make_optimizer()

    def __call__(self, batches: list[Batch], lr: float) -> tuple[Tensor, Tensor]:
        """Step down the gradient of the loss a target token of all batches together.

        Args:
            batches: on the model's device.
            lr: learning rate.

        Returns:
            That loss before the step and the norm of its gradient before clipping, 0-d tensors that nobody has looked
            at yet.
        """
        tokens = sum(batch.target_tokens for batch in batches)
        self._clear()
        losses = [self._accumulate(batch, tokens) for batch in batches]
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        loss = self.processes.sum_gradients(parameters, torch.stack(losses)).sum()
        return loss, self._update(lr)

    def unrecorded(self, batches: list[Batch], lr: float) -> tuple[Tensor, Tensor]:
        """The same, operation by operation whatever is recorded, so that hooks of the model are called."""
        return self(batches, lr)

    def _make_optimizer(self) -> RiemannianAdam:
        return RiemannianAdam(parameter_groups(self.model), betas=BETAS, eps=EPSILON)

    def _clear(self) -> None:
        self.optimizer.zero_grad()

    def _accumulate(self, batch: Batch, tokens: int | Tensor) -> Tensor:
        loss = self.batch_loss(batch) / tokens
        loss.backward()
        return loss.detach()

    def _update(self, lr: float) -> Tensor:
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["stretch"]
        return self._clip_and_move()

    def _clip_and_move(self) -> Tensor:
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip, foreach=True)
        self.optimizer.step()
        return norm


def parameter_groups(model: torch.nn.Module) -> list[dict[str, Any]]:
    r"""The parameters of a model for :class:`~hkconv.engine.optimizer.RiemannianAdam`, with what multiplies the
    learning rate of each group as ``stretch``.

    Adam moves every coordinate of a vector by about the learning rate, and so the vector by :math:`\sqrt n` of it; a
    point of a manifold moves by the learning rate as a whole. A vocabulary of points would learn that much more slowly
    than one of vectors. Points of :math:`n` dimensions therefore have a stretch of :math:`\sqrt n`.
    """
    groups: dict[float, list[torch.nn.Parameter]] = {}
    for parameter in model.parameters():
        stretch = 1.0
        if isinstance(parameter, geoopt.ManifoldParameter):
            stretch = math.sqrt(parameter.size(-1) - 1)
        groups.setdefault(stretch, []).append(parameter)
    return [{"params": parameters, "stretch": stretch} for stretch, parameters in groups.items()]
