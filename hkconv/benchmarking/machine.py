"""On which machine and with which software a figure was measured: it is written beside every one."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

import hkconv
from hkconv.benchmarking.memory import total_bytes
from hkconv.engine.devices import cpu_model

PACKAGES = ("torch", "torch-geometric", "geoopt", "numpy", "numba", "triton")


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Processor, cores, threads and memory, and the GPU where the device is one."""
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


def header(benchmark: str, device: torch.device, seed: int, protocol: dict[str, Any]) -> dict[str, Any]:
    """What every result file begins with.

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
