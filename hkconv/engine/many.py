"""Many networks of one architecture trained at once: every parameter and buffer has a leading axis of networks.

A small network leaves most of a GPU idle, and its host launches one small operation after the other. Here an operation
is that of R networks (:func:`torch.func.vmap`). Networks do not mix: each has its own split, seed, learning rate,
weight decay, dropout and early stopping.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import zip_longest
from typing import Any, cast

import torch
from torch import Tensor
from torch.func import functional_call, vmap
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from hkconv.engine.loop import Best, Epoch, EpochProgress, FitResult
from hkconv.engine.settings import Settings
from hkconv.engine.stacked_adam import StackedAdam
from hkconv.engine.step import Captured, CaptureRefusedError

# Of the largest output: above what another order of summation makes of it in float32.
TOLERANCE = 1e-2


class NotMappedError(Exception):
    """A network of a stack does not answer as it does by itself: it has a state beside parameters and buffers."""


class ManyTask(ABC):
    """Data and objective of several networks: inputs that all of them share, and parts of the data of each one's own.

    ``metric`` names the number to maximise, ``has_test`` says that there are test parts to measure.
    """

    metric: str
    has_test: bool

    @abstractmethod
    def answers(self, network: Callable[..., Tensor]) -> Tensor:
        """Return the outputs of one network; called once for all of them, with operations that are mapped."""

    @abstractmethod
    def losses(self, outputs: Tensor, part: str, networks: Tensor) -> Tensor:
        """Return the mean loss of a part of each network's data, ``(R, ...) -> (R,)``.

        Args:
            outputs: of R networks.
            part: ``"train"``, ``"val"`` or ``"test"``.
            networks: their numbers, ``(R,)``.
        """

    @abstractmethod
    def metrics(self, outputs: Tensor, part: str, networks: Tensor) -> Tensor:
        """Return the metric of a part of each network's data, in float64; arguments as for :meth:`losses`."""


