"""What happens when a number of a translator's training is not finite: some steps back, smaller ones, and then the end.

The policy is that of :mod:`hkconv.engine.guard`, with lines of the log in the place of epochs: what comes to the host
for a line is what is looked at.
"""

import math
from collections.abc import Callable

from hkconv.engine.distributed import ALONE, Processes
from hkconv.engine.guard import DivergenceError, Watch, non_finite_parameter
from hkconv.language.walk import Walk

ADVICE = "a smaller lr or a longer warmup may help"


class FaultError(Exception):
    """A number of a training is not finite; says which, and where that began."""


class Guard:
    """Finds where steps went wrong, and takes them back with half the learning rate, once.

    Several processes call it together. They have the same numbers and so decide alike; which module was the first,
    only one of them may have seen, whose rows of a batch they were.

    Args:
        walk: the steps; what it has kept was good.
        validate: runs the model over the validation data.
        processes: which train together.
    """

    def __init__(self, walk: Walk, validate: Callable[[], object], processes: Processes = ALONE):
        self.walk, self.validate, self.processes = walk, validate, processes
        self.model = walk.step.model

    def check_steps(self, losses: list[float], norms: list[float], largest_parameter: float) -> None:
        """Raise a :class:`FaultError` unless all of these are finite.

        Args:
            losses: of the last steps, up to the present one.
            norms: of their gradients.
            largest_parameter: after them, in absolute value.
        """
        fault = self._first_fault(losses, norms, largest_parameter)
        if fault is not None:
            what, step = fault
            raise FaultError(f"{what} step {step}; first not finite: {self._retrace(step)}")

    def check_validation(self, loss: float) -> None:
        """Raise a :class:`FaultError` unless the validation loss is finite."""
        if math.isfinite(loss):
            return
        with Watch(self.model) as watch:
            self.validate()
        place = self._seen_by_any(watch.output) or "the loss"
        step = self.walk.progress.step
        raise FaultError(f"the validation loss became {loss} after step {step}; first not finite: {place}")

    def recover(self, fault: FaultError) -> str:
        """Go back to what was good and halve the learning rate; the second time raise. Returns what was done."""
        self.walk.go_back()
        progress = self.walk.progress
        if progress.guard is not None:
            raise DivergenceError(f"{fault}; before that, {progress.guard}; {ADVICE}")
        if non_finite_parameter(self.model) is not None:
            raise DivergenceError(f"{fault}; there is no finite state to go back to; {ADVICE}")
        done = f"{fault}; went back to step {progress.step} with half the learning rate"
        progress.guard = done
        self.walk.keep()
        return done

    def _first_fault(self, losses: list[float], norms: list[float], largest_parameter: float) -> tuple[str, int] | None:
        """What was not finite first, and in which step."""
        last = self.walk.progress.step
        for step, (loss, norm) in enumerate(zip(losses, norms), start=last - len(losses) + 1):
            for name, value in (("training loss", loss), ("gradient's norm", norm)):
                if not math.isfinite(value):
                    return f"the {name} became {value} in", step
        return None if math.isfinite(largest_parameter) else (f"a parameter became {largest_parameter} by", last)

    def _retrace(self, last: int) -> str:
        """Take the steps up to a number again, watch that one closely, and say what is not finite."""
        self.walk.go_back()
        parameter = non_finite_parameter(self.model)
        while parameter is None and self.walk.progress.step < last - 1:
            self.walk.take()
            parameter = non_finite_parameter(self.model)
        if parameter is not None:
            return f"{parameter} after step {self.walk.progress.step}"
        return self._watched_step() or "nothing, when the steps were taken once more"

    def _watched_step(self) -> str | None:
        """What is not finite after one more step, None if all is."""
        with Watch(self.model) as watch:
            loss, norm = self.walk.take(unrecorded=True)
        if not loss.isfinite():
            return self._seen_by_any(watch.output) or "the loss"
        if not norm.isfinite():
            return self._seen_by_any(watch.gradient) or "the gradient's norm"
        return non_finite_parameter(self.model)

    def _seen_by_any(self, place: str | None) -> str | None:
        """What the first process has seen that has seen something."""
        return next((found for found in self.processes.all(place) if found is not None), None)
