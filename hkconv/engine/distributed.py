"""Several processes that train one model together, each on its part of every batch.

Every process has the whole model and all of the data. They draw the same batches, and each takes its part of every one;
gradients are summed over processes before the optimizer's step, so that all of them take the same step. They are summed
after the backward pass and not within it, as by torch's DistributedDataParallel: parts of a batch are not equal, some
are empty, and a backward pass that is replayed as a CUDA graph cannot wait for others.

``torchrun`` starts the processes. On CPUs they speak through gloo, on GPUs gradients and scores go through NCCL.
"""

import hashlib
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from hkconv.engine.devices import describe_device, find_device
from hkconv.engine.launch import Place, find_place
from hkconv.engine.seeds import stream_seed
from hkconv.errors import InputError

if TYPE_CHECKING:
    from hkconv.engine.task import Task

Result = TypeVar("Result")

# What the others wait for the first process to prepare, such as a large corpus, takes less.
TIMEOUT = timedelta(minutes=30)

# Seconds in which a process that was told to end brings home what it has. torchrun grants 30.
GRACE = 20

# Dropout of the other processes follows streams of the seed that no split uses (see hkconv.data.trees).
DROPOUT_STREAM = 2**31 + 16


class LostProcessError(InputError):
    """Another process of a training is gone, or this one was told to end because of that."""


