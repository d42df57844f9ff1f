"""Where a loss that is no longer finite came from, so that a run never goes on with NaN in silence."""

from collections.abc import Callable

import torch
from torch import Tensor


def first_non_finite(model: torch.nn.Module, forward: Callable[[], object]) -> str:
    """The first place in a model that holds or makes a NaN or Inf.

    Args:
        model: the network.
        forward: runs the network once more, as it ran when the loss was found not to be finite.

    Returns:
        The place in words: a parameter, a module, or the loss itself.
    """
    for name, tensor in model.named_parameters():
        if not tensor.isfinite().all():
            return f"parameter {name!r}"
    modules: list[str] = []
    handles = [
        module.register_forward_hook(_note_non_finite(name or type(model).__name__, modules))
        for name, module in model.named_modules()
    ]
    try:
        with torch.no_grad():
            forward()
    finally:
        for handle in handles:
            handle.remove()
    return f"the output of module {modules[0]!r}" if modules else "the loss"


def _note_non_finite(name: str, found: list[str]) -> Callable[..., None]:
    def hook(_module: torch.nn.Module, _inputs: object, output: object) -> None:
        if isinstance(output, Tensor) and not output.isfinite().all():
            found.append(name)

    return hook
