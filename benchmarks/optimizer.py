"""One step of RiemannianAdam beside torch's Adam, for many small parameters as a network of HKConv has them.

Run: python benchmarks/optimizer.py --out optimizer.json [--device cuda] [--threads 1]
"""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import geoopt
import torch

from hkconv import Lorentz, RiemannianAdam
from hkconv.engine.devices import describe_device, find_device
from hkconv.engine.reproducibility import versions
from hkconv.geometry import lorentz

SHAPES = ((16, 17), (16,), (4, 16, 17), ())
PARAMETERS = 200
POINTS = (8, 16)  # points in a manifold parameter, and their dimension
ROUNDS = 60
BASE = "torch Adam, foreach"

Step = Callable[[], object]


def make_parameters(curved: int, device: torch.device) -> list[torch.nn.Parameter]:
    """``PARAMETERS`` parameters with gradients, the last ``curved`` of them on the hyperboloid."""
    generator = torch.Generator().manual_seed(0)
    flat = [torch.randn(SHAPES[i % len(SHAPES)], generator=generator) for i in range(PARAMETERS - curved)]
    points = [lorentz.lift(torch.randn(POINTS, generator=generator)) for _ in range(curved)]
    parameters = [torch.nn.Parameter(value.to(device)) for value in flat]
    parameters += [geoopt.ManifoldParameter(value.to(device), manifold=Lorentz()) for value in points]
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator).to(device)
    return parameters


def captured(optimizer: torch.optim.Optimizer) -> Step:
    """The step as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            optimizer.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    return graph.replay


def make_steps(device: torch.device) -> dict[str, Step]:
    """What is compared, by name."""
    steps = {
        BASE: torch.optim.Adam(make_parameters(0, device), foreach=True).step,
        "torch Adam, loop": torch.optim.Adam(make_parameters(0, device), foreach=False).step,
        "RiemannianAdam": RiemannianAdam(make_parameters(0, device)).step,
        "RiemannianAdam, 1 curved": RiemannianAdam(make_parameters(1, device)).step,
        "RiemannianAdam, 10 curved": RiemannianAdam(make_parameters(10, device)).step,
    }
    if device.type == "cuda":
        steps["RiemannianAdam, 10 curved, captured"] = captured(
            RiemannianAdam(make_parameters(10, device), capturable=True)
        )
    return steps


def seconds_of(step: Step, device: torch.device) -> float:
    started = time.perf_counter()
    step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started


def measure(device: torch.device) -> list[dict[str, float | str]]:
    """Median and least milliseconds of each step, and the median of its ratio to torch's foreach Adam.

    The steps take turns, and a ratio is of two steps of one round: a busy machine slows both.
    """
    steps = make_steps(device)
    for _ in range(3):
        for step in steps.values():
            seconds_of(step, device)
    rounds = [{name: seconds_of(step, device) for name, step in steps.items()} for _ in range(ROUNDS)]
    return [
        {
            "step": name,
            "median_ms": 1e3 * statistics.median(times[name] for times in rounds),
            "least_ms": 1e3 * min(times[name] for times in rounds),
            "ratio": statistics.median(times[name] / times[BASE] for times in rounds),
        }
        for name in steps
    ]


def hardware(device: torch.device) -> dict[str, str | int]:
    """What it ran on."""
    return {
        "device": describe_device(device),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, ...")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch on the CPU")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    device = find_device(given.device)
    rows = measure(device)
    print(f"| one step of {PARAMETERS} parameters | median ms | least ms | x {BASE} |\n|---|---|---|---|")
    for row in rows:
        print(f"| {row['step']} | {row['median_ms']:.2f} | {row['least_ms']:.2f} | {row['ratio']:.2f} |")
    if given.out:
        result = {"versions": versions(), "hardware": hardware(device), "parameters": PARAMETERS, "rows": rows}
        given.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
