"""The layer benchmark of ``hkconv bench``: HKConv beside the layers it is compared with, all of them in one run."""

import gc
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

import hkconv
from hkconv.engine.measuring import (
    LEAST_REPEATS,
    MOST_REPEATS_A_ROUND,
    ROUNDS,
    ask,
    available_bytes,
    failure_line,
    fill_cells,
    header,
    peak_cuda,
    peak_rss,
    return_freed_memory,
    time_calls,
)
from hkconv.errors import InputError, unknown_name
from hkconv.geometry.lorentz import lift
from hkconv.nn import HKConv
from hkconv.ops.backends import BACKENDS
from hkconv.options import COUNT, KERNELS, WIDTH

TARGETS = ("uniform", "power-law")
# Without a bound, Zipf's first node would take a tenth of all edges, more than hubs of real graphs do.
HUB_SHARE = 0.03

VARIANTS = ("reference", "compiled", "fused", "hybonet", "gcn", "gat")
EUCLIDEAN = ("gcn", "gat")
# Tensors of size E x K x (n+1) that HKConv in plain PyTorch holds at its peak, counted with the memory probe:
# 16.9 as it is (n = 16 and 64), 8.5 compiled (n = 16).
TENSORS_AT_PEAK = {"reference": 17, "compiled": 9}
SPARE_SHARE = 0.85

MODES = ("forward", "train")
WARM_UPS = 2

Document = dict[str, Any]
Save = Callable[[Document], None]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Shape:
    """A graph of ``nodes`` and ``edges``, and a layer of ``kernels`` kernel points from ``dim`` to ``dim``."""

    nodes: int
    edges: int
    kernels: int
    dim: int

    def __str__(self) -> str:
        return f"{self.nodes},{self.edges},{self.kernels},{self.dim}"


# The size of Chameleon with edges in both directions.
QUICK_SHAPES = (Shape(2277, 62000, 6, 16),)


def parse_shape(text: str) -> Shape:
    """A shape from ``"N,E,K,n"``.

    Args:
        text: four whole numbers of at least 1.

    Returns:
        The shape.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 4 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise InputError(
            f"shape must be four whole numbers N,E,K,n of at least 1, such as 2277,62000,6,16, got {text!r}"
        )
    shape = Shape(*map(int, parts))
    for name, interval in {"nodes": COUNT, "edges": COUNT, "kernels": KERNELS, "dim": WIDTH}.items():
        interval.check(f"{name} of shape {text}", getattr(shape, name))
    # Points and their gradients, edges and how they are drawn, weights and theirs.
    needed = 8 * (shape.nodes * (shape.dim + 5) + 4 * shape.edges + shape.kernels * shape.dim * (shape.dim + 1))
    room = available_bytes()
    if room is not None and needed > room:
        raise InputError(f"shape {text} needs {needed / 1e9:.1f} GB at least, and {room / 1e9:.1f} GB are free")
    return shape


def check_targets(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names, if every one is a known distribution of targets."""
    for name in names:
        if name not in TARGETS:
            raise InputError(f"targets must be {' or '.join(TARGETS)}, got {name!r}")
    return names


def make_edges(nodes: int, edges: int, targets: str, seed: int = 0) -> Tensor:
    """Edges whose sources are uniform; repeats and self loops may occur, as chance has it.

    With ``"power-law"`` targets, the node of rank r is a target with a probability in proportion to 1/r
    (Zipf's law with exponent 1), but at most ``HUB_SHARE``, where the nodes are many enough for that. Ranks are
    dealt to nodes at random, so that hubs do not lie side by side in memory.

    Args:
        nodes: number of nodes.
        edges: number of edges.
        targets: ``"uniform"`` or ``"power-law"``.
        seed: decides everything.

    Returns:
        ``(2, edges)`` int64, source to target, on the CPU.
    """
    check_targets((targets,))
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(nodes, (edges,), generator=generator)
    if targets == "uniform":
        return torch.stack([source, torch.randint(nodes, (edges,), generator=generator)])
    bounds = target_shares(nodes).cumsum(0)
    drawn = torch.rand(edges, generator=generator, dtype=torch.float64) * bounds[-1]
    # A draw may round up to the last bound itself.
    rank = torch.searchsorted(bounds, drawn, right=True).clamp_(max=nodes - 1)
    return torch.stack([source, torch.randperm(nodes, generator=generator)[rank]])


