"""Seconds a training epoch of HKN, HyboNet, HGCN and GCN on the datasets of the paper's runtime table.

Run: python benchmarks/epochs.py --data FOLDER --device cpu
"""

import argparse
import os
import sys
from pathlib import Path

# OpenMP reads this once, when PyTorch is loaded; threads that spin while they wait disturb what runs beside them.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from hkconv.engine.devices import find_device
from hkconv.engine.files import write_json
from hkconv.engine.settings import OptimOptions
from hkconv.errors import InputError
from hkconv.experiments.epochs import EPOCH_MODELS, PAPER_DATASETS, EpochPlan, run_epochs
from hkconv.models.options import HKNOptions, ModelOptions
from hkconv.tasks.recipe import make_recipe

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder of the datasets, laid out as docs/data.md says")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--datasets", nargs="+", default=PAPER_DATASETS)
    parser.add_argument("--models", nargs="+", default=EPOCH_MODELS)
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of timing for each dataset")
    parser.add_argument("--capture", action="store_true", help="captured training steps, on a GPU")
    parser.add_argument("--hidden-dim", type=int, default=ModelOptions.hidden_dim)
    parser.add_argument("--num-layers", type=int, default=ModelOptions.num_layers)
    parser.add_argument("--kernel-size", type=int, default=HKNOptions.kernel_size)
    parser.add_argument("--batch-size", type=int, default=OptimOptions.batch_size)
    parser.add_argument("--form", default="paper", choices=["paper", "views"], help="of HKN")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/epochs-DEVICE[-capture].json")
    options = parser.parse_args()
    device = find_device(options.device)
    recipe = make_recipe(
        data=options.data,
        num_splits=1,
        hidden_dim=options.hidden_dim,
        num_layers=options.num_layers,
        kernel_size=options.kernel_size,
        batch_size=options.batch_size,
        form=options.form,
        capture=options.capture,
        seed=options.seed,
    )
    datasets, models = tuple(options.datasets), tuple(options.models)
    plan = EpochPlan(datasets, models, recipe, device, options.budget)
    name = f"epochs-{device.type}{'-capture' if options.capture else ''}.json"
    out = options.out or RESULTS / name
    out.parent.mkdir(parents=True, exist_ok=True)
    run_epochs(plan, lambda document: write_json(out, document), lambda text: print(text, flush=True))
    print(f"written to {out}")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
