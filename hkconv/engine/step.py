"""One step of training: forward, loss, backward, update; by itself, shared by several ranks, or as a CUDA graph.

Under autocast only matrix products of Euclidean layers and the like become cheaper: the geometry of hyperbolic layers
leaves autocast by itself and stays in float32 (:func:`hkconv.nn.common.full_precision`), and so do losses and
parameters. A small network on a large GPU waits for Python most of the time; a replay of a CUDA graph does not run
Python.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor

from hkconv.engine.distributed import ALONE, Processes
from hkconv.engine.guard import Rewind
from hkconv.engine.task import Objective
from hkconv.errors import InputError

HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """Autocast of the forward pass, and the scale of the loss in float16.

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

    def loss(self, model: torch.nn.Module, task: Objective, batch: Any) -> Tensor:
        """Return the loss of a batch, with gradient."""
        if self.half is None:
            return task.loss(model, batch)
        # A step uses each weight once, and a CUDA graph must not hold a copy from outside of it: no cache.
        with torch.autocast(self.device.type, self.half, cache_enabled=False):
            return task.loss(model, batch)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a loss to what parameters have."""
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """Step down the gradient."""
        if self.scaler is None:
            optimizer.step()
            return
        self.scaler.step(optimizer)
        self.scaler.update()


FULL = Precision("float32", torch.device("cpu"))
"""Everything as the model is, on any device."""


class Step:
    r"""One step: the gradient of some batches together, summed over ranks, clipped, and an update.

    Of every batch each rank has a part. With :math:`L_r` the mean loss of the part of rank :math:`r` and :math:`w_r` of
    how many answers it is the mean,

    .. math::
        L = \frac{\sum_r w_r L_r}{\sum_r w_r}, \qquad \nabla L = \frac{\sum_r w_r \nabla L_r}{\sum_r w_r}.

    But for rounding this is the step of one process on the whole batch, however uneven the parts are.

    Args:
        model: the network.
        task: what its loss is.
        optimizer: of the network's parameters.
        precision: in which the step computes; several ranks take it in float32.
        clip: the largest norm of the gradient of all parameters, as one vector; None for no limit.
        processes: the ranks that take the step together.
        runner: the network to call, such as a compiled one with the same parameters.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        task: Objective,
        optimizer: torch.optim.Optimizer,
        *,
        precision: Precision = FULL,
        clip: float | None = None,
        processes: Processes = ALONE,
        runner: torch.nn.Module | None = None,
    ):
        self.model, self.task, self.optimizer, self.processes = model, task, optimizer, processes
        self.precision, self.clip, self.runner = precision, clip, model if runner is None else runner

    def __call__(self, batches: Sequence[Any], lr: float | None = None) -> tuple[Tensor, Tensor | None]:
        """Take the step.

        Args:
            batches: on the model's device; None for one of which this rank has no part.
            lr: learning rate, which a parameter group's ``stretch`` multiplies; None for that of the optimizer.

        Returns:
            The loss before the step and, with a limit, the norm of its gradient before clipping: 0-d tensors on the
            device, not synchronized with the host.
        """
        total = self.task.total_weight(batches)
        self._clear()
        losses = [self._accumulate(batch, total) for batch in batches]
        loss = self._sum_parts(batches, losses, total)
        return loss, self._update(lr)

    def unrecorded(self, batches: Sequence[Any], lr: float | None = None) -> tuple[Tensor, Tensor | None]:
        """Take the step operation by operation, neither replayed nor compiled: hooks of the model are called."""
        runner, self.runner = self.runner, self.model
        try:
            return Step.__call__(self, batches, lr)
        finally:
            self.runner = runner

    def rate_changed(self) -> None:
        """Heed that the optimizer has another learning rate."""

    def _clear(self) -> None:
        self.optimizer.zero_grad()

    def _accumulate(self, batch: Any, total: int | Tensor | None) -> Tensor:
        if batch is None:
            return self._zero()
        loss = self.precision.loss(self.runner, self.task, batch)
        if total is not None:
            loss = loss / total
        elif self.processes.count > 1:
            loss = (self._zero() + self.task.weight(batch)) * loss
        self.precision.backward(loss)
        return loss.detach()

    def _sum_parts(self, batches: Sequence[Any], losses: list[Tensor], total: int | None) -> Tensor:
        """Sum losses and gradients over batches and ranks."""
        if self.processes.count == 1:
            return losses[0] if len(losses) == 1 else torch.stack(losses).sum()
        parameters = self._parameters()
        if total is not None:
            return self.processes.sum_gradients(parameters, torch.stack(losses)).sum()
        weight = self._zero() + sum(self.task.weight(batch) for batch in batches if batch is not None)
        values = torch.stack([torch.stack(losses).sum(), weight])
        loss, weight = self.processes.sum_gradients(parameters, values).unbind()
        # No part may have an answer; then there is nothing to learn.
        weight = weight.clamp(min=1)
        # All of them got one by the sum.
        torch._foreach_div_([cast(Tensor, parameter.grad) for parameter in parameters], weight)
        return loss / weight

    def _update(self, lr: float | None) -> Tensor | None:
        if lr is not None:
            for group in self.optimizer.param_groups:
                group["lr"] = lr * group.get("stretch", 1.0)
        return self._clip_and_move()

    def _clip_and_move(self) -> Tensor | None:
        norm = None
        if self.clip is not None:
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip, foreach=True)
        self.precision.update(self.optimizer)
        return norm

    def _parameters(self) -> list[Tensor]:
        return [entry for group in self.optimizer.param_groups for entry in group["params"] if entry.requires_grad]

    def _zero(self) -> Tensor:
        first = self._parameters()[0]
        return torch.zeros((), dtype=first.dtype, device=first.device)


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
    """Return whether a task trains on the same batches again and again, so that a step is worth recording."""
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