class OwnRate(TorchFunctionMode):
    """Dropout at another rate than the called network's.

    Args:
        common: the called network's rate.
        own: the rate to take for it, ``()``; in a mapped call that of each network.
    """

    def __init__(self, common: float, own: Tensor):
        super().__init__()
        self.common, self.own = common, own

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        called = self._drop if function is F.dropout else function
        return called(*args, **(kwargs or {}))

    def _drop(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p != self.common:
            return F.dropout(x, p, training, inplace)
        return torch.where(torch.rand_like(x) >= self.own, x, 0) / (1 - self.own)


class NetworkStack:
    """R networks as one.

    Args:
        networks: of one architecture, device and floating-point type.
        rates: of dropout of each.

    Attributes: ``weights`` has all Euclidean parameters of network ``r`` in row ``r``; ``points`` are the parameters on
    manifolds and ``buffers`` the buffers by name, each with a leading axis of networks.
    """

    def __init__(self, networks: Sequence[torch.nn.Module], rates: Sequence[float]):
        # A network of rate 0 may have no place for dropout at all.
        self.network = networks[rates.index(max(rates))]
        parameters = dict(self.network.named_parameters())
        self.manifolds = {name: each.manifold for name, each in parameters.items() if hasattr(each, "manifold")}
        self.shapes = {name: each.shape for name, each in parameters.items() if name not in self.manifolds}
        found = [dict(network.named_parameters()) for network in networks]
        self.weights = torch.stack([_row([own[name] for name in self.shapes]) for own in found])
        self.points = {name: _stacked([own[name] for own in found]) for name in self.manifolds}
        buffers = [dict(network.named_buffers()) for network in networks]
        self.buffers = {name: _stacked([own[name] for own in buffers]) for name in buffers[0]}
        self.common_rate = max(rates)
        self.rates = self.weights.new_tensor(rates)

    def leaves(self) -> dict[str, Tensor]:
        """Return the parameters by name, views of what is kept, to be differentiated; points come last."""
        pieces = self.weights.split([shape.numel() for shape in self.shapes.values()], dim=1)
        flat = {name: piece.view(-1, *shape) for (name, shape), piece in zip(self.shapes.items(), pieces)}
        return {name: leaf.detach().requires_grad_() for name, leaf in {**flat, **self.points}.items()}

    def outputs(self, task: ManyTask, parameters: dict[str, Tensor], *, training: bool) -> Tensor:
        """Return the outputs of all networks, ``(R, ...)``."""
        self.network.train(training)

        def call(parameters: dict[str, Tensor], buffers: dict[str, Tensor], rate: Tensor) -> Tensor:
            with self._dropout(rate):
                return task.answers(lambda *inputs: functional_call(self.network, (parameters, buffers), inputs))

        return vmap(call, randomness="different")(parameters, self.buffers, self.rates)

    def _dropout(self, rate: Tensor) -> AbstractContextManager[object]:
        # Also where all rates are equal: on a GPU PyTorch's dropout of an input that networks share cannot be mapped.
        return OwnRate(self.common_rate, rate) if self.common_rate and self.network.training else nullcontext()

    @torch.no_grad()
    def evaluate(self, task: ManyTask) -> Tensor:
        """Return the outputs of all networks in evaluation mode."""
        return self.outputs(task, self.leaves(), training=False)

    def largest(self) -> Tensor:
        """Return the largest absolute value of each network's parameters, NaN or Inf if one of them is, ``(R,)``."""
        tensors = [self.weights, *self.points.values()]
        return torch.stack([tensor.flatten(1).abs().amax(1) for tensor in tensors]).amax(0)

    def state(self) -> list[Tensor]:
        """Return all that an epoch changes, each tensor with a row a network."""
        return [self.weights, *self.points.values(), *self.buffers.values()]

    def load(self, state: Sequence[Tensor], rates: Tensor) -> None:
        """Be the networks of a :meth:`state`, with their rates of dropout."""
        tensors = iter(state)
        self.weights = next(tensors)
        self.points = {name: next(tensors) for name in self.points}
        self.buffers = {name: next(tensors) for name in self.buffers}
        self.rates = rates


def train_many(
    networks: Sequence[torch.nn.Module], task: ManyTask, settings: Sequence[Settings], rates: Sequence[float]
) -> list[FitResult | None]:
    """Train networks of one architecture together, each as :func:`hkconv.engine.loop.train` would train it.

    The weights of the networks themselves are left as they are. Without dropout the steps are those of single trainings
    but for rounding, which may grow over epochs; with it, noise is drawn for all together and differs from theirs. On a
    GPU an epoch is a CUDA graph, unless the networks wait for the GPU within it, and the host waits once an epoch.

    Args:
        networks: one for each setting, on one device.
        task: their data and objective.
        settings: how to train each: ``lr``, ``weight_decay``, ``epochs`` and ``patience``.
        rates: of dropout of each, which is what its layers have.

    Returns:
        Scores and history of each, ``seconds`` being its share of the time of all; None for one that met a number that
        is not finite, which is left to a training by itself and its guard. A :class:`NotMappedError` if the networks
        cannot be trained together; whatever else PyTorch raises where an operation cannot be mapped is passed on.
    """
    started = time.perf_counter()
    course = _ManyCourse(networks, task, settings, rates)
    while course.rows:
        course.train_epoch()
    return course.results(started)


class _ManyCourse:
    """Epochs of several networks until each has stopped; arguments are those of :func:`train_many`.

    ``rows`` are the numbers of the networks that are still in the stack, in its order.
    """

    def __init__(
        self,
        networks: Sequence[torch.nn.Module],
        task: ManyTask,
        settings: Sequence[Settings],
        rates: Sequence[float],
    ):
        self.task, self.settings = task, settings
        self.stack = NetworkStack(networks, rates)
        _check_answers(self.stack, networks, task)
        new = self.stack.weights.new_tensor
        self.adam = StackedAdam(new([own.lr for own in settings]), new([own.weight_decay for own in settings]))
        self.is_used: Tensor | None = None
        self.captured: Captured | None = None
        self.is_refused = not self.stack.weights.is_cuda
        self.progress = [EpochProgress() for _ in networks]
        self.is_finite = [True] * len(networks)
        self.rows = list(range(len(networks)))
        self.numbers = self._index(self.rows)
        self.rates = self.stack.rates
        self.best = [tensor.clone() for tensor in self.stack.state()]

    def train_epoch(self) -> None:
        """Take one step of all networks, measure them, and let go those that are done."""
        if self.captured is None and not self.is_refused:
            self._capture()
        # The one place where the host waits for a GPU.
        found = (self.captured or self._epoch)().t().tolist()
        self._keep_best([place for place, values in enumerate(found) if self._is_best(self.rows[place], *values)])
        running = [place for place, number in enumerate(self.rows) if self._goes_on(number)]
        # A graph is for all rows: to replay it for some costs less than to record another, until most have stopped.
        if len(running) * (2 if self.captured is None else 8) <= len(self.rows):
            self._compact(running)

    def _epoch(self) -> Tensor:
        """Train and measure all networks; return training and validation loss, metric and largest parameter of each."""
        numbers = self.numbers
        losses = self._step(numbers)
        outputs = self.stack.evaluate(self.task)
        val_losses = self.task.losses(outputs, "val", numbers)
        val_metrics = self.task.metrics(outputs, "val", numbers)
        return torch.stack([each.double() for each in (losses, val_losses, val_metrics, self.stack.largest())])

    def _capture(self) -> None:
        """Record an epoch; what the recording does to the networks is taken back."""
        before = [tensor.clone() for tensor in self._state()]

        def undo() -> None:
            for tensor, value in zip_longest(self._state(), before):
                # What the optimizer has begun to remember since then began at zero.
                tensor.zero_() if value is None else tensor.copy_(value)

        try:
            self.captured = Captured(self._epoch, self.stack.network, undo)
        except CaptureRefusedError:
            self.is_refused = True
            undo()

    def _state(self) -> list[Tensor]:
        return [*self.stack.state(), *self.adam.state()]

    def _step(self, numbers: Tensor) -> Tensor:
        stack, leaves = self.stack, self.stack.leaves()
        losses = self.task.losses(stack.outputs(self.task, leaves, training=True), "train", numbers)
        gradients = torch.autograd.grad(losses.sum(), list(leaves.values()), allow_unused=True)
        flat, of_points = gradients[: len(stack.shapes)], gradients[len(stack.shapes) :]
        whole = [torch.zeros_like(leaf) if each is None else each for leaf, each in zip(leaves.values(), flat)]
        if self.is_used is None:
            counts = zip(stack.shapes.values(), flat)
            self.is_used = torch.cat([stack.weights.new_full((shape.numel(),), g is not None) for shape, g in counts])
        gradient = torch.cat([each.reshape(len(self.rows), -1) for each in whole], dim=1)
        self.adam.step(stack.weights, gradient, self.is_used)
        self.adam.step_points(stack.points, of_points, stack.manifolds)
        return losses.detach()

    def _is_best(self, number: int, loss: float, val_loss: float, val_metric: float, largest: float) -> bool:
        """Record an epoch of a network, and tell whether it is its best."""
        if not self._goes_on(number):
            return False
        if not all(map(math.isfinite, (loss, val_loss, largest))):
            self.is_finite[number] = False
            return False
        before = self.progress[number]
        epoch = Epoch(len(before.history) + 1, loss, val_loss, val_metric)
        # The weights of all are kept together.
        after = self.progress[number] = before.after(epoch, dict, 0.0, None)
        return cast(Best, after.best).epoch == epoch.number

    def _goes_on(self, number: int) -> bool:
        return self.is_finite[number] and self.progress[number].goes_on(self.settings[number])

    def _keep_best(self, places: list[int]) -> None:
        if places:
            here, there = self._index(places), self._index([self.rows[place] for place in places])
            for best, tensor in zip(self.best, self.stack.state()):
                best[there] = tensor[here]

    def _compact(self, running: list[int]) -> None:
        """Go on with the networks at some places alone."""
        rows = self._index(running)
        self.stack.load([tensor[rows] for tensor in self.stack.state()], self.stack.rates[rows])
        self.adam.keep(rows)
        self.rows = [self.rows[place] for place in running]
        self.numbers, self.captured = self._index(self.rows), None

    def results(self, started: float) -> list[FitResult | None]:
        """Measure all networks on their test parts, with their best weights."""
        count = len(self.progress)
        scores: list[tuple[float | None, float | None]] = [(None, None)] * count
        if self.task.has_test:
            self.stack.load(self.best, self.rates)
            outputs, numbers = self.stack.evaluate(self.task), self._index(list(range(count)))
            losses = self.task.losses(outputs, "test", numbers)
            metrics = self.task.metrics(outputs, "test", numbers)
            scores = list(zip(metrics.tolist(), losses.double().tolist()))
        seconds = (time.perf_counter() - started) / count
        return [self._result(number, *score, seconds) for number, score in enumerate(scores)]

    def _result(
        self, number: int, test_metric: float | None, test_loss: float | None, seconds: float
    ) -> FitResult | None:
        progress = self.progress[number]
        if not self.is_finite[number] or not (test_loss is None or math.isfinite(test_loss)):
            return None
        best = cast(Best, progress.best)
        scores = best.score.metric, best.score.loss, test_metric, test_loss
        return FitResult(self.task.metric, best.epoch, *scores, seconds, False, progress.history)

    def _index(self, numbers: list[int]) -> Tensor:
        return torch.tensor(numbers, device=self.stack.weights.device, dtype=torch.int64)


@torch.no_grad()
def _check_answers(stack: NetworkStack, networks: Sequence[torch.nn.Module], task: ManyTask) -> None:
    """Raise unless a network of the stack, another one than is called for all, answers as it does by itself."""
    number = 0 if networks[-1] is stack.network else len(networks) - 1
    own, mapped = task.answers(networks[number].eval()), stack.evaluate(task)[number]
    if not own.isfinite().all():
        return  # for its first epoch to find
    if not (own - mapped).abs().max() <= TOLERANCE * own.abs().max().clamp(min=1):
        raise NotMappedError(f"{type(stack.network).__name__} has a state beside its parameters and buffers")


def _row(parameters: Sequence[Tensor]) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in parameters])


def _stacked(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack([tensor.detach().as_subclass(Tensor) for tensor in tensors])
