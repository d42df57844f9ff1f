"""Backends: their choice, the fused ones where they cover the input, and the launch of Triton kernels.

A plain launch looks at every argument to find the compiled form, which costs the host several times what the launch
itself does, and more than the kernels of a small graph run for. :class:`Launcher` keeps the compiled form under the
constants.
"""

import importlib.util
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.ops import native

if TYPE_CHECKING:
    from triton import JITFunction

# Triton compiles for pointers that are multiples of this, and for others.
ALIGNMENT = 16

BACKENDS = ("auto", "reference", "cpu", "cuda")


def choose_backend(backend: str, x: Tensor, act: Callable[[Tensor], Tensor] | None) -> str:
    """The backend for points ``x`` and an activation inside HLinear; what was asked for, or an error that says why not.

    An activation on the relative feature takes its products from nodes to edges. The reference does any, kernels ReLU.
    """
    if backend == "reference":
        return backend
    if backend == "auto" and x.device.type not in {"cpu", "cuda"}:
        return "reference"
    if backend not in {"auto", x.device.type}:
        raise InputError(
            f"backend={backend!r} needs {backend} tensors, got {x.device.type}; backend='auto' takes either"
        )
    missing = _why_not(x, act)
    if backend == "auto":
        return "reference" if missing else x.device.type
    if missing:
        raise InputError(f"backend={backend!r} {missing}; backend='auto' takes the reference there")
    return backend


def rectifies(act: Callable[[Tensor], Tensor] | None) -> bool:
    """True for ReLU, the one activation that a fused backend covers."""
    return type(act) is torch.nn.ReLU or act in (torch.relu, torch.nn.functional.relu)


def _why_not(x: Tensor, act: Callable[[Tensor], Tensor] | None) -> str | None:
    if act is not None and not rectifies(act):
        return "does not cover act other than ReLU"
    if is_transformed():
        return "does not work inside torch.func"
    if x.device.type == "cuda" and not _has_triton():
        return "needs Triton, which is not installed"
    # A compiler traces layers, and would the search for kernels; it takes the operator, which looks for them itself.
    if x.device.type == "cpu" and not torch.compiler.is_compiling():
        reason = native.why_not()
        return None if reason is None else f"has no compiled kernels ({reason})"
    return None


def is_transformed() -> bool:
    """True inside a transform of ``torch.func`` such as ``vmap``, which sees PyTorch's own operations alone."""
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


@lru_cache(maxsize=1)
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None and torch.version.cuda is not None


class Launcher:
    """Calls a Triton kernel whose parameters are tensors, then numbers it does not specialize on, then constants."""

    def __init__(self, kernel: "JITFunction[Any]"):
        self.kernel = kernel
        self._compiled: dict[tuple[Any, ...], tuple[Any, tuple[Any, ...]]] = {}

    def __call__(self, grid: tuple[int, int], tensors: list[Tensor], *numbers: int, **constants: Any) -> None:
        """Launch on the device of the tensors.

        Args:
            grid: programs along both axes.
            tensors, numbers: the kernel's first arguments.
            constants: its constants, and options such as ``num_warps``.
        """
        device = tensors[0].device
        if device.type == "cpu":  # Triton's interpreter
            self.kernel[grid](*tensors, *numbers, **constants)
        elif device.index == torch.cuda.current_device():
            self._launch(grid, tensors, numbers, constants)
        else:
            with torch.cuda.device(device):
                self._launch(grid, tensors, numbers, constants)

    def _launch(
        self, grid: tuple[int, int], tensors: list[Tensor], numbers: tuple[int, ...], constants: dict[str, Any]
    ) -> None:
        addresses = 0
        for tensor in tensors:
            addresses |= tensor.data_ptr()
        aligned = addresses % ALIGNMENT == 0
        kinds = tuple(tensor.dtype for tensor in tensors)
        key = (tensors[0].device, kinds, *constants.values())
        if aligned and key in self._compiled:
            compiled, values = self._compiled[key]
            compiled[(*grid, 1)](*tensors, *numbers, *values)
            return
        # Threads that hold the same sum must hold the same bits. Fused into the last addition of a butterfly, a product
        # is rounded in one thread and not in the other; where they then decide differently, their results are mixed.
        compiled = self.kernel[grid](*tensors, *numbers, **constants, enable_fp_fusion=False)
        if aligned:
            values = tuple(constants[name] for name in self.kernel.arg_names if name in constants)
            self._compiled[key] = compiled, values
