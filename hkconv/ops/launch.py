"""Triton kernels that are launched again and again with the same constants.

A plain launch looks at every argument to find the compiled form, which costs the host several times what the launch
itself does, and more than the kernels of a small graph run for. Here the compiled form is kept under the constants.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from triton import JITFunction

# What Triton compiles for: pointers that are multiples of this, and others.
ALIGNMENT = 16


class Launcher:
    """Calls a Triton kernel whose parameters are tensors, then numbers it does not specialise on, then constants."""

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
        compiled = self.kernel[grid](*tensors, *numbers, **constants)
        if aligned:
            values = tuple(constants[name] for name in self.kernel.arg_names if name in constants)
            self._compiled[key] = compiled, values
