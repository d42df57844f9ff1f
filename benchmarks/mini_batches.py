"""HKN on large graphs by samples of neighbours, on the CPU: time and memory of training and prediction at 1x, 2x, 4x.

Each size is measured in a process of its own, so that its peak of memory is not hidden by that of another.

Run: python benchmarks/mini_batches.py --scales 0.01 --batches 5, then without options
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

# OpenMP reads this once, when PyTorch is loaded; threads that spin while they wait disturb what runs beside them.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from large_graph import make_dataset, make_model, scaled
from report import render_mini_batches

from hkconv.data import NodeDataset
from hkconv.data.neighbor_sampling import InNeighbors, sampler_name
from hkconv.engine.files import write_json
from hkconv.engine.measuring import (
    ask,
    forget_peak,
    header,
    peak_resident_bytes,
    resident_bytes,
    return_freed_memory,
)
from hkconv.engine.settings import Settings
from hkconv.errors import InputError
from hkconv.experiments.bench import Shape
from hkconv.experiments.epochs import training_epoch
from hkconv.models import HKN
from hkconv.tasks.layerwise import all_neighbor_logits

RESULTS = Path(__file__).parent / "results"
# Of the graph of a million nodes and 20 million edges.
SCALES = (0.25, 0.5, 1.0)
NEIGHBORS = (15, 10)
# Hours of a slow machine; a size that takes longer has failed.
LIMIT = 4 * 3600.0


def run_mini_batches(
    scales: Sequence[float] = SCALES,
    *,
    batches: int = 200,
    batch_size: int = 1024,
    seed: int = 0,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Train HKN on the CPU for a number of mini-batches, then ask it about all nodes, on graphs of growing size.

    Args:
        scales: the shares of the largest graph, in the order in which they are measured.
        batches: how many mini-batches, each of other training nodes.
        batch_size: nodes in a batch.
        seed: of the graph, of the weights and of the samples.
        tell: called with what is being done.

    Returns:
        The document, as plain data.
    """
    protocol = {
        "num_layers": len(NEIGHBORS),
        "neighbors": list(NEIGHBORS),
        "batches": batches,
        "batch_size": batch_size,
        "targets": "power-law",
        "sampler": sampler_name(),
    }
    document = {**header("mini-batches", torch.device("cpu"), seed, protocol), "cells": []}
    for scale in scales:
        shape = scaled(scale)
        if shape.nodes < batches * batch_size:
            raise InputError(
                f"scale {scale:g} has {shape.nodes} nodes, too few for {batches} batches of {batch_size}: lower batches"
            )
        tell(f"{shape.nodes:,} nodes and {shape.edges:,} edges")
        order = {"shape": asdict(shape), "batches": batches, "batch_size": batch_size, "seed": seed}
        document["cells"].append({"shape": asdict(shape), **ask("mini_batches:measure_here", order, LIMIT)})
    return document


def measure_here(shape: dict[str, int], batches: int, batch_size: int, seed: int) -> dict[str, Any]:
    """One size, in this process.

    Args:
        shape: of the graph and of the layers.
        batches, batch_size, seed: as of :func:`run_mini_batches`.

    Returns:
        Seconds on the clock and of the processor, which others do not lengthen, and peaks of the resident memory of the
        whole process: for ``"sorting"`` the edges, for ``"training"``, for ``"prediction"`` layer by layer, and for the
        whole graph ``"at_once"``; the last two sort the edges anew. And the largest difference between their logits.
    """
    settings = Settings(batch_size=batch_size, neighbors=NEIGHBORS, seed=seed)
    given = Shape(**shape)
    # What is compiled is compiled here.
    small = make_dataset(replace(given, nodes=1000, edges=10000), seed)
    model = make_model(given, len(NEIGHBORS), "auto", seed)
    training_epoch(model, _train_on(small, 100), settings)()
    _predict(model, small)
    dataset = make_dataset(given, seed)
    model = make_model(given, len(NEIGHBORS), "auto", seed)
    found: dict[str, Any] = {"data_rss_bytes": resident_bytes()}
    epoch, found["sorting"] = _measured(
        lambda: training_epoch(model, _train_on(dataset, batches * batch_size), settings)
    )
    _, found["training"] = _measured(epoch)
    del epoch
    logits, found["prediction"] = _measured(lambda: _predict(model, dataset))
    graph = dataset.graph
    with torch.no_grad():
        whole, found["at_once"] = _measured(lambda: model.eval()(graph.x, graph.edge_index))
    found["largest_difference"] = (logits - whole).abs().max().item()
    found["largest_logit"] = whole.abs().max().item()
    return found


def _train_on(dataset: NodeDataset, count: int) -> NodeDataset:
    """The dataset with so many training nodes, which are random as all of it is."""
    first = dataset.splits[0]
    nodes = torch.cat(list(first.parts.values()))
    split = replace(first, train=nodes[:count], val=nodes[-2:-1], test=nodes[-1:])
    return replace(dataset, splits=[split])


def _predict(model: HKN, dataset: NodeDataset) -> torch.Tensor:
    graph = dataset.graph
    return all_neighbor_logits(model, graph, InNeighbors(graph.edge_index, graph.num_nodes))


def _measured(call: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
    """What a call returns, and what it took."""
    return_freed_memory()
    forget_peak()
    started, cpu_started = time.perf_counter(), time.process_time()
    result = call()
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    return result, {"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_rss_bytes": peak_resident_bytes()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scales", type=float, nargs="+", default=SCALES, help="shares of 1M nodes and 20M edges")
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/mini-batches.json; none for other scales")
    options = parser.parse_args()
    document = run_mini_batches(
        options.scales,
        batches=options.batches,
        batch_size=options.batch_size,
        seed=options.seed,
        tell=lambda text: print(text, flush=True),
    )
    print(render_mini_batches([document]))
    out = options.out or (RESULTS / "mini-batches.json" if tuple(options.scales) == SCALES else None)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_json(out, document)
        print(f"written to {out}")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
