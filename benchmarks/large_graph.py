"""HKN on a graph of 1 million nodes and 20 million edges, on the CPU: seconds an epoch and peak memory.

Run: python benchmarks/large_graph.py --scale 0.01, then without --scale
"""

import argparse
import os
import sys
from pathlib import Path

# OpenMP reads this once, when PyTorch is loaded; threads that spin while they wait disturb what runs beside them.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from hkconv.benchmarking.large_graph import run_large_graph, scaled
from hkconv.engine.files import write_json
from hkconv.errors import InputError

RESULTS = Path(__file__).parent / "results"


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