class CapturedSteps(Step):
    """Whole steps, recorded at the first batch: of a full-batch task once for all that come after it, of a graph task
    once for each batch that returns. Arguments are those of :class:`Step`; the optimizer has ``capturable=True``,
    and the model is in training mode when the first batch comes.

    A graph goes on with the learning rate that it was recorded with: after a change steps are taken without one.
    """

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        # Graphs of an earlier training that nobody holds any more must not be taken down while a new one is recorded.
        gc.collect()
        self.pool = torch.cuda.graph_pool_handle()
        # By the identity of a batch, which is kept with it so that no other can take its place.
        self.recorded: dict[int, tuple[Any, Captured]] = {}
        self.replays = True

    def __call__(self, batches: Sequence[Any], lr: float | None = None) -> tuple[Tensor, Tensor | None]:
        if not self.replays:
            return super().__call__(batches, lr)
        (batch,) = batches
        key = 0 if isinstance(batch, tuple) else id(batch)
        if key not in self.recorded:
            self.recorded[key] = batch, self._capture(batch)
        held, captured = self.recorded[key]
        if isinstance(batch, tuple):
            _copy_changed(held, batch)
        return captured(), None

    def rate_changed(self) -> None:
        self.replays = False

    def _capture(self, batch: Any) -> Captured:
        rewind = Rewind(self.model, self.optimizer)
        rewind.save()
        warm_ups = FURTHER_WARM_UPS if self.recorded else WARM_UPS
        return Captured(lambda: Step.__call__(self, [batch])[0], self.model, rewind.restore, self.pool, warm_ups)


def _copy_changed(held: tuple[Any, ...], batch: tuple[Any, ...]) -> None:
    for there, given in zip(held, batch):
        if isinstance(there, Tensor) and there is not given:
            there.copy_(given, non_blocking=True)


class CapturedParts(Step):
    """A step of batches that never return but have few shapes: one graph for the gradient of each shape, and one for
    the update.

    The learning rate, the weight and the batch are read from tensors that stay where they are, and gradients are summed
    in tensors that do. What recording computes is taken back, random numbers too: a run that goes on from its state
    records at other steps than one that was never stopped, and must not differ from it.

    Arguments are those of :class:`Step`. A batch is a named tuple; the learning rates of the optimizer's groups are
    tensors, and it has ``capturable=True``. The loss must not wait for the GPU.
    """

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.total = torch.ones((), device=next(self.model.parameters()).device)
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros(parameter.shape, dtype=parameter.dtype, device=parameter.device)
        self.pool = torch.cuda.graph_pool_handle()
        self.batches: dict[tuple[torch.Size, ...], Any] = {}
        self.gradients: dict[tuple[torch.Size, ...], Captured] = {}
        self.update: Captured | None = None
        self.replays = True

    def unrecorded(self, batches: Sequence[Any], lr: float | None = None) -> tuple[Tensor, Tensor | None]:
        self.replays = False
        try:
            return super().unrecorded(batches, lr)
        finally:
            self.replays = True

    def _clear(self) -> None:
        torch._foreach_zero_(self._gradients())

    def _accumulate(self, batch: Any, total: int | Tensor | None) -> Tensor:
        if not self.replays:
            return super()._accumulate(batch, total)
        shapes = tuple(value.shape for value in batch if isinstance(value, Tensor))
        if shapes not in self.gradients:
            copies = (value.clone() if isinstance(value, Tensor) else value for value in batch)
            self.batches[shapes] = held = type(batch)(*copies)
            self.gradients[shapes] = self._capture(lambda: super(CapturedParts, self)._accumulate(held, self.total))
        _copy_changed(self.batches[shapes], batch)
        self.total.fill_(cast(int, total))
        return self.gradients[shapes]()

    def _update(self, lr: float | None) -> Tensor | None:
        for group in self.optimizer.param_groups:
            group["lr"].fill_(cast(float, lr) * group.get("stretch", 1.0))
        if not self.replays:
            return self._clip_and_move()
        if self.update is None:
            self.update = self._capture(self._clip_and_move)
        return self.update()

    def _capture(self, function: Callable[[], Any]) -> Captured:
        rewind, gradients = Rewind(self.model, self.optimizer), [tensor.clone() for tensor in self._gradients()]
        rewind.save()

        def undo() -> None:
            rewind.restore()
            torch._foreach_copy_(self._gradients(), gradients)

        return Captured(function, self.model, undo, self.pool)

    def _gradients(self) -> list[Tensor]:
        # All parameters have had one since the beginning.
        return [cast(Tensor, parameter.grad) for parameter in self.model.parameters()]


class CapturedMeasure:
    """A measure of a model, recorded at the first call.

    Args:
        model: the network.
        measure: such as :meth:`~hkconv.engine.task.Task.measure` of one part of the data.
    """

    def __init__(self, model: torch.nn.Module, measure: Callable[[], Tensor]):
        self.model, self.measure = model, measure
        self.captured: Captured | None = None

    def __call__(self) -> Tensor:
        """Return what ``measure`` gives."""
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
