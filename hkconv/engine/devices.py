"""The device a user asks for, checked before anything is computed, and its name."""

import platform
from functools import cache
from pathlib import Path

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
    """The device in words, such as ``"cpu (AMD EPYC, AVX512)"`` or ``"cuda:0 (NVIDIA H200)"``."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return f"{device} ({name})"


def cpu_model() -> str:
    """The processor's name, as far as the system tells."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


@cache
def _processor() -> str:
    """Name and vector instructions: another processor takes sums in another order, which rounds otherwise."""
    return f"{cpu_model()}, {torch.backends.cpu.get_cpu_capability()}"
