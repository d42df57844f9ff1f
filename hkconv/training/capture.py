"""Training as CUDA graphs: recorded once, then replayed with a single launch instead of one for each operation.

A small network on a large GPU waits for Python most of the time; a replay does not run Python.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.training.precision import FULL, Precision
from hkconv.training.rewind import Rewind
from hkconv.training.step import train_step
from hkconv.training.tasks import Task

# Libraries allocate and choose their algorithms in the first calls; a graph must find all of that done.
WARM_UPS = 3

FULL_BATCH_TASKS = ("node", "link")


class CaptureRefusedError(InputError):
    """A model waits for the GPU in the middle of a step, which a graph cannot hold."""


class CaptureBrokenError(RuntimeError):
    """A capture failed half-way. PyTorch then takes the process to be capturing still: it draws no random numbers any
    more, and whatever asks for some fails. Only a new process helps."""


def check_capture(device: torch.device, task: str, model: torch.nn.Module | None = None) -> None:
    """Raise unless the training of a task can be captured on a device.

    Args:
        device: where the model is.
        task: ``"node"``, ``"graph"`` or ``"link"``.
        model: the network, if there is one yet; its ``needs_host`` says that it fetches something from the host in
            every step. A capture that fails for that reason leaves the generator of random numbers unusable.
    """
    if device.type != "cuda" or task not in FULL_BATCH_TASKS:
        raise InputError(
            f"capture needs a CUDA device and a full-batch task ({' or '.join(FULL_BATCH_TASKS)}), "
            f"got device {device.type} and task {task}"
        )
    if getattr(model, "needs_host", False):
        raise _refusal(type(model).__name__)


class Captured:
    """A function of no arguments as a CUDA graph.

    Every replay reads and writes the same memory as the first call. Random numbers are new each time: torch
    registers its generator with the graph.

    Args:
        function: computes one tensor from tensors that stay where they are. It runs ``WARM_UPS + 1`` times first.
        owner: whom to name if it waits for the GPU, which a graph cannot.
        undo: takes back what these first runs did.
        pool: of :func:`torch.cuda.graph_pool_handle`: memory that graphs share which never run at the same time.
    """

    def __init__(
        self,
        function: Callable[[], Tensor],
        owner: torch.nn.Module,
        undo: Callable[[], None] | None = None,
        pool: tuple[int, int] | None = None,
    ):
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(next(owner.parameters()).device):
            _warm_up(function, type(owner).__name__)
            if undo is not None:
                undo()
            try:
                with torch.cuda.graph(self.graph, pool=pool):
                    self.output = function()
            except Exception as error:
                raise CaptureBrokenError(str(error).splitlines()[0]) from error

    def __call__(self) -> Tensor:
        """Replay; the result is a copy that the next replay leaves alone."""
        self.graph.replay()
        return self.output.clone()


class CapturedStep:
    """:func:`~hkconv.training.step.train_step` for a full-batch task, recorded at the first batch.

    Args:
        model: the network, in training mode when the first batch comes.
        task: what its loss is.
        optimizer: of the network's parameters, with ``capturable=True``.
        precision: in which the step computes.
    """

    def __init__(
        self, model: torch.nn.Module, task: Task, optimizer: torch.optim.Optimizer, precision: Precision = FULL
    ):
        self.model, self.task, self.optimizer, self.precision = model, task, optimizer, precision
        self.captured: Captured | None = None

    def __call__(self, batch: tuple[Tensor, ...]) -> Tensor:
        """Take one step on a batch; returns the loss before it."""
        if self.captured is None:
            self._capture(batch)
        for held, given in zip(self.batch, batch):
            if held is not given:
                held.copy_(given, non_blocking=True)
        return self.captured()

    def _capture(self, batch: tuple[Tensor, ...]) -> None:
        self.batch = batch
        rewind = Rewind(self.model, self.optimizer)
        rewind.save()

        def step() -> Tensor:
            return train_step(self.model, self.task, self.optimizer, self.batch, self.precision)

        self.captured = Captured(step, self.model, rewind.restore)


class CapturedMeasure:
    """What is measured of a model, recorded at the first call.

    Args:
        model: the network.
        measure: such as :meth:`~hkconv.training.tasks.Task.measure` of one part of the data.
    """

    def __init__(self, model: torch.nn.Module, measure: Callable[[], Tensor]):
        self.model, self.measure = model, measure
        self.captured: Captured | None = None

    def __call__(self) -> Tensor:
        """What ``measure`` gives."""
        if self.captured is None:
            self.captured = Captured(self.measure, self.model)
        return self.captured()


def _warm_up(function: Callable[[], Tensor], owner: str) -> None:
    """Run on a stream of its own, as capturing demands, the last time on the watch for what a graph cannot hold."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            function()
        with _waiting_is_refused(owner):
            function()
    torch.cuda.current_stream().wait_stream(stream)


@contextmanager
def _waiting_is_refused(owner: str) -> Iterator[None]:
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    except RuntimeError as error:
        if "synchronizing" not in str(error):
            raise
        raise _refusal(owner) from error
    finally:
        torch.cuda.set_sync_debug_mode(before)


def _refusal(owner: str) -> CaptureRefusedError:
    return CaptureRefusedError(
        f"capture needs a model that never waits for the GPU, and {owner} does: train it without capture"
    )
