"""500 epochs of HKN, HKN-train and HKN with root and reach on every small dataset: is every number finite?

Run: python benchmarks/long_runs.py --data FOLDER --device cpu
It goes on where it was stopped.
"""

import argparse
import os
import sys
from pathlib import Path

# OpenMP reads this once, when PyTorch is loaded; threads that spin while they wait disturb what runs beside them.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from hkconv.benchmarking.long_runs import SMALL_DATASETS, VARIANTS, LongPlan, run_long
from hkconv.engine.devices import find_device
from hkconv.engine.files import read_json, write_json
from hkconv.engine.settings import OptimOptions
from hkconv.errors import InputError
from hkconv.tasks.recipe import make_recipe

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder of the datasets, laid out as docs/data.md says")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--datasets", nargs="+", default=SMALL_DATASETS)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS))
    parser.add_argument("--epochs", type=int, default=500)
    parser.add_argument("--precision", default=OptimOptions.precision, help="float32, bf16 or fp16")
    parser.add_argument("--lr", type=float, default=OptimOptions.lr)
    parser.add_argument("--weight-decay", type=float, default=OptimOptions.weight_decay)
    parser.add_argument("--batch-size", type=int, default=OptimOptions.batch_size)
    parser.add_argument("--groupings", type=int, help="divisions of graphs into batches; by default new every epoch")
    parser.add_argument("--capture", action="store_true", help="replay steps as CUDA graphs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/long-runs-DEVICE[-PRECISION].json")
    options = parser.parse_args()
    device = find_device(options.device)
    given = ("data", "epochs", "precision", "lr", "weight_decay", "batch_size", "groupings", "capture", "seed")
    recipe = make_recipe(num_splits=1, **{name: getattr(options, name) for name in given})
    plan = LongPlan(tuple(options.datasets), tuple(options.variants), recipe, device)
    name = f"long-runs-{device.type}{'' if options.precision == 'float32' else f'-{options.precision}'}.json"
    out = options.out or RESULTS / name
    out.parent.mkdir(parents=True, exist_ok=True)
    before = read_json(out, "the results so far") if out.exists() else None
    document = run_long(plan, before, lambda found: write_json(out, found), lambda text: print(text, flush=True))
    bad = [entry for entry in document["trainings"] if not entry.get("finite", False)]
    print(f"{len(document['trainings']) - len(bad)} of {len(document['trainings'])} trainings finite; written to {out}")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
