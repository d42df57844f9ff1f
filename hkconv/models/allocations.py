"""Bound on the memory that building a network may ask for: what a description of a few words claims is not believed."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from hkconv.errors import InputError

# Weights and what they are drawn from are made by these.
_MAKERS = {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn}


class BoundedAllocations(TorchFunctionMode):
    """Block in which new tensors may have so many bytes in all; the one that has more is not made.

    Args:
        most: bytes.
        message: of the :class:`InputError` that is raised in its place.
    """

    def __init__(self, most: float, message: str):
        super().__init__()
        self.most, self.message, self.taken = most, message, 0

    def __torch_function__(
        self, function: Callable, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if function in _MAKERS:
            size = kwargs.get("size", args[0] if args and isinstance(args[0], list | tuple) else args)
            self.taken += math.prod(size) * (kwargs.get("dtype") or torch.get_default_dtype()).itemsize
            if self.taken > self.most:
                raise InputError(self.message)
        return function(*args, **kwargs)
