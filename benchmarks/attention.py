"""HKConv's attention beside its plain form, HyboNet's, and torch's: time and memory, all variants in one run.

Run: python benchmarks/attention.py --device cpu
"""

import argparse
import os
import sys
from pathlib import Path

# OpenMP reads this once, when PyTorch is loaded; threads that spin while they wait disturb what runs beside them.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from hkconv.benchmarking.attention import LENGTHS, VARIANTS, AttentionPlan, run_attention
from hkconv.engine.devices import find_device
from hkconv.engine.files import write_json
from hkconv.errors import InputError

RESULTS = Path(__file__).parent / "results"
# Of a batch: what a GPU needs to be busy, and what two cores do in seconds.
POSITIONS = {"cpu": 1024, "cuda": 4096}


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
