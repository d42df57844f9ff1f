"""Time and memory of calls, also in a process of their own, and the machine and software they were measured with."""

import ctypes
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hkconv

if TYPE_CHECKING:
    import torch

Call = Callable[[], object]
Timer = Callable[[Call], float]

ROUNDS = 5
LEAST_REPEATS = 3
MOST_REPEATS_A_ROUND = 40

STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")
MEMINFO = Path("/proc/meminfo")
CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))

# Freed tensors above this size go back to the system at once, so that a peak is one of tensors in use.
GLIBC_SETTINGS = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
# A child calls one function with an order, both named in its arguments, and prints what it returns.
CHILD = """
import json, sys
from importlib import import_module
module, _, function = sys.argv[1].partition(":")
print(json.dumps(getattr(import_module(module), function)(**json.loads(sys.argv[2]))))
"""

PACKAGES = ("torch", "torch-geometric", "geoopt", "numpy", "numba", "triton")


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


def time_calls(
    calls: dict[str, Call], budget: float, device: "torch.device", results: dict[str, dict[str, Any]], kind: str
) -> None:
    """Time all calls in turns by :func:`measure`; each name's result gets its :class:`Timing` as ``kind``.

    What was timed before an interrupt is kept.
    """
    samples: dict[str, list[float]] = {}
    try:
        measure(calls, budget, timer_for(device), samples)
    finally:
        for name, seconds in samples.items():
            if seconds:
                results[name][kind] = Timing(tuple(seconds)).as_dict()


def fill_cells(
    document: dict[str, Any],
    cells: Iterable[dict[str, Any]],
    fill: Callable[[dict[str, Any]], None],
    save: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """Return a document of measurements with its cells filled one by one. Ctrl-C ends it in order.

    Args:
        document: gets the cells, and ``interrupted`` if they are not all.
        cells: what is to be measured in each.
        fill: measures a cell, and adds what it finds.
        save: called with the document after every cell, so that a run cut short leaves the rest.
    """
    document["cells"] = []
    try:
        for cell in cells:
            document["cells"].append(cell)
            fill(cell)
            save(document)
    except KeyboardInterrupt:
        document["interrupted"] = True
    save(document)
    return document


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


@dataclass(frozen=True)
class Peak:
    """Bytes at the highest point of a call above those before it, and how they were found.

    ``bytes`` is None where an earlier, higher peak of the process hides this one.
    """

    bytes: int | None
    method: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def peak_rss(call: Callable[[], object]) -> Peak:
    """Growth of the peak resident memory of this process during a call. Meant for a fresh process."""
    before = resident_bytes()
    if forget_peak():
        call()
        return Peak(max(0, peak_resident_bytes() - before), "VmHWM after reset")
    known = peak_resident_bytes()
    call()
    reached = peak_resident_bytes()
    return Peak(reached - before if reached > known else None, "peak RSS without reset")


def peak_cuda(call: Callable[[], object], device: "torch.device") -> Peak:
    """Growth of the allocator's peak during a call."""
    import torch

    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    torch.cuda.synchronize(device)
    return Peak(torch.cuda.max_memory_allocated(device) - before, "CUDA allocator")


def resident_bytes() -> int:
    """Memory that this process holds now; where only its peak is known, that."""
    return _field(STATUS, "VmRSS") or _max_rss()


def peak_resident_bytes() -> int:
    """The most memory that this process has held."""
    return _field(STATUS, "VmHWM") or _max_rss()


def total_bytes() -> int | None:
    """Memory of the machine, or None where the system does not say."""
    return _field(MEMINFO, "MemTotal")


def available_bytes() -> int | None:
    """Memory that a new process could take, or None where the system does not say."""
    found = _field(MEMINFO, "MemAvailable")
    limits = [int(path.read_text()) for path in CGROUP_LIMITS if path.exists() and path.read_text().strip().isdecimal()]
    known = [*limits, *([] if found is None else [found])]
    return min(known, default=None)


def forget_peak() -> bool:
    """Let the peak of this process start anew from what it holds now; whether the system could."""
    try:
        CLEAR_REFS.write_text("5")
    except OSError:
        return False
    return True


def _max_rss() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _field(path: Path, name: str) -> int | None:
    """A line such as ``VmRSS:  1234 kB``, in bytes."""
    if not path.exists():
        return None
    for line in path.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None


def ask(function: str, order: dict[str, Any], limit: float) -> dict[str, Any]:
    """Return what a function gives in a fresh process, where nothing that ran before can hide its peak of memory.

    It also finds out whether something compiles in time: a process can be stopped, a compiler inside ours not.

    Args:
        function: ``"module:function"``.
        order: its keyword arguments, as JSON can hold them.
        limit: seconds after which the process is ended.

    Returns:
        That, or ``failed`` with the reason.
    """
    command = [sys.executable, "-c", CHILD, function, json.dumps(order)]
    # The child finds modules where we do, also where they are not installed.
    environment = {**os.environ, **GLIBC_SETTINGS, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        # This Python and a function of ours; no shell reads the order.
        done = subprocess.run(  # nosec B603
            command, check=False, capture_output=True, text=True, timeout=limit, env=environment
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"was not ready within {limit:g} s"}
    if done.returncode != 0:
        return {"failed": failure_line(done.stderr) or f"its process ended with code {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def failure_line(text: str) -> str:
    """The last line of a traceback, short enough for a table."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


def return_freed_memory() -> None:
    """Let what was freed so far not hide what is taken next."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def describe_machine(device: "torch.device") -> dict[str, Any]:
    """Processor, cores, threads and memory, and the GPU where the device is one."""
    import torch

    from hkconv.engine.devices import cpu_model

    described = {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_bytes": total_bytes(),
    }
    if device.type == "cuda":
        gpu = torch.cuda.get_device_properties(device)
        described |= {"gpu": gpu.name, "gpu_memory_bytes": gpu.total_memory, "cuda": torch.version.cuda}
    return described


def describe_software() -> dict[str, str]:
    """Versions of Python, of this library and of the packages that a time depends on; absent ones are left out."""
    found = {"python": platform.python_version(), "hkconv": hkconv.__version__}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def header(benchmark: str, device: "torch.device", seed: int, protocol: dict[str, Any]) -> dict[str, Any]:
    """Return the first fields of every result file.

    Args:
        benchmark: ``"layers"``, ``"epochs"``, ``"large-graph"`` or ``"mini-batches"``.
        device: where it runs.
        seed: of everything random.
        protocol: how it measures.
    """
    return {
        "benchmark": benchmark,
        "device": device.type,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": describe_machine(device),
        "versions": describe_software(),
        "seed": seed,
        "protocol": protocol,
        "interrupted": False,
    }
