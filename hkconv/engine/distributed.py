"""Several processes that train one model together, each on its part of every batch.

Every process has the whole model and all of the data. They draw the same batches, and each takes its part of every one;
gradients are summed over processes before the optimizer's step, so that all of them take the same step. They are summed
after the backward pass and not within it, as by torch's DistributedDataParallel: parts of a batch are not equal, some
are empty, and a backward pass that is replayed as a CUDA graph cannot wait for others.

``torchrun`` starts the processes, reports one that is lost and ends the others. On CPUs they speak through gloo, on
GPUs gradients and scores go through NCCL.
"""

import hashlib
import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import count
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from hkconv.engine.devices import describe_device, find_device
from hkconv.engine.reproducibility import stream_seed
from hkconv.errors import InputError


@dataclass(frozen=True)
class Place:
    """Rank of this process among several.

    Args:
        rank: its number among all of them, from 0.
        count: how many there are.
        local_rank: its number among those of this machine.
        local_count: how many there are on this machine.
    """

    rank: int = 0
    count: int = 1
    local_rank: int = 0
    local_count: int = 1


NAMES = {"rank": "RANK", "count": "WORLD_SIZE", "local_rank": "LOCAL_RANK", "local_count": "LOCAL_WORLD_SIZE"}


def find_place() -> Place:
    """The place that the environment gives this process; without a launcher it is the only one."""
    given = {name: os.environ.get(variable, "") for name, variable in NAMES.items()}
    if not all(value.isdecimal() for value in given.values()):
        return Place()
    return Place(**{name: int(value) for name, value in given.items()})


Result = TypeVar("Result")

# What the others wait for the first process to prepare, such as a large corpus, takes less.
TIMEOUT = timedelta(minutes=30)

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
        """Return whether this is the process that writes and prints."""
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
        """Return the device and the number of processes, in words."""
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
        """Return what the first process finds, which alone calls the function; its :class:`InputError` all raise."""
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


_times_joined = count()


def _gradient(parameter: Tensor) -> Tensor:
    """The gradient of a parameter, which gets one of zeros if it has none."""
    if parameter.grad is None:
        parameter.grad = torch.zeros(parameter.shape, dtype=parameter.dtype, device=parameter.device)
    return parameter.grad


@cache
def _meeting_place() -> dist.Store:
    """Return the store where the processes of a launch find each other."""
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
    with _sigterm_raises(processes):
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


@contextmanager
def _sigterm_raises(processes: Processes) -> Iterator[None]:
    """Make SIGTERM, by which torchrun ends the others of a lost process, a :class:`LostProcessError`, once."""

    def raise_lost(*_: object) -> None:
        if processes.together:
            raise processes._lost("told to end")

    before = signal.signal(signal.SIGTERM, raise_lost)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
