"""500 epochs of HKN in both forms and of HKN-train on every small dataset: is every number finite?

Run: python benchmarks/long_runs.py --data FOLDER --device cpu
It goes on where it was stopped.
"""

import argparse
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# OpenMP reads this once, when PyTorch is loaded; threads that spin while they wait disturb what runs beside them.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from torch import Tensor

from hkconv import models
from hkconv.data.catalog import CATALOG
from hkconv.engine.devices import find_device
from hkconv.engine.files import read_json, write_json
from hkconv.engine.guard import DivergenceError
from hkconv.engine.loop import FitResult
from hkconv.engine.measuring import failure_line, header
from hkconv.engine.reproducibility import seed_everything, stream_seed
from hkconv.engine.settings import OptimOptions
from hkconv.errors import InputError
from hkconv.geometry.curvature import curvature_radius
from hkconv.tasks.building import describe_dataset, load_dataset, model_config
from hkconv.tasks.fitting import fit
from hkconv.tasks.recipe import Recipe, make_recipe
from hkconv.tasks.tasks import Dataset

RESULTS = Path(__file__).parent / "results"
# As in the paper, with trainable kernel points, and three views of a neighbourhood.
VARIANTS: dict[str, dict[str, Any]] = {
    "hkn": {"form": "paper"},
    "hkn-train": {"form": "paper", "points": "trainable"},
    "hkn-views": {"form": "views"},
}
# Every dataset with less; what is left are collections of molecules, which train for hours an epoch.
SMALL_NODES = 100_000
SMALL_DATASETS = tuple(name for name, entry in CATALOG.items() if entry.facts.nodes < SMALL_NODES)

SHARED = (
    *("epochs", "lr", "weight_decay", "dropout", "batch_size", "groupings", "precision"),
    *("hidden_dim", "num_layers", "kernel_size"),
)

Document = dict[str, Any]


@dataclass(frozen=True)
class LongPlan:
    """What to train.

    Args:
        datasets: names in the catalog.
        variants: names in :data:`VARIANTS`.
        recipe: all that they share; every training has all of its epochs, whatever its patience.
        device: where.
    """

    datasets: tuple[str, ...]
    variants: tuple[str, ...]
    recipe: Recipe
    device: torch.device


def run_long(
    plan: LongPlan,
    before: Document | None = None,
    save: Callable[[Document], None] = lambda _: None,
    tell: Callable[[str], None] = lambda _: None,
) -> Document:
    """Train every variant on the first split of every dataset.

    Args:
        plan: what to train.
        before: a document of the same recipe; what it has is not trained again.
        save: called with the document after every training.
        tell: called with what came out of each.

    Returns:
        The document, as plain data.
    """
    for name in plan.variants:
        if name not in VARIANTS:
            raise InputError(f"variants must be among {', '.join(VARIANTS)}, got {name!r}")
    recipe = plan.recipe.flat()
    shared = {name: recipe[name] for name in SHARED}
    document = {**header("long-runs", plan.device, plan.recipe.optim.seed, shared), "trainings": []}
    if before is not None:
        if before.get("protocol") != shared:
            raise InputError("the results so far are of another recipe: name another file, or remove this one")
        document["trainings"] = before["trainings"]
    done = {(entry["dataset"], entry["variant"]) for entry in document["trainings"]}
    for name in plan.datasets:
        todo = [variant for variant in plan.variants if (name, variant) not in done]
        if not todo:
            continue
        try:
            dataset = load_dataset(plan.recipe.replace(dataset=name))
        except InputError as error:
            tell(f"{name}: left out: {error}")
            continue
        for variant in todo:
            entry = {"dataset": name, "variant": variant, **_train(plan, dataset, variant)}
            document["trainings"].append(entry)
            save(document)
            tell(f"{name}, {variant}: {_in_words(entry)}")
    return document


def _train(plan: LongPlan, dataset: Dataset, variant: str) -> dict[str, Any]:
    recipe = plan.recipe.replace(patience=plan.recipe.optim.epochs, **VARIANTS[variant])
    seed = stream_seed(recipe.optim.seed, 0)
    seed_everything(seed)
    model = models.create("hkn", **model_config(recipe, "hkn", dataset)).to(plan.device)
    radius = _LargestRadius(model, plan.device)
    about = {"data": describe_dataset(dataset)}
    try:
        result = fit(model, dataset, dataset.splits[0], recipe.settings(seed))
        fault = result.guard
    except DivergenceError as error:
        result, fault = error.best, str(error)
    # A training that fails for another reason, such as memory, says nothing about the next.
    except Exception as error:
        return {**about, "failed": failure_line(" ".join(f"{type(error).__name__}: {error}".split()))}
    return {**about, "finite": fault is None, "fault": fault, "largest_radius": radius.value(), **_scores(result)}


def _scores(result: FitResult | None) -> dict[str, Any]:
    if result is None:
        return {"epochs": 0}
    return {
        "epochs": result.epochs,
        "first_loss": result.history[0].loss,
        "last_loss": result.history[-1].loss,
        "val_metric": result.val_metric,
        "seconds": result.seconds,
    }


class _LargestRadius:
    """The largest distance from the origin, in units of R, of any point that a layer of a network gave."""

    def __init__(self, model: Any, device: torch.device):
        self.largest = torch.zeros((), device=device)
        for layer in (model.embedding, *model.convs):
            layer.register_forward_hook(self._look)

    @torch.no_grad()
    def _look(self, layer: Any, _inputs: tuple, points: Tensor) -> None:
        length = (points[..., 1:].norm(dim=-1) / curvature_radius(layer.curvature)).max()
        # In place: a recorded step writes where it wrote when it was recorded.
        torch.maximum(self.largest, length, out=self.largest)

    def value(self) -> float | None:
        radius = math.asinh(self.largest.item())
        return radius if math.isfinite(radius) else None


def _in_words(entry: dict[str, Any]) -> str:
    if "failed" in entry:
        return f"failed: {entry['failed']}"
    if not entry["finite"]:
        return f"not finite: {entry['fault']}"
    losses = f"loss {entry['first_loss']:.3f} to {entry['last_loss']:.3f}"
    return f"{entry['epochs']} epochs, {losses}, largest radius {entry['largest_radius']:.1f}, {entry['seconds']:.0f} s"


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
