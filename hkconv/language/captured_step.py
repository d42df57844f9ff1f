"""Steps as CUDA graphs, one for each shape of a batch and one for the update.

A hyperbolic transformer is thousands of small operations a step; a GPU waits for each of them to be launched.
"""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from hkconv.engine.distributed import ALONE, Processes
from hkconv.engine.guard import Rewind
from hkconv.engine.optimizer import RiemannianAdam
from hkconv.engine.step import Captured
from hkconv.errors import InputError
from hkconv.language.batches import Batch
from hkconv.language.step import BETAS, EPSILON, Step, parameter_groups


def check_capture(device: torch.device) -> None:
    """Raise unless steps can be captured on a device."""
    if device.type != "cuda":
        raise InputError(f"capture needs a CUDA device, got {device.type}")


class CapturedStep(Step):
    """A step that is recorded the first time each shape is met, and replayed from then on.

    The learning rate, the number of tokens and the batch are read from tensors that stay where they are, and gradients
    are summed in tensors that do. What recording computes is taken back, random numbers too: a run that goes on from
    its state records at other steps than one that was never stopped, and must not differ from it.

    Args:
        model: the translator, on a GPU.
        batch_loss: the summed loss of a batch; it must not wait for the GPU.
        clip, processes: as for :class:`~hkconv.language.step.Step`.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        batch_loss: Callable[[Batch], Tensor],
        clip: float,
        processes: Processes = ALONE,
    ):
        super().__init__(model, batch_loss, clip, processes)
        self.tokens = torch.ones((), device=next(model.parameters()).device)
        for parameter in model.parameters():
            parameter.grad = torch.zeros(parameter.shape, dtype=parameter.dtype, device=parameter.device)
        self.pool = torch.cuda.graph_pool_handle()
        self.batches: dict[torch.Size, Batch] = {}
        self.gradients: dict[torch.Size, Captured] = {}
        self.update: Captured | None = None
        self.replays = True

    def unrecorded(self, batches: list[Batch], lr: float) -> tuple[Tensor, Tensor]:
        self.replays = False
        try:
            return self(batches, lr)
        finally:
            self.replays = True

    def _make_optimizer(self) -> RiemannianAdam:
        groups = parameter_groups(self.model)
        for group in groups:
            group["lr"] = torch.zeros((), device=next(self.model.parameters()).device)
        return RiemannianAdam(groups, betas=BETAS, eps=EPSILON, capturable=True)

    def _clear(self) -> None:
        torch._foreach_zero_(self._gradients())

    def _accumulate(self, batch: Batch, tokens: int | Tensor) -> Tensor:
        if not self.replays:
            return super()._accumulate(batch, tokens)
        shape = batch.source.shape
        if shape not in self.gradients:
            self.batches[shape] = held = batch._replace(source=batch.source.clone(), target=batch.target.clone())
            self.gradients[shape] = self._capture(lambda: super(CapturedStep, self)._accumulate(held, self.tokens))
        held = self.batches[shape]
        held.source.copy_(batch.source)
        held.target.copy_(batch.target)
        self.tokens.fill_(tokens)
        return self.gradients[shape]()

    def _update(self, lr: float) -> Tensor:
        for group in self.optimizer.param_groups:
            group["lr"].fill_(lr * group["stretch"])
        if not self.replays:
            return self._clip_and_move()
        if self.update is None:
            self.update = self._capture(self._clip_and_move)
        return self.update()

    def _capture(self, function: Callable[[], Tensor]) -> Captured:
        rewind, gradients = Rewind(self.model, self.optimizer), [tensor.clone() for tensor in self._gradients()]
        rewind.save()

        def undo() -> None:
            rewind.restore()
            torch._foreach_copy_(self._gradients(), gradients)

        return Captured(function, self.model, undo, self.pool)

    def _gradients(self) -> list[Tensor]:
        # All parameters have had one since the beginning.
        return [cast(Tensor, parameter.grad) for parameter in self.model.parameters()]
