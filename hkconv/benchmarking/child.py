"""Memory of one variant, measured in a fresh process, where nothing that ran before can hide its peak.

Also the place to find out whether a variant compiles in time: a process can be stopped, a compiler inside ours not.
"""

import ctypes
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import hkconv
from hkconv.benchmarking.shapes import Shape

# Freed tensors above this size go back to the system at once, so that a peak is one of tensors in use.
GLIBC_SETTINGS = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


def probe_memory(variant: str, shape: Shape, targets: str, seed: int, limit: float) -> dict[str, Any]:
    """Peak extra memory of one forward and backward pass on the CPU.

    Args:
        variant: one of the variants.
        shape: of the problem.
        targets: distribution of targets.
        seed: of the problem.
        limit: seconds after which the child is ended.

    Returns:
        ``bytes`` and ``method``, or ``failed`` with the reason.
    """
    order = {"variant": variant, "shape": asdict(shape), "targets": targets, "seed": seed}
    return ask("hkconv.benchmarking.child", order, limit)


def ask(module: str, order: dict[str, Any], limit: float) -> dict[str, Any]:
    """What a module prints as JSON in its last line when it is run in a process of its own with an order as JSON.

    Returns:
        That, or ``failed`` with the reason.
    """
    command = [sys.executable, "-m", module, json.dumps(order)]
    environment = _environment()
    try:
        # This Python and a module of ours; no shell reads the order.
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


def measure_here(variant: str, shape: Shape, targets: str, seed: int) -> dict[str, Any]:
    """What :func:`probe_memory` returns, for this process: inputs and neighbours exist, everything is compiled."""
    import torch

    from hkconv.benchmarking.memory import peak_rss
    from hkconv.benchmarking.variants import Step, make_problem

    step = Step(variant, make_problem(shape, targets, seed, torch.device("cpu")))
    # Some layers sort the edges when they first see them. What is compiled is compiled for gradients apart.
    step.forward()
    if variant == "compiled":
        step.train()
    else:
        tiny = replace(shape, nodes=min(shape.nodes, 64), edges=min(shape.edges, 512))
        Step(variant, make_problem(tiny, targets, seed, torch.device("cpu"))).train()
    return_freed_memory()
    return peak_rss(step.train).as_dict()


def return_freed_memory() -> None:
    """Let what was freed so far not hide what is taken next."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _environment() -> dict[str, str]:
    # The child must find the package that we are, also where that is not an installed one.
    path = [str(Path(hkconv.__file__).parents[1]), os.environ.get("PYTHONPATH")]
    return {**os.environ, **GLIBC_SETTINGS, "PYTHONPATH": os.pathsep.join(filter(None, path))}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(json.dumps(measure_here(given["variant"], Shape(**given["shape"]), given["targets"], given["seed"])))
