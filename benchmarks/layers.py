"""HKConv beside torch.compile, HyboNet's layer, GCN and GAT: time and memory, all variants in one run.

Run: python benchmarks/layers.py --device cpu
"""

import argparse
import os
import sys
from dataclasses import asdict
from pathlib import Path

# OpenMP reads this once, when PyTorch is loaded; threads that spin while they wait disturb what runs beside them.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from hkconv.engine.devices import find_device
from hkconv.engine.files import write_json
from hkconv.engine.measuring import peak_cuda
from hkconv.errors import InputError
from hkconv.experiments.bench import (
    TARGETS,
    VARIANTS,
    Document,
    LayerPlan,
    MeasuredStep,
    Save,
    Shape,
    Tell,
    check_targets,
    check_variants,
    make_problem,
    parse_shape,
    probe_memory,
    run_layers,
    skip_reason,
)

RESULTS = Path(__file__).parent / "results"
# The first three are the sizes of Chameleon, Squirrel and Actor with edges in both directions.
SHAPES = (
    Shape(2277, 62000, 6, 16),
    Shape(5201, 396000, 4, 16),
    Shape(7600, 53000, 8, 16),
    Shape(5201, 396000, 8, 64),
    Shape(200000, 4000000, 8, 64),
)
# E stays fixed, fifty times N, while K and n double: memory of size E x K x n could not hide in these.
GROWTH_SHAPES = tuple(
    Shape(20000, 1000000, kernels, dim) for kernels, dim in ((4, 16), (8, 16), (16, 16), (4, 32), (4, 64))
)


def measure_growth(
    document: Document, shapes: tuple[Shape, ...], plan: LayerPlan, save: Save = lambda _: None, tell: Tell = print
) -> None:
    """Add the peak memory of the fused variant alone, shape by shape; Ctrl-C keeps what was measured."""
    try:
        for shape in shapes if not document["interrupted"] else ():
            tell(f"growth: {shape}")
            document["growth"].append({"shape": asdict(shape), **_memory(shape, plan)})
            save(document)
    except KeyboardInterrupt:
        document["interrupted"] = True
    save(document)


def _memory(shape: Shape, plan: LayerPlan) -> Document:
    reason = skip_reason("fused", shape, plan.device)
    if reason is not None:
        return {"skipped": reason}
    if plan.device.type == "cpu":
        found = probe_memory("fused", shape, "uniform", plan.seed, 600)
        return {"skipped": found["failed"]} if "failed" in found else {"memory": found}
    step = MeasuredStep("fused", make_problem(shape, "uniform", plan.seed, plan.device))
    step.train()
    return {"memory": peak_cuda(step.train, plan.device).as_dict()}


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
        seed=options.seed,
    )
    out = options.out or RESULTS / f"layers-{device.type}.json"
    out.parent.mkdir(parents=True, exist_ok=True)

    def save(document: Document) -> None:
        write_json(out, document)

    def tell(text: str) -> None:
        print(text, flush=True)

    document = run_layers(plan, save, tell)
    measure_growth(document, () if options.no_growth else GROWTH_SHAPES, plan, save, tell)
    print(f"written to {out}")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
