"""Values made from a tensor, remembered by the identity of that tensor."""

import warnings
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary
from torch_geometric import EdgeIndex

Value = TypeVar("Value")

# Values kept of one tensor. More of them are recorded in CUDA graphs or made for other sizes of the same edges.
MOST_VALUES = 8

# Numbers of a row that are compared at each look-up, in about ten microseconds.
PIECE = 4096
# Odd, so that each number counts by itself and two of them cannot change places unnoticed.
_FACTORS = np.arange(1, 2 * PIECE, 2)


class IdentityCache:
    """Values made from a tensor, kept as long as that very tensor lives and is not written to.

    PyTorch counts what is written to a tensor, but not through ``.data``, ``.numpy()`` or a buffer that it shares. Of a
    tensor in main memory one piece after the other is therefore compared with its checksum, one a look-up: such a write
    is noticed at once where a row has at most ``PIECE`` numbers or all are new, otherwise after as many look-ups as
    there are pieces at the latest, with a warning. On a GPU it is not noticed.

    A value must not hold the tensor it is kept for, or both would live for ever. A CUDA graph reads it where it lies:
    what was found while one was captured is kept as long as the tensor, also when that is written to, which the graph
    does not see; of other values the last ``MOST_VALUES``.
    """

    def __init__(self) -> None:
        self._entries = WeakTensorKeyDictionary()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Tensor, tag: Hashable, build: Callable[[], Value]) -> Value:
        """The value that ``build`` made of ``key`` for this tag, now or before.

        Nothing new is kept of a tensor that carries a gradient or no version, nor while a graph is captured or
        compiled.
        """
        if torch.compiler.is_compiling() or key.requires_grad or key.is_inference():
            return build()
        kept = self._entries.get(key)
        if kept is None or not kept.is_of(key):
            kept = _KeptValues(key, [] if kept is None else kept.replayed())
        is_recorded = is_capturing(key)
        if tag in kept.values:
            if is_recorded:
                kept.recorded.add(tag)
            return kept.values[tag]
        if is_recorded:
            return build()
        with torch.inference_mode(False):  # values made during inference serve training too
            made = build()
        kept.add(tag, made)
        self._entries[key] = kept
        return made


class _KeptValues:
    """Values by tag, with the version and the checksums of the tensor they were made from."""

    def __init__(self, key: Tensor, replayed: list[Any]):
        self.version = key._version
        # Made of what the tensor held before: a CUDA graph goes on reading them where they lie.
        self._replayed = replayed
        self.values: dict[Hashable, Any] = {}
        self.recorded: set[Hashable] = set()
        array = _array(key)
        self._sums = [] if array is None else [_checksum(array, number) for number in range(_pieces(array))]
        self._next = 0

    def add(self, tag: Hashable, value: Any) -> None:
        passing = [kept for kept in self.values if kept not in self.recorded]
        if len(passing) >= MOST_VALUES:
            del self.values[passing[0]]
        self.values[tag] = value

    def replayed(self) -> list[Any]:
        """Return all values that a CUDA graph has recorded."""
        return [*self._replayed, *(self.values[tag] for tag in self.recorded)]

    def is_of(self, key: Tensor) -> bool:
        """True for the tensor as it was, as far as its version and its next piece say."""
        if self.version != key._version:
            return False
        array = _array(key) if self._sums else None
        if array is None:
            return True
        number = self._next % len(self._sums)
        self._next += 1
        if _checksum(array, number) == self._sums[number]:
            return True
        if len(self._sums) > 1:
            warnings.warn(
                "a tensor of edges was written to where PyTorch does not see it (.data, .numpy() or a shared buffer): "
                "results since then may be of the old edges; write to the tensor itself, or make a new one",
                stacklevel=3,
            )
        return False


def _array(key: Tensor) -> np.ndarray | None:
    """The numbers of a tensor in main memory as integers, without a copy; None for others."""
    if isinstance(key, EdgeIndex):
        key = key.as_tensor()
    is_readable = key.device.type == "cpu" and key.layout == torch.strided and key.dtype != torch.bfloat16
    if type(key) is not Tensor or not is_readable:
        return None
    with torch._C._DisableFuncTorch():  # inside torch.func.jvp it would be a tensor without memory
        array = key.numpy()
    return array.view(f"i{array.itemsize}") if array.ndim and array.size else None


def _pieces(array: np.ndarray) -> int:
    return -(-array.shape[-1] // PIECE)


def _checksum(array: np.ndarray, number: int) -> int:
    total = 0
    for row in array.reshape(-1, array.shape[-1]):
        piece = row[number * PIECE : (number + 1) * PIECE].astype(np.int64, copy=False)
        total = total * 3 + int(piece.dot(_FACTORS[: piece.size]))
    return total


def is_capturing(values: Tensor) -> bool:
    """True while a CUDA graph records what is done with these values."""
    return values.is_cuda and torch.cuda.is_current_stream_capturing()
