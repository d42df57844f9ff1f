"""Numbers that are not finite: where they came from, the way back, a smaller learning rate once, and then the end.

The guard looks at what the host has anyway at the end of a window of steps, such as an epoch: the losses, the norms of
clipped gradients, the validation loss and the largest parameter. A gradient that is not finite has made a parameter so
by then.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain, islice, zip_longest
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from hkconv.errors import InputError

if TYPE_CHECKING:
    from hkconv.engine.loop import Course
    from hkconv.engine.step import Step


def largest_parameter(model: torch.nn.Module) -> Tensor:
    """The largest absolute value of all parameters, NaN or Inf if one of them is.

    Returns:
        One float64 number on the model's device, which nobody has waited for.
    """
    parameters = [parameter.detach() for parameter in model.parameters() if parameter.numel() > 0]
    return torch.stack(torch._foreach_norm(parameters, math.inf)).max().double().view(1)


def non_finite_parameter(model: torch.nn.Module) -> str | None:
    """The first parameter that holds a NaN or Inf, in words; None if all are finite."""
    for name, tensor in model.named_parameters():
        if not tensor.isfinite().all():
            return f"parameter {name!r}"
    return None


def first_non_finite(model: torch.nn.Module, forward: Callable[[], object]) -> str:
    """The first place in a model that holds or makes a NaN or Inf.

    Args:
        model: the network.
        forward: runs the network once more, as it ran when the loss was found not to be finite.

    Returns:
        The place in words: a parameter, a module, or the loss itself.
    """
    parameter = non_finite_parameter(model)
    if parameter is not None:
        return parameter
    with Watch(model) as watch, torch.no_grad():
        forward()
    return watch.output or "the loss"


class Watch:
    """Notes what is first not finite while a network runs inside its block.

    Each module reads an alias of its inputs. A gradient that arrives there has come through this module, whoever else
    reads the same tensor.

    Args:
        model: the network.
    """

    def __init__(self, model: torch.nn.Module):
        self.model = model
        #: The first module whose output is not finite, in words.
        self.output: str | None = None
        #: The first gradient that is not finite, of a parameter or through a module, in words.
        self.gradient: str | None = None
        self.handles: list[RemovableHandle] = []

    def __enter__(self) -> "Watch":
        for name, module in self.model.named_modules():
            name = name or type(self.model).__name__
            self.handles.append(module.register_forward_pre_hook(self._watch_gradients_through(name)))
            self.handles.append(module.register_forward_hook(self._watch_output_of(name)))
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad:
                self.handles.append(parameter.register_hook(self._look(f"the gradient of parameter {name!r}")))
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self.handles:
            handle.remove()

    def _watch_output_of(self, name: str) -> Callable[..., None]:
        def hook(_module: torch.nn.Module, _inputs: tuple, output: object) -> None:
            parts = output if isinstance(output, (tuple, list)) else (output,)
            if self.output is None and not all(map(_is_finite, parts)):
                self.output = f"the output of module {name!r}"

        return hook

    def _watch_gradients_through(self, name: str) -> Callable[..., tuple]:
        look = self._look(f"the gradient through module {name!r}")

        def alias(value: object) -> object:
            if not isinstance(value, Tensor) or not value.requires_grad:
                return value
            own = value.view_as(value)
            own.register_hook(look)
            return own

        def hook(_module: torch.nn.Module, inputs: tuple) -> tuple:
            return tuple(map(alias, inputs))

        return hook

    def _look(self, place: str) -> Callable[[Tensor], None]:
        def look(gradient: Tensor) -> None:
            if self.gradient is None and not _is_finite(gradient):
                self.gradient = place

        return look


def _is_finite(value: object) -> bool:
    return not isinstance(value, Tensor) or bool(value.isfinite().all())


class Rewind:
    """Copies of all that an epoch changes, on the device where it is: saving them waits for nothing.

    Args:
        model: its parameters and buffers.
        optimizer: its state.
        generator: what batches are drawn with. The default generators of the CPU and of the model's GPU are kept
            too.
        scaler: of the loss, if there is one. Its state is on the host, which waits for it in every step anyway.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator | None = None,
        scaler: torch.amp.GradScaler | None = None,
    ):
        self.model, self.optimizer, self.generator, self.scaler = model, optimizer, generator, scaler
        self.generators = [torch.default_generator] if generator is None else [torch.default_generator, generator]
        device = next(model.parameters()).device
        if device.type == "cuda":
            self.generators.append(torch.cuda.default_generators[device.index])
        self.copies: list[Tensor] = []
        self.draws: list[Tensor] = []

    @torch.no_grad()
    def save(self) -> None:
        """Remember the present."""
        self.draws = [generator.get_state() for generator in self.generators]
        if self.scaler is not None:
            self.scaling = self.scaler.state_dict()
        tensors = self._tensors()
        if len(tensors) == len(self.copies):
            _copy(tensors, self.copies)
        else:
            self.copies = [tensor.clone() for tensor in tensors]

    @torch.no_grad()
    def restore(self) -> None:
        """Go back, in place: what points at the parameters still does."""
        for generator, state in zip(self.generators, self.draws):
            generator.set_state(state)
        if self.scaler is not None:
            self.scaler.load_state_dict(self.scaling)
        tensors = self._tensors()
        known = len(self.copies)
        _copy(self.copies, tensors[:known])
        # What the optimizer has begun to count since then began at zero.
        for tensor in tensors[known:]:
            tensor.zero_()

    def _tensors(self) -> list[Tensor]:
        """Everything that is kept. The optimizer's state comes last, for it grows with the first gradients."""
        states = (tensor for state in self.optimizer.state.values() for tensor in state.values())
        return list(chain(self.model.parameters(), self.model.buffers(), states))


