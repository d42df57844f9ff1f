"""Where a number that is no longer finite came from, so that a run never goes on with NaN in silence."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle


def largest_parameter(model: torch.nn.Module) -> Tensor:
    """The largest absolute value of all parameters, NaN or Inf if one of them is.

    Returns:
        One float64 number on the model's device, which nobody has waited for.
    """
    parameters = [parameter.detach() for parameter in model.parameters() if parameter.numel() > 0]
    return torch.stack(torch._foreach_norm(parameters, math.inf)).max().double().view(1)


def non_finite_parameter(model: torch.nn.Module) -> str | None:
    """The first parameter that holds a NaN or Inf, in words; None if all are finite."""
    for name, tensor in model.named_parameters():
        if not tensor.isfinite().all():
            return f"parameter {name!r}"
    return None


def first_non_finite(model: torch.nn.Module, forward: Callable[[], object]) -> str:
    """The first place in a model that holds or makes a NaN or Inf.

    Args:
        model: the network.
        forward: runs the network once more, as it ran when the loss was found not to be finite.

    Returns:
        The place in words: a parameter, a module, or the loss itself.
    """
    parameter = non_finite_parameter(model)
    if parameter is not None:
        return parameter
    with Watch(model) as watch, torch.no_grad():
        forward()
    return watch.output or "the loss"


class Watch:
    """Notes what is first not finite while a network runs inside its block.

    Each module reads an alias of its inputs. A gradient that arrives there has come through this module, whoever else
    reads the same tensor.

    Args:
        model: the network.
    """

    def __init__(self, model: torch.nn.Module):
        self.model = model
        #: The first module whose output is not finite, in words.
        self.output: str | None = None
        #: The first gradient that is not finite, of a parameter or through a module, in words.
        self.gradient: str | None = None
        self.handles: list[RemovableHandle] = []

    def __enter__(self) -> "Watch":
        for name, module in self.model.named_modules():
            name = name or type(self.model).__name__
            self.handles.append(module.register_forward_pre_hook(self._watch_gradients_through(name)))
            self.handles.append(module.register_forward_hook(self._watch_output_of(name)))
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad:
                self.handles.append(parameter.register_hook(self._look(f"the gradient of parameter {name!r}")))
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self.handles:
            handle.remove()

    def _watch_output_of(self, name: str) -> Callable[..., None]:
        def hook(_module: torch.nn.Module, _inputs: tuple, output: object) -> None:
            parts = output if isinstance(output, (tuple, list)) else (output,)
            if self.output is None and not all(map(_is_finite, parts)):
                self.output = f"the output of module {name!r}"

        return hook

    def _watch_gradients_through(self, name: str) -> Callable[..., tuple]:
        look = self._look(f"the gradient through module {name!r}")

        def alias(value: object) -> object:
            if not isinstance(value, Tensor) or not value.requires_grad:
                return value
            own = value.view_as(value)
            own.register_hook(look)
            return own

        def hook(_module: torch.nn.Module, inputs: tuple) -> tuple:
            return tuple(map(alias, inputs))

        return hook

    def _look(self, place: str) -> Callable[[Tensor], None]:
        def look(gradient: Tensor) -> None:
            if self.gradient is None and not _is_finite(gradient):
                self.gradient = place

        return look


def _is_finite(value: object) -> bool:
    return not isinstance(value, Tensor) or bool(value.isfinite().all())
