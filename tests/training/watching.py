"""What tests need to see which operations a piece of code dispatches, and where a value is read by the host."""

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Operations(TorchDispatchMode):
    """Counts the operations inside its block by name, except while ``paused``."""

    def __init__(self):
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.paused = False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if not self.paused:
            self.counts[str(function.overloadpacket)] += 1
        return function(*args, **(kwargs or {}))

    @property
    def reads(self) -> int:
        """How often a value came to the host, as by ``item()``, ``bool()`` or ``float()``."""
        return self.counts["aten._local_scalar_dense"]


def operations_of(function) -> Counter[str]:
    """The operations of one call."""
    with Operations() as seen:
        function()
    return seen.counts
