"""HKConv beside torch.compile, HyboNet's layer, GCN and GAT: time and memory, all variants in one run.

Run: python benchmarks/layers.py --device cpu
"""

import argparse
import os
import sys
from pathlib import Path

# OpenMP reads this once, when PyTorch is loaded; threads that spin while they wait disturb what runs beside them.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from hkconv.benchmarking.layers import LayerPlan, run_layers
from hkconv.benchmarking.shapes import GROWTH_SHAPES, SHAPES, TARGETS, check_targets, parse_shape
from hkconv.benchmarking.variants import VARIANTS, check_variants
from hkconv.engine.devices import find_device
from hkconv.engine.files import write_json
from hkconv.errors import InputError

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--shape", action="append", metavar="N,E,K,n", help="may be repeated; default: all five")
    parser.add_argument("--targets", nargs="+", default=TARGETS, help="uniform, power-law")
    parser.add_argument("--variants", nargs="+", default=VARIANTS, help=f"of {', '.join(VARIANTS)}")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of timing for each shape and targets")
    parser.add_argument("--compile-limit", type=float, default=180.0, help="seconds to compile in, on the CPU")
    parser.add_argument("--no-memory", action="store_true", help="leave memory out")
    parser.add_argument("--no-growth", action="store_true", help="leave the growth of the fused memory out")
    parser.add_argument("--only-growth", action="store_true", help="nothing but the growth of the fused memory")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/layers-DEVICE.json")
    options = parser.parse_args()
    device = find_device(options.device)
    shapes = tuple(map(parse_shape, options.shape)) if options.shape else SHAPES
    plan = LayerPlan(
        () if options.only_growth else shapes,
        check_targets(tuple(options.targets)),
        check_variants(tuple(options.variants)),
        device,
        options.budget,
        memory=not options.no_memory,
        compile_limit=options.compile_limit,
        growth=() if options.no_growth else GROWTH_SHAPES,
        seed=options.seed,
    )
    out = options.out or RESULTS / f"layers-{device.type}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    run_layers(plan, lambda document: write_json(out, document), lambda text: print(text, flush=True))
    print(f"written to {out}")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
