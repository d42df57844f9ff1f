"""The layer benchmark: every variant on every shape, times and memory of all of them from one run."""

import gc
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from hkconv.benchmarking.child import failure_line, probe_memory
from hkconv.benchmarking.graphs import HUB_SHARE, hub_share
from hkconv.benchmarking.machine import header
from hkconv.benchmarking.memory import peak_cuda
from hkconv.benchmarking.shapes import Shape
from hkconv.benchmarking.timing import LEAST_REPEATS, MOST_REPEATS_A_ROUND, ROUNDS, Timing, measure, timer_for
from hkconv.benchmarking.variants import Problem, Step, make_problem, skip_reason

MODES = ("forward", "train")
WARM_UPS = 2

Document = dict[str, Any]
Save = Callable[[Document], None]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class LayerPlan:
    """What to measure.

    Args:
        shapes: of graphs and layers.
        targets: distributions of targets.
        variants: names from :mod:`hkconv.benchmarking.variants`.
        device: where.
        budget: seconds of timing for each shape and distribution, shared by the variants and by both modes.
        memory: whether to measure memory; on the CPU that costs a new process for each variant.
        compile_limit: seconds a compiled variant may take in a process of its own on the CPU.
        growth: shapes of the growth of the fused variant's memory.
        seed: of graphs, points and weights.
    """

    shapes: tuple[Shape, ...]
    targets: tuple[str, ...]
    variants: tuple[str, ...]
    device: torch.device
    budget: float = 60.0
    memory: bool = True
    compile_limit: float = 180.0
    growth: tuple[Shape, ...] = ()
    seed: int = 0


def run_layers(plan: LayerPlan, save: Save = lambda _: None, tell: Tell = lambda _: None) -> Document:
    """Measure what a plan asks for. Ctrl-C ends it in order: the document has what was measured so far.

    Args:
        plan: what to measure.
        save: called with the document after every shape, so that a run cut short leaves the rest.
        tell: called with what is being done.

    Returns:
        The document, as plain data.
    """
    document = {**header("layers", plan.device, plan.seed, _protocol(plan)), "cells": [], "growth": []}
    try:
        for shape in plan.shapes:
            for targets in plan.targets:
                cell = {"shape": asdict(shape), "targets": targets, "variants": {}, "ratios": {}}
                document["cells"].append(cell)
                _measure_cell(cell, shape, targets, plan, tell)
                save(document)
        for shape in plan.growth:
            tell(f"growth: {shape}")
            document["growth"].append({"shape": asdict(shape), **_growth(shape, plan)})
            save(document)
    except KeyboardInterrupt:
        document["interrupted"] = True
    save(document)
    return document


def _protocol(plan: LayerPlan) -> dict[str, Any]:
    return {
        "budget_seconds_a_cell": plan.budget,
        "rounds": ROUNDS,
        "least_repeats": LEAST_REPEATS,
        "most_repeats": ROUNDS * MOST_REPEATS_A_ROUND,
        "warm_ups": WARM_UPS,
        "hub_share_bound": HUB_SHARE,
        "dtype": "float32",
        "memory": "not measured" if not plan.memory else "CUDA allocator" if plan.device.type == "cuda" else "peak RSS",
        "compile_limit_seconds": plan.compile_limit,
    }


def _measure_cell(cell: Document, shape: Shape, targets: str, plan: LayerPlan, tell: Tell) -> None:
    results = cell["variants"] = {name: {} for name in plan.variants}
    for name in plan.variants:
        reason = skip_reason(name, shape, plan.device)
        if reason is None and plan.device.type == "cpu" and (plan.memory or name == "compiled"):
            tell(f"{shape} {targets}: memory of {name}")
            reason = _probe(results[name], name, shape, targets, plan)
        if reason is not None:
            results[name]["skipped"] = reason
    problem = make_problem(shape, targets, plan.seed, plan.device)
    cell["hub_share"] = hub_share(problem.edge_index)
    steps = _warm_steps(results, problem, plan, tell, f"{shape} {targets}")
    _compare_outputs(cell, steps)
    try:
        for mode in MODES:
            tell(f"{shape} {targets}: {mode}")
            _time(results, {name: getattr(step, mode) for name, step in steps.items()}, mode, plan)
    finally:
        cell["ratios"] = ratios(results)


