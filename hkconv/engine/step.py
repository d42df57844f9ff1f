"""One step of training: forward, loss, backward, update; by itself, shared by several ranks, or as a CUDA graph.

Under autocast only matrix products of Euclidean layers and the like become cheaper: the geometry of hyperbolic layers
leaves autocast by itself and stays in float32 (:func:`hkconv.nn.common.full_precision`), and so do losses and
parameters. A small network on a large GPU waits for Python most of the time; a replay of a CUDA graph does not run
Python.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hkconv.engine.distributed import Processes
from hkconv.engine.guard import Rewind
from hkconv.engine.task import Task
from hkconv.errors import InputError

HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """The forward and backward pass of a step, and its update.

    Float16 has five bits of exponent: gradients below 6e-8 vanish in it. Therefore the loss is multiplied by a factor
    as large as it can be, and gradients are divided by it in float32. A step whose gradients overflow is left out and
    the factor lowered, for which the host must wait in every step. Bfloat16 has the range of float32 and needs none of
    this.

    Args:
        name: ``"bf16"`` or ``"fp16"`` for autocast to that type; ``"float32"`` leaves everything as the model is.
        device: where the model is.
    """

    def __init__(self, name: str, device: torch.device):
        self.device, self.half = device, HALVES.get(name)
        self.scaler = torch.amp.GradScaler(device.type) if name == "fp16" else None

    def loss(self, model: torch.nn.Module, task: Task, batch: Any) -> Tensor:
        """The mean loss of a batch, with gradient."""
        if self.half is None:
            return task.loss(model, batch)
        # A step uses each weight once, and a CUDA graph must not hold a copy from outside of it: no cache.
        with torch.autocast(self.device.type, self.half, cache_enabled=False):
            return task.loss(model, batch)

    def update(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
        """Step down the gradient of a loss."""
        optimizer.zero_grad()
        if self.scaler is None:
            loss.backward()
            optimizer.step()
            return
        self.scaler.scale(loss).backward()
        self.scaler.step(optimizer)
        self.scaler.update()


FULL = Precision("float32", torch.device("cpu"))
"""Everything as the model is, on any device."""


def train_step(
    model: torch.nn.Module, task: Task, optimizer: torch.optim.Optimizer, batch: Any, precision: Precision = FULL
) -> Tensor:
    """Take one step.

    Args:
        model: the network.
        task: what its loss is.
        optimizer: of the network's parameters.
        batch: one of the task's.
        precision: in which the step computes.

    Returns:
        The loss before the step, a 0-d tensor on the model's device that nobody has looked at yet.
    """
    loss = precision.loss(model, task, batch)
    precision.update(optimizer, loss)
    return loss.detach()


def shared_step(
    model: torch.nn.Module, task: Task, optimizer: torch.optim.Optimizer, processes: Processes, batch: Any
) -> Tensor:
    r"""Take one step on a batch of which every process has a part,

    .. math::
        L = \frac{\sum_r w_r L_r}{\sum_r w_r}, \qquad \nabla L = \frac{\sum_r w_r \nabla L_r}{\sum_r w_r},

    where :math:`L_r` is the mean loss of the part of process :math:`r` and :math:`w_r` of how many answers it is the
    mean. But for rounding this is the step of one process on the whole batch.

    Args:
        model: the network, the same in all processes.
        task: what its loss is.
        optimizer: of the network's parameters.
        processes: which take the step together.
        batch: this process's part, None where it has none.

    Returns:
        The loss of the whole batch before the step, a 0-d tensor that is the same in all processes.
    """
    parameters = [entry for group in optimizer.param_groups for entry in group["params"] if entry.requires_grad]
    optimizer.zero_grad()
    loss = weight = torch.zeros((), dtype=parameters[0].dtype, device=parameters[0].device)
    if batch is not None:
        weight = weight + task.weight(batch)
        loss = weight * task.loss(model, batch)
        loss.backward()
    loss, weight = processes.sum_gradients(parameters, torch.stack([loss.detach(), weight])).unbind()
    # No part may have an answer; then there is nothing to learn.
    weight = weight.clamp(min=1)
    torch._foreach_div_([parameter.grad for parameter in parameters], weight)
    optimizer.step()
    return loss / weight


# Libraries allocate and choose their algorithms in the first calls; a graph must find all of that done.
WARM_UPS = 3
# A further batch needs what is made for its own sizes, and no more.
FURTHER_WARM_UPS = 0

FULL_BATCH_TASKS = ("node", "link")


class CaptureRefusedError(InputError):
    """A model waits for the GPU in the middle of a step, which a graph cannot hold."""


class CaptureBrokenError(RuntimeError):
    """A capture failed half-way. PyTorch then takes the process to be capturing still: it draws no random numbers any
    more, and whatever asks for some fails. Only a new process helps."""


def batches_return(task: str, groupings: int | None = None) -> bool:
    """Whether a task trains on the same batches again and again, so that a step on one is worth recording."""
    return task in FULL_BATCH_TASKS or groupings is not None


def check_capture(
    device: torch.device, task: str, groupings: int | None = None, model: torch.nn.Module | None = None
) -> None:
    """Raise unless the training of a task can be captured on a device.

    Args:
        device: where the model is.
        task: ``"node"``, ``"graph"`` or ``"link"``.
        groupings: how many divisions into batches a graph task has; None if it draws new ones.
        model: the network, if there is one yet; its ``needs_host`` says that it fetches something from the host in
            every step. A capture that fails for that reason leaves the generator of random numbers unusable.
    """
    if device.type != "cuda":
        raise InputError(f"capture needs a CUDA device, got device {device.type}")
    if not batches_return(task, groupings):
        raise InputError(f"capture of a {task} task needs batches that return: give it groupings, such as 2")
    if getattr(model, "needs_host", False):
        raise _refusal(type(model).__name__)


class Captured:
    """A function of no arguments as a CUDA graph.

    Every replay reads and writes the same memory as the first call. Random numbers are new each time: torch
    registers its generator with the graph.

    Args:
        function: computes one tensor from tensors that stay where they are. It runs ``warm_ups + 1`` times first.
        owner: whom to name if it waits for the GPU, which a graph cannot.
        undo: takes back what these first runs did.
        pool: of :func:`torch.cuda.graph_pool_handle`: memory that graphs share which never run at the same time.
        warm_ups: runs before the one that is watched for waiting.
    """

    def __init__(
        self,
        function: Callable[[], Tensor],
        owner: torch.nn.Module,
        undo: Callable[[], None] | None = None,
        pool: "torch.cuda._POOL_HANDLE | None" = None,
        warm_ups: int = WARM_UPS,
    ):
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(next(owner.parameters()).device):
            _warm_up(function, type(owner).__name__, warm_ups)
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


class CapturedSteps:
    """:func:`~hkconv.engine.step.train_step`, recorded at the first batch: of a full-batch task once for all that
    come after it, of a graph task once for each batch that returns.

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
        # Graphs of an earlier training that nobody holds any more must not be taken down while a new one is recorded.
        gc.collect()
        self.pool = torch.cuda.graph_pool_handle()
        # By the identity of a batch, which is kept with it so that no other can take its place.
        self.recorded: dict[int, tuple[Any, Captured]] = {}

    def __call__(self, batch: Any) -> Tensor:
        """Take one step on a batch; returns the loss before it."""
        key = 0 if isinstance(batch, tuple) else id(batch)
        if key not in self.recorded:
            self.recorded[key] = batch, self._capture(batch)
        held, captured = self.recorded[key]
        if isinstance(batch, tuple):
            _copy_changed(held, batch)
        return captured()

    def _capture(self, batch: Any) -> Captured:
        rewind = Rewind(self.model, self.optimizer)
        rewind.save()
        step = partial(train_step, self.model, self.task, self.optimizer, batch, self.precision)
        warm_ups = FURTHER_WARM_UPS if self.recorded else WARM_UPS
        return Captured(step, self.model, rewind.restore, self.pool, warm_ups)


def _copy_changed(held: tuple[Tensor, ...], batch: tuple[Tensor, ...]) -> None:
    for there, given in zip(held, batch):
        if there is not given:
            there.copy_(given, non_blocking=True)


class CapturedMeasure:
    """What is measured of a model, recorded at the first call.

    Args:
        model: the network.
        measure: such as :meth:`~hkconv.engine.task.Task.measure` of one part of the data.
    """

    def __init__(self, model: torch.nn.Module, measure: Callable[[], Tensor]):
        self.model, self.measure = model, measure
        self.captured: Captured | None = None

    def __call__(self) -> Tensor:
        """What ``measure`` gives."""
        if self.captured is None:
            self.captured = Captured(self.measure, self.model)
        return self.captured()


def _warm_up(function: Callable[[], Tensor], owner: str, times: int) -> None:
    """Run on a stream of its own, as capturing demands, the last time on the watch for what a graph cannot hold."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(times):
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
