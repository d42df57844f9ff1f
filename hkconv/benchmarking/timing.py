"""Times of several functions, taken in turns, so that whatever disturbs the machine disturbs all of them alike."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Call = Callable[[], object]
Timer = Callable[[Call], float]

ROUNDS = 5
LEAST_REPEATS = 3
MOST_REPEATS_A_ROUND = 40


@dataclass(frozen=True)
class Timing:
    """Seconds of repeated calls."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one; half of the calls were at least as fast."""
        return statistics.median(self.seconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The bounds of the middle half of the calls."""
        if len(self.seconds) == 1:
            return self.seconds[0], self.seconds[0]
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return low, high

    def as_dict(self) -> dict[str, Any]:
        """As JSON can hold it, with every single time."""
        low, high = self.quartiles
        return {
            "median": self.median,
            "min": min(self.seconds),
            "quartiles": [low, high],
            "iqr": high - low,
            "repeats": len(self.seconds),
            "seconds": list(self.seconds),
        }


def measure(calls: dict[str, Call], budget: float, timer: Timer, samples: dict[str, list[float]]) -> None:
    """Time all calls in turns: a round gives each its share of the budget, and at least one repeat.

    A call that has spent its share is left out of the later rounds once it has ``LEAST_REPEATS``, so that a slow
    one cannot take forever.

    Args:
        calls: what to time, by name, warmed up.
        budget: seconds for all of them together, as far as the least number of repeats allows.
        timer: runs a call and returns its seconds.
        samples: every time is added here as it is taken, so that an interrupt loses none.
    """
    share = budget / max(len(calls), 1)
    for name in calls:
        samples.setdefault(name, [])
    for number in range(ROUNDS):
        for name, call in calls.items():
            if number < LEAST_REPEATS or sum(samples[name]) < share:
                _fill(samples[name], call, share / ROUNDS, timer)


def _fill(seconds: list[float], call: Call, share: float, timer: Timer) -> None:
    spent = 0.0
    for _ in range(MOST_REPEATS_A_ROUND):
        seconds.append(timer(call))
        spent += seconds[-1]
        if spent + seconds[-1] > share:
            return


def timer_for(device: "torch.device") -> Timer:
    """A timer that waits for the device: before a call, and after it."""
    return _cuda_timer(device) if device.type == "cuda" else _wall_timer


def _wall_timer(call: Call) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _cuda_timer(device: "torch.device") -> Timer:
    import torch

    def timer(call: Call) -> float:
        torch.cuda.synchronize(device)
        # Wall time and not events: a call that waits for the device inside counts with what it waits for.
        started = time.perf_counter()
        call()
        torch.cuda.synchronize(device)
        return time.perf_counter() - started

    return timer