def _copy(sources: list[Tensor], targets: list[Tensor]) -> None:
    """Copy all at once, device by device: one launch copies many tensors if they share one."""
    groups: dict[tuple, tuple[list[Tensor], list[Tensor]]] = defaultdict(lambda: ([], []))
    for source, target in zip(sources, targets):
        kin_sources, kin_targets = groups[source.device, source.dtype]
        kin_sources.append(source)
        kin_targets.append(target)
    for kin_sources, kin_targets in groups.values():
        torch._foreach_copy_(kin_targets, kin_sources)


class DivergenceError(InputError):
    """A training that is no longer finite, after it was put right once.

    ``best`` is what it had reached before, None if it had not finished an epoch: from :func:`~hkconv.engine.loop.train`
    a result, from :func:`~hkconv.tasks.run.train_cell` a training. The model then has the weights of its best epoch.
    That of a training by steps has no ``best``: its weights are in the run's folder.
    """

    best: Any = None


class FaultError(Exception):
    """A number of a training is not finite; says which, and where that began."""


class Guard:
    """Finds where a window of steps went wrong, and takes it back with half the learning rate, once.

    Several ranks call it together. They have the same numbers and so decide alike; which module was the first, only one
    of them may have seen, whose part of a batch it was.

    Args:
        course: the windows.
        step: takes a step.
        rewind: goes back to the start of the window, which was finite.
    """

    def __init__(self, course: "Course", step: "Step", rewind: "Rewind"):
        self.course, self.step, self.rewind = course, step, rewind
        self.model, self.processes = step.model, step.processes

    def check_steps(self, losses: list[float], norms: list[float], largest_parameter: float) -> None:
        """Raise a :class:`FaultError` unless all of these are finite.

        Args:
            losses: of the steps of the window.
            norms: of their gradients, if they were computed.
            largest_parameter: after them, in absolute value.
        """
        for number, values in enumerate(zip_longest(losses, norms, fillvalue=0.0)):
            for name, value in zip(("training loss", "gradient's norm"), values):
                if not math.isfinite(value):
                    raise self._fault(f"the {name} became {value} {self.course.when('step', number)}")
        if not math.isfinite(largest_parameter):
            raise self._fault(f"a parameter became {largest_parameter} {self.course.when('parameter')}")

    def check_validation(self, loss: float, validate: Callable[[], object]) -> None:
        """Raise a :class:`FaultError` unless the validation loss is finite; ``validate`` computes it once more."""
        if math.isfinite(loss):
            return
        fault = f"the validation loss became {loss} {self.course.when('validation')}"
        with Watch(self.model) as watch, torch.no_grad():
            validate()
        place = non_finite_parameter(self.model) or self._seen_by_any(watch.output) or "the loss"
        raise FaultError(f"{fault}; first not finite: {place}")

    def recover(self, fault: FaultError) -> str:
        """Go back to the start of the window and halve the learning rate; the second time raise.

        Returns:
            What was done, in words.
        """
        self.go_back()
        course = self.course
        if course.recovery is not None:
            raise DivergenceError(f"{fault}; before that, {course.recovery}; {course.advice}")
        if non_finite_parameter(self.model) is not None:
            raise DivergenceError(f"{fault}; there is no finite state to go back to; {course.advice}")
        done = course.recovery = f"{fault}; went back to {course.halve_rate()}"
        self.step.rate_changed()
        return done

    def go_back(self) -> None:
        """Take back what was done of the window: weights, optimizer, random numbers, and the place in the data."""
        self.course.go_back()
        self.rewind.restore()

    def _fault(self, what: str) -> FaultError:
        return FaultError(f"{what}; first not finite: {self._retrace()}")

    def _retrace(self) -> str:
        """Take the steps of the window again, up to the first with something that is not finite, and say what it is.

        They are taken one by one and watched closely, whatever replayed or compiled them before.
        """
        steps = self.course.taken
        self.go_back()
        self.model.train()
        parameter = non_finite_parameter(self.model)
        for name, batches, lr in islice(self.course.window(again=True), steps):
            if parameter is not None:
                return f"{parameter} before {name}"
            place = self._watched_step(batches, lr)
            if place is not None:
                return f"{place} in {name}"
        return "nothing, when the steps were taken once more"

    def _watched_step(self, batches: Sequence[Any], lr: float | None) -> str | None:
        """Take one more step and return what is not finite after it, None if all is.

        A gradient counts if it reached a parameter: that of a scaled loss may be infinite, and its step is left out.
        """
        with Watch(self.model) as watch:
            loss, norm = self.step.unrecorded(batches, lr)
        output = self._seen_by_any(watch.output)
        if output is not None or not loss.isfinite():
            return output or "the loss"
        gradient, parameter = self._seen_by_any(watch.gradient), non_finite_parameter(self.model)
        if parameter is None and (norm is None or norm.isfinite()):
            return None
        return gradient or parameter or "the gradient's norm"

    def _seen_by_any(self, place: str | None) -> str | None:
        """Return what the first rank has seen that has seen something."""
        return next((found for found in self.processes.all(place) if found is not None), None)
