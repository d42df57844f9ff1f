"""The device a user asks for, checked before anything is computed, its name, its memory and its compiler."""

import math
import os
import platform
import shutil
from functools import cache
from pathlib import Path
from typing import cast

import torch

from hkconv.engine.measuring import available_bytes
from hkconv.errors import InputError, is_out_of_memory
from hkconv.models.allocations import BoundedAllocations


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
    except (RuntimeError, AssertionError) as error:
        if is_out_of_memory(error):
            raise
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


COMPILERS = ("c++", "g++", "clang++")


def check_compiler() -> None:
    """Raise unless there is a C++ compiler, which torch needs for code on a CPU and for launches on a GPU."""
    if not any(map(shutil.which, (os.environ.get("CXX", ""), *COMPILERS))):
        raise InputError(f"compile needs a C++ compiler: none of {', '.join(COMPILERS)} was found")


def compiled(model: torch.nn.Module) -> torch.nn.Module:
    """The same network as a compiled one that shares its weights; the given one stays as it is.

    Args:
        model: the network.

    Returns:
        The network to call. It is compiled when it is first called, in training and again in evaluation mode, and once
        more for sizes that change.
    """
    check_compiler()
    # torch promises a function; of a module it makes a module.
    return cast(torch.nn.Module, torch.compile(model))


def room_for_weights(trained_on: torch.device) -> BoundedAllocations:
    """Block in which a network can be built that this machine has the memory to train."""
    room = available_bytes()
    # On the CPU there are also a gradient and two moments for each weight.
    most = math.inf if room is None else room / (4 if trained_on.type == "cpu" else 1)
    free = "" if room is None else f" ({room / 1e9:.1f} GB are free)"
    return BoundedAllocations(most, f"the model needs more memory than there is{free}: make it narrower or shallower")
