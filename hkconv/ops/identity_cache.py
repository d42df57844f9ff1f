"""What was computed from a graph's edges and is used again in every epoch, found by the tensor it came from."""

from collections.abc import Callable, Hashable
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

Value = TypeVar("Value")


class IdentityCache:
    """What was made of a tensor, for as long as that very tensor lives and is not written to.

    A value must not hold the tensor it is kept for, or both would live for ever. A CUDA graph reads it where it lies:
    values for several tags are kept side by side, so that none takes the place of one that was recorded.
    """

    def __init__(self) -> None:
        self._entries = WeakTensorKeyDictionary()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Tensor, tag: Hashable, build: Callable[[], Value]) -> Value:
        """The value that ``build`` made of ``key`` for this tag, now or before.

        Where a tensor carries a gradient or no version, or where the work is only recorded, nothing new is kept.
        """
        if torch.compiler.is_compiling() or key.requires_grad or key.is_inference():
            return build()
        version, values = self._entries.get(key, (None, {}))
        if version != key._version:
            values = {}
        if tag in values:
            return values[tag]
        if _is_capturing(key):
            return build()
        with torch.inference_mode(False):  # what is made during inference serves training too
            made = build()
        self._entries[key] = key._version, {**values, tag: made}
        return made


def _is_capturing(tensor: Tensor) -> bool:
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()
