"""``torch.compile`` as an option of training, checked before it is waited for."""

import os
import shutil
from typing import cast

import torch

from hkconv.errors import InputError

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
