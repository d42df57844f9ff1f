"""The device a user asks for, checked before anything is computed."""

import torch

from hkconv.errors import InputError


def find_device(name: str) -> torch.device:
    """The device of that name.

    Args:
        name: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` and so on, or ``"auto"`` for a GPU if there is one.

    Returns:
        The device, which exists.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    # PyTorch raises AssertionError for a build without CUDA, RuntimeError for the rest.
    except (RuntimeError, AssertionError):
        found = torch.cuda.device_count()
        gpus = f"cuda:0 to cuda:{found - 1}" if found > 1 else "cuda" if found else "no GPU is available"
        raise InputError(f"device {name!r} cannot be used; accepted: auto, cpu ({gpus})") from None
    return device


def describe_device(device: torch.device) -> str:
    """The device in words, such as ``"cpu"`` or ``"cuda:0 (NVIDIA H200)"``."""
    if device.type != "cuda":
        return str(device)
    return f"{device} ({torch.cuda.get_device_name(device)})"
