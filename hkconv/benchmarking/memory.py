"""The most memory a call takes beyond what was there before it, on the CPU and on a GPU."""

import resource
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")
MEMINFO = Path("/proc/meminfo")
CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


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
