"""One training epoch of HKN on a graph of a million nodes: whether it runs at all, how long, in how much memory."""

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch
from torch_geometric.data import Data

from hkconv.benchmarking.graphs import hub_share, make_edges
from hkconv.benchmarking.machine import header
from hkconv.benchmarking.memory import forget_peak, peak_resident_bytes, resident_bytes
from hkconv.benchmarking.shapes import Shape
from hkconv.benchmarking.steps import training_epoch
from hkconv.benchmarking.variants import skip_reason
from hkconv.data import NodeDataset, Split
from hkconv.engine.reproducibility import seed_everything
from hkconv.engine.settings import Settings
from hkconv.errors import InputError
from hkconv.models import HKN

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

    The first epoch finds the neighbours of every node; the compiler has run before it, on a small graph.

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
    tell("compiling on a small graph")
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
    """HKN with a root branch, of the width of the features."""
    seed_everything(seed)
    return HKN(
        shape.dim,
        shape.dim,
        NUM_CLASSES,
        form="paper",
        dropout=0.0,
        num_layers=num_layers,
        kernel_size=shape.kernels,
        root=True,
        backend=backend,
    )


def _check_memory(shape: Shape, device: torch.device, backend: str) -> None:
    """Refuse what the system would end half way: plain PyTorch on a graph that is too large for it."""
    is_fused = backend != "reference" and skip_reason("fused", shape, device) is None
    reason = None if is_fused else skip_reason("reference", shape, device)
    if reason is not None:
        raise InputError(f"HKConv in plain PyTorch {reason}; a smaller scale or a fused backend may fit")