class Processes:
    """The processes of a training, as one of them sees them. A process that is alone is a group of one.

    Args:
        place: which of them this is.
    """

    def __init__(self, place: Place | None = None):
        self.place = place or Place()
        self.rank, self.count = self.place.rank, self.place.count
        #: Whether they still work together.
        self.together = self.count > 1
        #: The command that goes on with the run, for whoever reads that a process was lost.
        self.goes_on = "the same command"
        self.reason: str | None = None

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    def find_device(self, name: str) -> torch.device:
        """The device of this process: with GPUs, each process of a machine has its own.

        Args:
            name: as for :func:`~hkconv.engine.devices.find_device`; several processes take no number of a GPU.
        """
        device = find_device(name)
        if self.count == 1 or device.type != "cuda":
            return device
        found, wanted = torch.cuda.device_count(), self.place.local_count
        if device.index is not None:
            raise InputError(f"device must be auto, cpu or cuda with {self.count} processes, got {name}")
        if wanted > found:
            raise InputError(
                f"this machine has {found} GPUs for {wanted} processes: "
                f"start torchrun with --nproc-per-node {found}, or train with --device cpu"
            )
        device = torch.device("cuda", self.place.local_rank)
        torch.cuda.set_device(device)
        return device

    def describe(self, device: torch.device) -> str:
        """Where a training happens, in words."""
        return describe_device(device) + (f", {self.count} processes" if self.count > 1 else "")

    def seed_dropout(self, seed: int) -> None:
        """Let what is random in a forward pass differ from process to process; the first keeps its generators."""
        if self.rank > 0:
            torch.manual_seed(stream_seed(seed, DROPOUT_STREAM + self.rank))

    def share(self, members: Tensor) -> Tensor:
        """This process's part of what all of them have: every member is in one part, and sizes differ by at most 1."""
        return members.tensor_split(self.count)[self.rank] if self.together else members

    def gather(self, rows: Tensor) -> Tensor:
        """The rows of all processes, those of the first one first.

        Args:
            rows: ``(N, ...)``, where N may differ from process to process.
        """
        if not self.together:
            return rows
        sizes = torch.zeros(self.count, dtype=torch.int64)
        sizes[self.rank] = len(rows)
        self.sum_(sizes)
        # Equal lengths are what gloo gathers.
        padded = rows.new_zeros(int(sizes.max()), *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in range(self.count)]
        with self._speaking():
            dist.all_gather(parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, sizes.tolist())])

    def sum_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over processes."""
        if self.together:
            with self._speaking():
                dist.all_reduce(tensor)
        return tensor

    def sum_gradients(self, parameters: Sequence[Tensor], values: Tensor) -> Tensor:
        """Replace gradients by their sums over processes, all in one message.

        Args:
            parameters: those with no gradient here get one, for others may have it.
            values: a vector that is summed along with them.

        Returns:
            The sum of ``values``.
        """
        if not self.together:
            return values
        gradients = [_gradient(parameter) for parameter in parameters]
        flat = self.sum_(torch.cat([values, *(gradient.flatten() for gradient in gradients)]))
        summed, *pieces = flat.split([len(values), *(gradient.numel() for gradient in gradients)])
        torch._foreach_copy_(gradients, [piece.view_as(gradient) for piece, gradient in zip(pieces, gradients)])
        return summed

    def agree(self, values: list[float]) -> list[float]:
        """Numbers as the first process has them, so that all decide alike."""
        if not self.together:
            return values
        told = torch.tensor(values, dtype=torch.float64)
        with self._speaking():
            dist.broadcast(told, 0)
        return told.tolist()

    def copy_model(self, model: torch.nn.Module, *, buffers_only: bool = False) -> None:
        """Give every process the parameters and buffers of the first."""
        if self.together:
            with self._speaking(), torch.no_grad():
                for tensor in [*([] if buffers_only else model.parameters()), *model.buffers()]:
                    dist.broadcast(tensor.data, 0)

    def check_in_step(self, generator: torch.Generator) -> None:
        """Raise unless what draws the batches is in the same state everywhere: else some would be trained on twice."""
        if not self.together:
            return
        digest = hashlib.sha256(generator.get_state().numpy().tobytes()).digest()
        number = int.from_bytes(digest[:7], "little")
        extremes = torch.tensor([number, -number])
        with self._speaking():
            dist.all_reduce(extremes, dist.ReduceOp.MAX)
        if extremes[0] != -extremes[1]:
            raise RuntimeError("the processes drew different batches: a task must draw them alike in all of them")

    def first(self, function: Callable[[], Result]) -> Result:
        """What the first process finds, which alone calls the function; what it complains of all raise."""
        if not self.together:
            return function()
        told: list[Any] = [None]
        if self.is_first:
            try:
                told = [(True, function())]
            except LostProcessError:
                raise
            except InputError as error:
                told = [(False, str(error))]
        with self._speaking():
            dist.broadcast_object_list(told, 0, device=torch.device("cpu"))
        went_well, found = told[0]
        if not went_well:
            raise InputError(found)
        return found

    def in_turn(self, function: Callable[[], Result]) -> Result:
        """Call a function after the first process has called it and left in a cache what need not be made twice."""
        made: list[Result] = []
        self.first(lambda: made.append(function()))
        return made[0] if made else function()

    def all(self, value: Result) -> list[Result]:
        """The values of all processes, that of the first one first; plain data and tensors of the CPU."""
        if not self.together:
            return [value]
        told: list[Any] = [None] * self.count
        with self._speaking():
            dist.all_gather_object(told, value)
        return told

    def leave(self) -> None:
        """Do the rest alone: the others are gone, or are going too."""
        self.together = False

    def check(self) -> None:
        """Raise if a process was lost."""
        if self.reason is not None:
            raise self._lost(self.reason)

    def _lost(self, reason: str) -> LostProcessError:
        self.leave()
        self.reason = reason
        return LostProcessError(
            f"one of the {self.count} processes of this run was lost or stopped ({reason}); "
            f"what was learnt is kept, and {self.goes_on} goes on"
        )

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise self._lost(_reason(error)) from error


ALONE = Processes()


def shared_step(
    model: torch.nn.Module, task: "Task", optimizer: torch.optim.Optimizer, processes: Processes, batch: Any
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


_times_joined = count()


def _gradient(parameter: Tensor) -> Tensor:
    """The gradient of a parameter, which gets one of zeros if it has none."""
    if parameter.grad is None:
        parameter.grad = torch.zeros(parameter.shape, dtype=parameter.dtype, device=parameter.device)
    return parameter.grad


@cache
def _meeting_place() -> dist.Store:
    """Where the processes of a launch find each other."""
    store, _, _ = next(dist.rendezvous("env://", timeout=TIMEOUT))
    return store


@contextmanager
def joined() -> Iterator[Processes]:
    """The processes that a launcher started, for as long as they train together; without one, this process alone.

    When one of them is lost, the next message to it fails, and torchrun tells the others to end (SIGTERM). Either
    raises :class:`LostProcessError`, once.
    """
    place = find_place()
    if place.count == 1:
        yield Processes()
        return
    processes = Processes(place)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        # Names of its own, or a process would find those that the last time left behind.
        store = dist.PrefixStore(f"hkconv/{next(_times_joined)}", _meeting_place())
        dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.count, timeout=TIMEOUT)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"the {place.count} processes cannot reach each other: {_reason(error)}") from error
    with _told_to_end(processes):
        try:
            yield processes
        # What was wrong with the input all of them found.
        except InputError:
            _part(processes)
            raise
        _part(processes)


def _reason(error: Exception) -> str:
    """The first sentence of what gloo or NCCL say, without the places in their code and on the network."""
    return re.sub(r"\[[^]]*\](:\d+)?:?\s*", "", str(error).splitlines()[0]).split(". ")[0]


def _part(processes: Processes) -> None:
    """End what the processes had together. One that is gone cannot say goodbye; waiting for it could take forever."""
    if processes.together:
        processes.leave()
        dist.destroy_process_group()


def is_first_to_say(error: InputError) -> bool:
    """Whether no other process of this launch has said this: of several with the same complaint, one is heard.

    Args:
        error: what is to be said. The loss of a process looks different from each of the others, but is one.
    """
    subject = "lost" if isinstance(error, LostProcessError) else str(error)
    digest = hashlib.sha256(subject.encode()).hexdigest()
    try:
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=5))
        return store.add(f"hkconv/said/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}/{digest}", 1) == 1
    except (RuntimeError, KeyError, ValueError):
        # Nobody to ask: better twice than not at all.
        return True


@contextmanager
def _told_to_end(processes: Processes) -> Iterator[None]:
    """Make SIGTERM a :class:`LostProcessError`, once; what goes on after it is not disturbed again.

    The main thread may be waiting for a GPU that waits for the lost process, and hear nothing. Then a second thread
    says what has happened and ends the process.
    """

    def hear(*_: object) -> None:
        if processes.together:
            raise processes._lost("told to end")

    done = threading.Event()
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    handler_before = signal.signal(signal.SIGTERM, hear)
    wakeup_before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_end_if_stuck, args=(reader, done, processes), daemon=True).start()
    try:
        yield
    finally:
        done.set()
        signal.set_wakeup_fd(wakeup_before)
        signal.signal(signal.SIGTERM, handler_before)
        writer.close()


def _end_if_stuck(signals: socket.socket, done: threading.Event, processes: Processes) -> None:
    with signals:
        while heard := signals.recv(64):
            if signal.SIGTERM in heard and not done.wait(GRACE):
                error = processes._lost("told to end, and waiting for another")
                if is_first_to_say(error):
                    print(f"error: {error}", file=sys.stderr, flush=True)
                os._exit(1)
