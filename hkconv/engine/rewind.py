"""A way back to the start of an epoch.

The loop looks at the losses of an epoch when it is over. By then a loss that is not finite has spoilt every
parameter; from its start the epoch can be walked through once more, to the place where it went wrong.
"""

from collections import defaultdict
from itertools import chain

import torch
from torch import Tensor


class Rewind:
    """Copies of all that an epoch changes, on the device where it is: saving them waits for nothing.

    Args:
        model: its parameters and buffers.
        optimizer: its state.
        generator: what batches are drawn with. The default generators of the CPU and of the model's GPU are kept
            too.
        scaler: of the loss, if there is one. Its state is on the host, which waits for it in every step anyway.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator | None = None,
        scaler: torch.amp.GradScaler | None = None,
    ):
        self.model, self.optimizer, self.scaler = model, optimizer, scaler
        self.generators = [torch.default_generator] if generator is None else [torch.default_generator, generator]
        device = next(model.parameters()).device
        if device.type == "cuda":
            self.generators.append(torch.cuda.default_generators[device.index])
        self.copies: list[Tensor] = []
        self.draws: list[Tensor] = []

    @torch.no_grad()
    def save(self) -> None:
        """Remember the present."""
        self.draws = [generator.get_state() for generator in self.generators]
        if self.scaler is not None:
            self.scaling = self.scaler.state_dict()
        tensors = self._tensors()
        if len(tensors) == len(self.copies):
            _copy(tensors, self.copies)
        else:
            self.copies = [tensor.clone() for tensor in tensors]

    @torch.no_grad()
    def restore(self) -> None:
        """Go back, in place: what points at the parameters still does."""
        for generator, state in zip(self.generators, self.draws):
            generator.set_state(state)
        if self.scaler is not None:
            self.scaler.load_state_dict(self.scaling)
        tensors = self._tensors()
        known = len(self.copies)
        _copy(self.copies, tensors[:known])
        # What the optimizer has begun to count since then began at zero.
        for tensor in tensors[known:]:
            tensor.zero_()

    def _tensors(self) -> list[Tensor]:
        """Everything that is kept. The optimizer's state comes last, for it grows with the first gradients."""
        states = (tensor for state in self.optimizer.state.values() for tensor in state.values())
        return list(chain(self.model.parameters(), self.model.buffers(), states))


def _copy(sources: list[Tensor], targets: list[Tensor]) -> None:
    """Copy all at once, device by device: one launch copies many tensors if they share one."""
    groups: dict[tuple, tuple[list[Tensor], list[Tensor]]] = defaultdict(lambda: ([], []))
    for source, target in zip(sources, targets):
        kin_sources, kin_targets = groups[source.device, source.dtype]
        kin_sources.append(source)
        kin_targets.append(target)
    for kin_sources, kin_targets in groups.values():
        torch._foreach_copy_(kin_targets, kin_sources)
