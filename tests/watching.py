"""What tests need to see which operations a piece of code dispatches, and where a value is read by the host."""

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Operations(TorchDispatchMode):
    """Counts, inside its block and except while ``paused``, operations by name and values that the host reads."""

    def __init__(self):
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.reads = 0
        self.paused = False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if not self.paused:
            self.counts[str(function.overloadpacket)] += 1
            self.reads += function is torch.ops.aten._local_scalar_dense.default and _is_result(args[0])
        return function(*args, **(kwargs or {}))


def _is_result(tensor) -> bool:
    """Numbers and conditions are computed where the model is; sizes and orders, which are whole numbers, never are."""
    return tensor.is_floating_point() or tensor.dtype == torch.bool


def operations_of(function) -> Counter[str]:
    """The operations of one call."""
    with Operations() as seen:
        function()
    return seen.counts


class SpoilGradient(torch.autograd.Function):
    """The same numbers, with a gradient that is not one."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * float("nan")
