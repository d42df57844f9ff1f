"""HKN on a graph of 1 million nodes and 20 million edges, on the CPU: seconds an epoch and peak memory.

Run: python benchmarks/large_graph.py --scale 0.01, then without --scale
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

# OpenMP reads this once, when PyTorch is loaded; threads that spin while they wait disturb what runs beside them.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from torch_geometric.data import Data

from hkconv.data import NodeDataset, Split
from hkconv.engine.files import write_json
from hkconv.engine.measuring import forget_peak, header, peak_resident_bytes, resident_bytes
from hkconv.engine.reproducibility import seed_everything
from hkconv.engine.settings import Settings
from hkconv.errors import InputError
from hkconv.experiments.bench import Shape, hub_share, make_edges, skip_reason
from hkconv.experiments.epochs import training_epoch
from hkconv.models import HKN

RESULTS = Path(__file__).parent / "results"
LARGE = Shape(nodes=1_000_000, edges=20_000_000, kernels=4, dim=32)
NUM_CLASSES = 16


def scaled(scale: float) -> Shape:
    """The large graph with ``scale`` times its nodes and edges."""
    if not 0 < scale <= 1:
        raise InputError(f"scale must be above 0 and at most 1, got {scale}")
    return replace(LARGE, nodes=max(100, int(LARGE.nodes * scale)), edges=max(100, int(LARGE.edges * scale)))


def make_dataset(shape: Shape, seed: int) -> NodeDataset:
    """Random features and labels on a power-law graph; 60 % of the nodes are trained on."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape.nodes, shape.dim, generator=generator)
    y = torch.randint(NUM_CLASSES, (shape.nodes,), generator=generator)
    edge_index = make_edges(shape.nodes, shape.edges, "power-law", seed)
    parts = torch.arange(shape.nodes).tensor_split([int(0.6 * shape.nodes), int(0.8 * shape.nodes)])
    graph = Data(x=x, edge_index=edge_index, y=y)
    return NodeDataset("large", graph, [Split(*parts)], NUM_CLASSES, "random power-law graph")


def run_large_graph(
    shape: Shape,
    *,
    num_layers: int = 2,
    epochs: int = 2,
    seed: int = 0,
    backend: str = "auto",
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Train HKN for a few epochs on the CPU and note the time of each.

    The first epoch finds the neighbours of every node; a small graph has been trained on before it.

    Args:
        shape: of the graph and of the layers.
        num_layers: number of HKConv layers.
        epochs: how many epochs.
        seed: of the graph and of the weights.
        backend: of HKConv.
        tell: called with what is being done.

    Returns:
        The document, as plain data.
    """
    cpu = torch.device("cpu")
    _check_memory(shape, cpu, backend)
    settings = Settings(seed=seed)
    protocol = {"num_layers": num_layers, "backend": backend, "targets": "power-law", "dropout": 0.0}
    document = {**header("large-graph", cpu, seed, protocol), "shape": asdict(shape)}
    tell("warming up on a small graph")
    small = make_dataset(replace(shape, nodes=1000, edges=10000), seed)
    training_epoch(make_model(shape, num_layers, backend, seed), small, settings)()
    tell(f"making {shape.nodes:,} nodes and {shape.edges:,} edges")
    dataset = make_dataset(shape, seed)
    document["hub_share"] = hub_share(dataset.graph.edge_index)
    epoch = training_epoch(make_model(shape, num_layers, backend, seed), dataset, settings)
    forget_peak()
    document |= {"rss_before_bytes": resident_bytes(), "epoch_seconds": [], "losses": []}
    for number in range(1, epochs + 1):
        tell(f"epoch {number}")
        started = time.perf_counter()
        document["losses"].append(epoch())
        document["epoch_seconds"].append(time.perf_counter() - started)
    return {**document, "peak_rss_bytes": peak_resident_bytes()}


def make_model(shape: Shape, num_layers: int, backend: str, seed: int) -> HKN:
    """HKN of the width of the features."""
    seed_everything(seed)
    return HKN(
        shape.dim,
        shape.dim,
        NUM_CLASSES,
        form="paper",
        dropout=0.0,
        num_layers=num_layers,
        kernel_size=shape.kernels,
        backend=backend,
    )


def _check_memory(shape: Shape, device: torch.device, backend: str) -> None:
    """Refuse what the system would end half way: plain PyTorch on a graph that is too large for it."""
    is_fused = backend != "reference" and skip_reason("fused", shape, device) is None
    reason = None if is_fused else skip_reason("reference", shape, device)
    if reason is not None:
        raise InputError(f"HKConv in plain PyTorch {reason}; a smaller scale or a fused backend may fit")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="share of the nodes and edges, above 0")
    parser.add_argument("--num-layers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2, help="the first one also finds the neighbours")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/large-graph.json; none below full scale")
    options = parser.parse_args()
    document = run_large_graph(
        scaled(options.scale),
        num_layers=options.num_layers,
        epochs=options.epochs,
        seed=options.seed,
        backend=options.backend,
        tell=lambda text: print(text, flush=True),
    )
    for number, seconds in enumerate(document["epoch_seconds"], start=1):
        print(f"epoch {number}: {seconds:.2f} s, loss {document['losses'][number - 1]:.4f}")
    print(f"peak RSS: {document['peak_rss_bytes'] / 1e9:.2f} GB, {document['rss_before_bytes'] / 1e9:.2f} GB before")
    out = options.out or (RESULTS / "large-graph.json" if options.scale == 1 else None)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_json(out, document)
        print(f"written to {out}")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
