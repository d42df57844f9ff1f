"""The compiled kernels of the CPU, C++ behind a plain C interface.

A wheel, and an installation from source where there is a C++ compiler, has a library for each set of vector
instructions; the best that the processor has is loaded. Where there is none of the sources at hand, as in a checkout
that has changed, it is compiled into the user's cache folder. Where that is not possible either, layers take the
reference, and a warning says why.
"""

import ctypes
import os
import stat
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.ops.native.build import HERE, compile_libraries, instruction_sets, library_name
from hkconv.points.cache import cache_folder

Address = ctypes.c_void_p
# A fork of this process has none of the threads that PyTorch may have begun here.
_HOME = os.getpid()
_Function = ctypes.CFUNCTYPE(ctypes.c_int64)
# What a C function takes for an argument: integers of Python would be cut to 32 bits.
_C_TYPES = {int: ctypes.c_int64, bool: ctypes.c_int64, float: ctypes.c_double, type(None): Address}


class Library:
    """Functions of a shared library by name.

    Args:
        path: the library.
    """

    def __init__(self, path: Path):
        self._library = ctypes.CDLL(str(path))
        self._functions: dict[str, Any] = {}
        # Two teams of threads would wait for each other's processors, so PyTorch's own works here too.
        torch_itself = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
        with suppress(OSError, AttributeError):
            team = ctypes.CDLL(str(torch_itself)).GOMP_parallel
            self.call("use_team", _HOME, ctypes.cast(team, Address).value or 0)

    def call(self, name: str, *arguments: "Argument") -> int:
        """Call a function with the addresses of tensors, which must be contiguous, and numbers."""
        if name not in self._functions:
            self._functions[name] = _Function(Address.in_dll(self._library, name).value or 0)
        return self._functions[name](*map(_c_value, arguments))


class Strided(NamedTuple):
    """A tensor that need not be contiguous, for a function that is told how it lies."""

    tensor: Tensor


Argument = Tensor | Strided | float | None


def _c_value(value: Argument) -> Any:
    if isinstance(value, Strided):
        return Address(value.tensor.data_ptr())
    if isinstance(value, Tensor):
        if not value.is_contiguous() or value.device.type != "cpu":
            raise ValueError("a kernel of the CPU takes contiguous tensors of the CPU")
        return Address(value.data_ptr())
    return _C_TYPES[type(value)](value)  # type: ignore[arg-type]  # each of these takes its own type


def call(name: str, *arguments: Argument) -> int:
    """Call a function of the best library, as :meth:`Library.call`."""
    return _loaded().call(name, *arguments)


def call_typed(name: str, dtype: torch.dtype, *arguments: Argument) -> int:
    """Call the form of a function for float32 or float64."""
    return _loaded().call(f"{name}_{str(dtype).removeprefix('torch.')}", *arguments)


def why_not() -> str | None:
    """The reason why there are no compiled kernels, or None; the first one who asks is warned of it."""
    return _find()[1]


def _loaded() -> Library:
    library, reason = _find()
    if library is None:
        raise InputError(f"the kernels of the CPU are not there: {reason}; backend='reference' does without")
    return library


@cache
def _find() -> tuple[Library | None, str | None]:
    try:
        return load(best_instructions()), None
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
    warnings.warn(
        f"layers take the slower reference on the CPU, whose compiled kernels are not there: {reason}; "
        "install a C++ compiler, or a wheel of hkconv for this platform",
        stacklevel=2,
    )
    return None, reason


def best_instructions() -> str:
    """The best set of vector instructions of this processor that there are kernels for."""
    found = torch.backends.cpu.get_cpu_capability()
    return found if found in instruction_sets() else "DEFAULT"


def load(instructions: str) -> Library:
    """The library for a set of instructions, from the package or the user's cache folder, or compiled into that.

    Raises:
        RuntimeError, OSError: there is none, and it cannot be compiled.
    """
    name = library_name(instructions)
    for folder in (HERE, *_private_folders()):
        with suppress(OSError):  # there is none, or it is broken
            return Library(folder / name)
    for folder in _private_folders(make=True):
        print("hkconv: compiling the kernels of the CPU, once (some seconds)", file=sys.stderr, flush=True)
        compile_libraries(folder, [instructions])
        return Library(folder / name)
    raise RuntimeError(f"they cannot be kept in {_user_folder()}, which must be a folder that only you can write to")


def _user_folder() -> Path:
    return cache_folder().with_name("kernels")


def _private_folders(make: bool = False) -> Iterator[Path]:
    """The user's folder for kernels, where no other user can have put a file there: what is kept will be executed."""
    # RuntimeError: a user without a home; AttributeError: a system without owners of files.
    with suppress(OSError, RuntimeError, AttributeError):
        folder = _user_folder()
        if make:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        is_mine = status.st_uid in (0, os.geteuid()) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if is_mine and (not make or os.access(folder, os.W_OK)):
            yield folder
