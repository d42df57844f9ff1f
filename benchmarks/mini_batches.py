"""HKN on large graphs by samples of neighbours, on the CPU: time and memory of training and prediction at 1x, 2x, 4x.

Run: python benchmarks/mini_batches.py --scales 0.01 --batches 5, then without options
"""

import argparse
import os
import sys
from pathlib import Path

# OpenMP reads this once, when PyTorch is loaded; threads that spin while they wait disturb what runs beside them.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from hkconv.benchmarking.mini_batches import SCALES, run_mini_batches
from hkconv.benchmarking.report import render_mini_batches
from hkconv.engine.files import write_json
from hkconv.errors import InputError

RESULTS = Path(__file__).parent / "results"


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