def _probe(result: Document, name: str, shape: Shape, targets: str, plan: LayerPlan) -> str | None:
    """Measure memory in a child; returns why the variant cannot be measured at all, or None."""
    found = probe_memory(name, shape, targets, plan.seed, plan.compile_limit if name == "compiled" else 600)
    if "failed" in found:
        return found["failed"]
    if plan.memory:
        result["memory"] = found
    return None


def _warm_steps(results: Document, problem: Problem, plan: LayerPlan, tell: Tell, where: str) -> dict[str, Step]:
    """The variants that run, each called before; those that fail say why in ``results``."""
    steps: dict[str, Step] = {}
    for name in [name for name, result in results.items() if "skipped" not in result]:
        tell(f"{where}: warm-up of {name}")
        try:
            step = Step(name, problem)
            for _ in range(WARM_UPS):
                step.forward()
                step.train()
            if plan.memory and plan.device.type == "cuda":
                results[name]["memory"] = peak_cuda(step.train, plan.device).as_dict()
            steps[name] = step
        except torch.cuda.OutOfMemoryError:
            results[name]["skipped"] = "out of memory on the GPU"
        # One variant that does not run must not cost the figures of the others; the report says which and why.
        except Exception as error:
            results[name]["skipped"] = f"failed: {failure_line(str(error).splitlines()[0]) or type(error).__name__}"
        # What a failed variant holds must be gone before the next is measured.
        step = None  # type: ignore[assignment]
        free(plan.device)
    return steps


def _compare_outputs(cell: Document, steps: dict[str, Step]) -> None:
    if "fused" in steps and "reference" in steps:
        difference = steps["fused"].forward() - steps["reference"].forward()
        cell["largest_difference_fused_reference"] = difference.abs().max().item()


def _time(results: Document, calls: dict[str, Callable[[], object]], mode: str, plan: LayerPlan) -> None:
    samples: dict[str, list[float]] = {}
    try:
        measure(calls, plan.budget / len(MODES), timer_for(plan.device), samples)
    finally:
        for name, seconds in samples.items():
            if seconds:
                results[name][mode] = Timing(tuple(seconds)).as_dict()


def _growth(shape: Shape, plan: LayerPlan) -> Document:
    """Peak memory of the fused variant alone."""
    reason = skip_reason("fused", shape, plan.device)
    if reason is not None:
        return {"skipped": reason}
    if plan.device.type == "cpu":
        found = probe_memory("fused", shape, "uniform", plan.seed, 600)
        return {"skipped": found["failed"]} if "failed" in found else {"memory": found}
    step = Step("fused", make_problem(shape, "uniform", plan.seed, plan.device))
    step.train()
    return {"memory": peak_cuda(step.train, plan.device).as_dict()}


def ratios(results: Document) -> dict[str, float]:
    """Quotients of two variants of the same run; those with a variant that was not measured are left out."""
    found = {}
    for mode in MODES:
        for name in ("reference", "compiled"):
            found[f"{mode} {name}/fused"] = quotient(results, name, "fused", mode, "median")
    for name in ("reference", "hybonet"):
        found[f"memory fused/{name}"] = quotient(results, "fused", name, "memory", "bytes")
    return {name: value for name, value in found.items() if value is not None}


def quotient(results: Document, above: str, below: str, part: str, figure: str) -> float | None:
    """A figure of one variant over that of another, or None where one is missing."""
    first, second = (results.get(name, {}).get(part, {}).get(figure) for name in (above, below))
    return first / second if first and second else None


def free(device: torch.device) -> None:
    """Give back what nothing uses any more."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