def target_shares(nodes: int) -> Tensor:
    """The probability of each rank to be a target under ``"power-law"``, float64."""
    if nodes * HUB_SHARE <= 1:
        return torch.full((nodes,), 1 / nodes, dtype=torch.float64)
    share = 1 / torch.arange(1, nodes + 1, dtype=torch.float64)
    share /= share.sum()
    hubs = 0
    # What the bound takes from the hubs goes to the others in proportion, which may make a hub of the next one.
    while share[hubs] > HUB_SHARE:
        hubs += int((share[hubs:] > HUB_SHARE).sum())
        share[:hubs] = HUB_SHARE
        share[hubs:] *= (1 - hubs * HUB_SHARE) / share[hubs:].sum()
    return share


def hub_share(edge_index: Tensor) -> float:
    """The share of all edges that end at the most frequent target."""
    return edge_index[1].bincount().max().item() / edge_index.size(1)


@dataclass(frozen=True)
class Problem:
    """Points on a random graph; ``points`` are ``(N, n+1)``, spread about one unit around the origin."""

    shape: Shape
    points: Tensor
    edge_index: Tensor
    seed: int


def make_problem(shape: Shape, targets: str, seed: int, device: torch.device) -> Problem:
    """The same problem for the same arguments, on any device."""
    generator = torch.Generator().manual_seed(seed)
    space = torch.randn(shape.nodes, shape.dim, generator=generator) / shape.dim**0.5
    edge_index = make_edges(shape.nodes, shape.edges, targets, seed)
    return Problem(shape, lift(space).to(device), edge_index.to(device), seed)


class MeasuredStep:
    """One variant on one problem: its forward pass, and forward with all gradients.

    Args:
        name: one of ``VARIANTS``.
        problem: what to run it on.
    """

    def __init__(self, name: str, problem: Problem):
        shape, points = problem.shape, problem.points
        # The same weights for every form of HKConv, so that their outputs can be compared.
        torch.manual_seed(problem.seed)
        layer = make_layer(name, shape).to(points.device)
        self.parameters = list(layer.parameters())
        self.x = (points[:, 1:] if name in EUCLIDEAN else points).clone().requires_grad_()
        self.edges = hkconv.neighbors(problem.edge_index, shape.nodes) if name == "fused" else problem.edge_index
        self.cotangent = torch.randn_like(self.x)
        self.layer: Callable[..., Tensor] = layer
        if name == "compiled":
            # Every instance compiles the same forward; without this the ninth would be refused.
            torch.compiler.reset()
            self.layer = torch.compile(layer, dynamic=False, fullgraph=True)

    @torch.no_grad()
    def forward(self) -> Tensor:
        """The output, as for inference."""
        return self.layer(self.x, self.edges)

    def train(self) -> tuple[Tensor, ...]:
        """The gradients of a fixed linear function of the output, to the input and to all parameters."""
        out = self.layer(self.x, self.edges)
        return torch.autograd.grad(out, [self.x, *self.parameters], self.cotangent)


def make_layer(name: str, shape: Shape) -> torch.nn.Module:
    """The layer of a variant, from ``shape.dim`` to ``shape.dim``."""
    if name in TENSORS_AT_PEAK:
        return HKConv(shape.dim, shape.dim, shape.kernels, backend="reference")
    if name == "fused":
        return HKConv(shape.dim, shape.dim, shape.kernels, backend="auto")
    if name == "hybonet":
        from hkconv.models.baselines.hybonet import HyboNetConv

        return HyboNetConv(shape.dim, shape.dim)
    from torch_geometric.nn import GATConv, GCNConv

    return {"gcn": GCNConv, "gat": GATConv}[name](shape.dim, shape.dim)


