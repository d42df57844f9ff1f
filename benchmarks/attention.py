"""HKConv's attention beside its plain form, HyboNet's, and torch's: time and memory, all variants in one run.

Run: python benchmarks/attention.py --device cpu
"""

import argparse
import os
import sys
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

# OpenMP reads this once, when PyTorch is loaded; threads that spin while they wait disturb what runs beside them.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.engine.devices import find_device
from hkconv.engine.files import write_json
from hkconv.engine.measuring import (
    LEAST_REPEATS,
    ROUNDS,
    ask,
    available_bytes,
    fill_cells,
    header,
    peak_rss,
    return_freed_memory,
)
from hkconv.errors import InputError
from hkconv.experiments.bench import MODES, WARM_UPS, Document, Save, Tell, quotient, time_steps, warm_up
from hkconv.geometry.lorentz import lift
from hkconv.nn import HKAttention, HTransformerEncoderLayer

RESULTS = Path(__file__).parent / "results"
VARIANTS = ("reference", "kernel", "centroid", "euclidean", "kernel-layer", "centroid-layer")
LENGTHS = (64, 256, 1024)
HEADS = {64: 4, 128: 8, 256: 8}
KERNELS = 4
# Of a batch: what a GPU needs to be busy, and what two cores do in seconds.
POSITIONS = {"cpu": 1024, "cuda": 4096}

# Tensors of size B x H x T x T x K x (n+1) that the plain form holds at its peak: 16.2 by the memory probe.
TENSORS_AT_PEAK = 17
SPARE_SHARE = 0.85


@dataclass(frozen=True)
class Sequences:
    """``batch`` sequences of ``length`` positions in dimension ``dim``, with the paper's number of heads."""

    batch: int
    length: int
    dim: int

    def __str__(self) -> str:
        return f"{self.batch} x {self.length}, d = {self.dim}"


class EuclideanAttention(torch.nn.Module):
    """Multi-head attention by torch's ``scaled_dot_product_attention``, ``(B, T, dim) -> (B, T, dim)``."""

    def __init__(self, dim: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.project, self.out = torch.nn.Linear(dim, 3 * dim), torch.nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.project(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))


def make_layer(name: str, dim: int) -> torch.nn.Module:
    """The layer of a variant; those that end in ``-layer`` are whole layers of an encoder."""
    if name == "euclidean":
        return EuclideanAttention(dim, HEADS[dim])
    aggregation = "centroid" if name.startswith("centroid") else "kernel"
    options: dict[str, Any] = {"kernel_size": KERNELS, "aggregation": aggregation}
    if name.endswith("-layer"):
        return HTransformerEncoderLayer(dim, HEADS[dim], 4 * dim, **options)
    return HKAttention(dim, HEADS[dim], backend="reference" if name == "reference" else "auto", **options)


class Step:
    """One variant on random sequences: its forward pass, and forward with all gradients."""

    def __init__(self, name: str, sequences: Sequences, seed: int, device: torch.device):
        torch.manual_seed(seed)
        self.layer = make_layer(name, sequences.dim).to(device)
        self.parameters = list(self.layer.parameters())
        space = torch.randn(sequences.batch, sequences.length, sequences.dim) / sequences.dim**0.5
        x = space if name == "euclidean" else lift(space)
        self.x = x.to(device).requires_grad_()
        self.cotangent = torch.randn_like(self.x)

    @torch.no_grad()
    def forward(self) -> Tensor:
        """The output, as for inference."""
        return self.layer(self.x)

    def train(self) -> tuple[Tensor, ...]:
        """The gradients of a fixed linear function of the output, to the input and to all parameters."""
        return torch.autograd.grad(self.layer(self.x), [self.x, *self.parameters], self.cotangent)


@dataclass(frozen=True)
class AttentionPlan:
    """What to measure.

    Args:
        lengths: of the sequences.
        dims: of the points.
        variants: of ``VARIANTS``.
        device: where.
        positions: of all sequences of a batch together.
        budget: seconds of timing for each length and dimension, shared by the variants and by both modes.
        memory: whether to measure memory; on the CPU that costs a new process for each variant.
        seed: of points and weights.
    """

    lengths: tuple[int, ...]
    dims: tuple[int, ...]
    variants: tuple[str, ...]
    device: torch.device
    positions: int = 1024
    budget: float = 30.0
    memory: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        for name in self.variants:
            if name not in VARIANTS:
                raise InputError(f"variants must be names from {', '.join(VARIANTS)}, got {name!r}")
        for dim in self.dims:
            if dim not in HEADS:
                raise InputError(f"dim must be one of {', '.join(map(str, HEADS))}, got {dim}")


