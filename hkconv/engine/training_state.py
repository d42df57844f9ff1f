"""What the next step of a training depends on beside the weights: the optimizer's memory, the generators, a factor."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hkconv.engine.manifold_step import moving_part
from hkconv.errors import InputError

# The factor of a loss is in float32.
_LARGEST = torch.finfo(torch.float32).max


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What an optimizer of Adam's kind remembers, as ``PARAMETER/NAME``."""
    states = optimizer.state_dict()["state"].items()
    return {f"{index}/{name}": tensor for index, entries in states for name, tensor in entries.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Bring an optimizer to where :func:`optimizer_tensors` found it.

    Args:
        optimizer: of the same parameters.
        tensors: from a file, unchecked.
        path: how an error calls the file.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for place, tensor in tensors.items():
        index, _, name = place.partition("/")
        if not index.isascii() or not index.isdecimal() or int(index) >= len(parameters):
            raise InputError(f"checkpoint {path} is damaged: the optimizer has no parameter {index!r}")
        state.setdefault(int(index), {})[name] = tensor
    for number, entries in state.items():
        if not _fits(entries, parameters[number]):
            raise InputError(f"checkpoint {path} does not fit the run: the optimizer's memory of parameter {number}")
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def generator_tensors(device: torch.device, own: torch.Generator | None = None) -> dict[str, Tensor]:
    """The states of the CPU's default generator, of a GPU's and of one of the training's own."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    if own is not None:
        states["own"] = own.get_state()
    return states


def restore_generators(
    states: Mapping[str, Tensor], device: torch.device, path: Path, own: torch.Generator | None = None
) -> None:
    """Bring the generators to where :func:`generator_tensors` found them.

    Args:
        states: from a file, unchecked. One from a machine without a GPU has no state of a GPU; the training then goes
            on with the seed's.
        device: where the training is.
        path: how an error calls the file.
        own: the training's.
    """
    try:
        torch.set_rng_state(states["cpu"])
        if own is not None:
            own.set_state(states["own"])
        if device.type == "cuda" and "cuda" in states:
            torch.cuda.set_rng_state(states["cuda"], device)
    except (KeyError, TypeError, RuntimeError):
        raise InputError(f"checkpoint {path} is damaged: it does not hold the states of the generators") from None


def scaler_facts(scaler: torch.amp.GradScaler) -> dict[str, float]:
    """What changes in the scaler of a loss: its factor, and for how many steps no gradient has overflowed."""
    state = scaler.state_dict()
    return {"scale": state["scale"], "growth_tracker": state["_growth_tracker"]}


def restore_scaler(scaler: torch.amp.GradScaler, facts: Any, path: Path) -> None:
    """Bring the scaler of a loss to where :func:`scaler_facts` found it.

    Args:
        scaler: made as it was.
        facts: from a file, unchecked.
        path: how an error calls the file.
    """
    try:
        scale, tracker = facts["scale"], facts["growth_tracker"]
        is_sound = type(scale) is float and 0 < scale <= _LARGEST and type(tracker) is int and 0 <= tracker < 2**31
    except (KeyError, TypeError):
        is_sound = False
    if not is_sound:
        raise InputError(f"checkpoint {path} is damaged: it does not hold the factor of the loss")
    scaler.load_state_dict({**scaler.state_dict(), "scale": scale, "_growth_tracker": tracker})


def _fits(entries: Mapping[str, Tensor], parameter: Tensor) -> bool:
    """A mean of gradients for each number that moves, and a mean of squares for each or, on a manifold, one a point."""
    if entries.keys() != {"step", "exp_avg", "exp_avg_sq"}:
        return False
    first, second = entries["exp_avg"].shape, entries["exp_avg_sq"].shape
    squares = (parameter.shape, (*parameter.shape[:-1], 1))
    return entries["step"].numel() == 1 and first == moving_part(parameter).shape and second in squares
