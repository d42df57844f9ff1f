"""What was computed from a graph's edges and is used again in every epoch, found by the tensor it came from."""

from collections.abc import Callable, Hashable
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

Value = TypeVar("Value")


class IdentityCache:
    """What was made of a tensor, for as long as that very tensor lives and is not written to.

    A value must not hold the tensor it is kept for, or both would live for ever.
    """

    def __init__(self):
        self._entries = WeakTensorKeyDictionary()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Tensor, tag: Hashable, build: Callable[[], Value]) -> Value:
        """The value that ``build`` made of ``key`` last time, or makes now if key or tag are others.

        Where a tensor carries a gradient or no version, or where the work is only recorded, nothing is kept.
        """
        if torch.compiler.is_compiling() or key.requires_grad or key.is_inference() or _is_capturing(key):
            return build()
        stamp = (key._version, tag)
        entry = self._entries.get(key)
        if entry is None or entry[0] != stamp:
            with torch.inference_mode(False):  # what is made during inference serves training too
                entry = self._entries[key] = (stamp, build())
        return entry[1]


def _is_capturing(tensor: Tensor) -> bool:
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()