def run_attention(plan: AttentionPlan, save: Save = lambda _: None, tell: Tell = lambda _: None) -> Document:
    """Measure what a plan asks for. Ctrl-C ends it in order: the document has what was measured so far.

    Args:
        plan: what to measure.
        save: called with the document after every length and dimension.
        tell: called with what is being done.

    Returns:
        The document, as plain data.
    """
    document = header("attention", plan.device, plan.seed, _protocol(plan))
    sequences = (
        Sequences(max(1, plan.positions // length), length, dim) for dim in plan.dims for length in plan.lengths
    )
    cells = (
        {"sequences": asdict(found), "heads": HEADS[found.dim], "kernels": KERNELS, "variants": {}}
        for found in sequences
    )
    return fill_cells(document, cells, lambda cell: _measure_cell(cell, plan, tell), save)


def _protocol(plan: AttentionPlan) -> dict[str, Any]:
    return {
        "budget_seconds_a_cell": plan.budget,
        "rounds": ROUNDS,
        "least_repeats": LEAST_REPEATS,
        "warm_ups": WARM_UPS,
        "positions": plan.positions,
        "dtype": "float32",
        "memory": "not measured" if not plan.memory else "CUDA allocator" if plan.device.type == "cuda" else "peak RSS",
    }


def _measure_cell(cell: Document, plan: AttentionPlan, tell: Tell) -> None:
    sequences = Sequences(**cell["sequences"])
    results = cell["variants"] = {name: {} for name in plan.variants}
    steps = {}
    for name, result in results.items():
        tell(f"{sequences}: {name}")
        reason = skip_reason(name, sequences, plan.device)
        if reason is None and plan.memory and plan.device.type == "cpu":
            order = {"variant": name, "sequences": asdict(sequences), "seed": plan.seed}
            result["memory"] = ask("attention:measure_here", order, 600)
            reason = result["memory"].get("failed")
        make = partial(Step, name, sequences, plan.seed, plan.device)
        step = None if reason is not None else warm_up(make, result, plan.device, memory=plan.memory)
        if step is None:
            results[name] = {"skipped": reason or result["skipped"]}
        else:
            steps[name] = step
    try:
        time_steps(results, steps, plan.budget, plan.device, lambda mode: tell(f"{sequences}: {mode}"))
    finally:
        cell["ratios"] = ratios(results)


def ratios(results: Document) -> dict[str, float]:
    """Quotients of two variants of the same run; those with a variant that was not measured are left out."""
    found = {
        "memory kernel/centroid": quotient(results, "kernel", "centroid", "memory", "bytes"),
        "memory kernel/reference": quotient(results, "kernel", "reference", "memory", "bytes"),
    }
    for mode in MODES:
        found |= {
            f"{mode} reference/kernel": quotient(results, "reference", "kernel", mode, "median"),
            f"{mode} centroid/kernel": quotient(results, "centroid", "kernel", mode, "median"),
            f"{mode} centroid-layer/kernel-layer": quotient(results, "centroid-layer", "kernel-layer", mode, "median"),
            f"{mode} euclidean/kernel": quotient(results, "euclidean", "kernel", mode, "median"),
        }
    return {name: value for name, value in found.items() if value is not None}


def skip_reason(name: str, sequences: Sequences, device: torch.device, available: int | None = None) -> str | None:
    """Why a variant cannot be measured, or None: on a CPU the system would end a process that needs too much."""
    if name != "reference" or device.type != "cpu":
        return None
    available = available_bytes() if available is None else available
    needed = peak_bytes(sequences)
    if available is not None and needed > SPARE_SHARE * available:
        return f"would need about {needed / 1e9:.0f} GB of memory, {available / 1e9:.0f} GB are free"
    return None


def peak_bytes(sequences: Sequences) -> int:
    """About the peak memory of forward and backward of the plain form, float32."""
    heads = HEADS[sequences.dim]
    pairs = sequences.batch * heads * sequences.length**2
    return 4 * TENSORS_AT_PEAK * pairs * KERNELS * (sequences.dim // heads + 1)


def measure_here(variant: str, sequences: dict[str, int], seed: int) -> dict[str, Any]:
    """Peak extra memory of one forward and backward pass in this process, which has compiled everything before."""
    device, given = torch.device("cpu"), Sequences(**sequences)
    Step(variant, Sequences(1, min(16, given.length), given.dim), seed, device).train()
    step = Step(variant, given, seed, device)
    return_freed_memory()
    return peak_rss(step.train).as_dict()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS, help="positions of a sequence")
    parser.add_argument("--dims", nargs="+", type=int, default=(64, 256), help="64, 128 or 256")
    parser.add_argument("--variants", nargs="+", default=VARIANTS, help=f"of {', '.join(VARIANTS)}")
    parser.add_argument("--positions", type=int, help="of a batch; default: 1024 on the CPU, 4096 on a GPU")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of timing for each length and dimension")
    parser.add_argument("--no-memory", action="store_true", help="leave memory out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/attention-DEVICE.json")
    options = parser.parse_args()
    device = find_device(options.device)
    plan = AttentionPlan(
        tuple(options.lengths),
        tuple(options.dims),
        tuple(options.variants),
        device,
        positions=options.positions or POSITIONS.get(device.type, POSITIONS["cpu"]),
        budget=options.budget,
        memory=not options.no_memory,
        seed=options.seed,
    )
    out = options.out or RESULTS / f"attention-{device.type}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    run_attention(plan, lambda document: write_json(out, document), lambda text: print(text, flush=True))
    print(f"written to {out}")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