def check_variants(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names, if every one is a variant and none comes twice."""
    for name in names:
        if name not in VARIANTS:
            raise unknown_name("variant", name, VARIANTS)
    if not names or len(set(names)) < len(names):
        raise InputError(f"variants must be one or more of {', '.join(VARIANTS)}, each once, got {','.join(names)!r}")
    return names


def skip_reason(name: str, shape: Shape, device: torch.device, available: int | None = None) -> str | None:
    """Why a variant cannot be measured, or None.

    Args:
        name: one of ``VARIANTS``.
        shape: of the problem.
        device: where it would run. On a GPU memory is not estimated: there running out of it is an error that can
            be caught, where on a CPU the system ends the process.
        available: bytes of memory; asked of the system by default.
    """
    if name == "fused" and device.type not in BACKENDS:
        return f"no fused backend for {device.type} in this version"
    if name in TENSORS_AT_PEAK and device.type == "cpu":
        available = available_bytes() if available is None else available
        needed = peak_bytes(name, shape)
        if available is not None and needed > SPARE_SHARE * available:
            return f"would need about {needed / 1e9:.0f} GB of memory, {available / 1e9:.0f} GB are free"
    return None


def peak_bytes(name: str, shape: Shape) -> int:
    """About the peak memory of forward and backward of HKConv in plain PyTorch, ``"compiled"`` or not, float32."""
    return 4 * TENSORS_AT_PEAK[name] * shape.edges * shape.kernels * (shape.dim + 1)


@dataclass(frozen=True)
class LayerPlan:
    """Layers, shapes and devices to measure.

    Args:
        shapes: of graphs and layers.
        targets: distributions of targets.
        variants: of ``VARIANTS``.
        device: where.
        budget: seconds of timing for each shape and distribution, shared by the variants and by both modes.
        memory: whether to measure memory; on the CPU that costs a new process for each variant.
        compile_limit: seconds a compiled variant may take in a process of its own on the CPU.
        seed: of graphs, points and weights.
    """

    shapes: tuple[Shape, ...]
    targets: tuple[str, ...]
    variants: tuple[str, ...]
    device: torch.device
    budget: float = 60.0
    memory: bool = True
    compile_limit: float = 180.0
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
    cells = (
        {"shape": asdict(shape), "targets": targets, "variants": {}, "ratios": {}}
        for shape in plan.shapes
        for targets in plan.targets
    )
    return fill_cells(document, cells, lambda cell: _measure_cell(cell, plan, tell), save)


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


def _measure_cell(cell: Document, plan: LayerPlan, tell: Tell) -> None:
    shape, targets = Shape(**cell["shape"]), cell["targets"]
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
    steps: dict[str, MeasuredStep] = {}
    for name in [name for name, result in results.items() if "skipped" not in result]:
        tell(f"{shape} {targets}: warm-up of {name}")
        step = warm_up(partial(MeasuredStep, name, problem), results[name], plan.device, memory=plan.memory)
        if step is not None:
            steps[name] = step
    _compare_outputs(cell, steps)
    try:
        time_steps(results, steps, plan.budget, plan.device, lambda mode: tell(f"{shape} {targets}: {mode}"))
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


def warm_up(make: Callable[[], Any], result: Document, device: torch.device, *, memory: bool) -> Any:
    """Return the step that ``make`` builds, run before in both modes; or None, and ``result`` says why it does not run.

    Args:
        make: builds something with the methods ``forward`` and ``train``.
        result: gets the memory of a training step on a GPU, or the reason.
        device: where it runs.
        memory: whether to measure memory.
    """
    step = None
    try:
        step = make()
        for _ in range(WARM_UPS):
            step.forward()
            step.train()
        if memory and device.type == "cuda":
            result["memory"] = peak_cuda(step.train, device).as_dict()
    except torch.cuda.OutOfMemoryError:
        step, result["skipped"] = None, "out of memory on the GPU"
    # One variant that does not run must not cost the figures of the others; the report says which and why.
    except Exception as error:
        lines = str(error).splitlines() or [""]
        step, result["skipped"] = None, f"failed: {failure_line(lines[0]) or type(error).__name__}"
    # What a failed variant holds must be gone before the next is measured.
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return step


def time_steps(results: Document, steps: Mapping[str, Any], budget: float, device: torch.device, tell: Tell) -> None:
    """Time both modes of all steps in turns; what an interrupt leaves is kept.

    Args:
        results: of each name, gets the times.
        steps: warmed up, by name.
        budget: seconds, shared by the steps and by both modes.
        device: where they run.
        tell: called with each mode.
    """
    for mode in MODES:
        tell(mode)
        calls = {name: getattr(step, mode) for name, step in steps.items()}
        time_calls(calls, budget / len(MODES), device, results, mode)


def _compare_outputs(cell: Document, steps: dict[str, MeasuredStep]) -> None:
    if "fused" in steps and "reference" in steps:
        difference = steps["fused"].forward() - steps["reference"].forward()
        cell["largest_difference_fused_reference"] = difference.abs().max().item()


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
    return ask(f"{__name__}:measure_here", order, limit)


def measure_here(variant: str, shape: dict[str, int], targets: str, seed: int) -> dict[str, Any]:
    """Measure what :func:`probe_memory` returns, in this process: inputs exist, everything is compiled."""
    given = Shape(**shape)
    step = MeasuredStep(variant, make_problem(given, targets, seed, torch.device("cpu")))
    # Some layers sort the edges when they first see them. What is compiled is compiled for gradients apart.
    step.forward()
    if variant == "compiled":
        step.train()
    else:
        tiny = replace(given, nodes=min(given.nodes, 64), edges=min(given.edges, 512))
        MeasuredStep(variant, make_problem(tiny, targets, seed, torch.device("cpu"))).train()
    return_freed_memory()
    return peak_rss(step.train).as_dict()
