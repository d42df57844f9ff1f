"""The search that chose the defaults of HKN: one setting for all datasets and tasks, by validation data alone.

Settings are tried on the embedded sets (nodes and links), WebKB and Cora; the best on PTC too. No task is ever given a
test part. The score of a setting is the mean over the datasets of its mean validation metric. A record keeps when the
best epoch so far was beaten, so that epochs and patience are chosen afterwards from the same trainings.

Networks that differ in learning rate, weight decay and split alone are trained as one: parameters have a leading axis
of networks, and ``torch.func.vmap`` maps the reference backend over it.

Run: python benchmarks/defaults.py --data FOLDER --device cuda --seconds 500   (goes on where it was stopped)
     python benchmarks/defaults.py --data FOLDER --finalists 4                 (PTC, one training at a time)
     python benchmarks/defaults.py --show
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import geoopt
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional as F

import hkconv
from hkconv.data import hide_test
from hkconv.models import HKN
from hkconv.training.building import load_dataset
from hkconv.training.manifold_step import start_state, step_on_manifolds
from hkconv.training.metrics import roc_auc
from hkconv.training.recipe import Recipe, make_recipe
from hkconv.training.run import train_cell
from hkconv.training.summary import Cell
from hkconv.training.tasks import make_task, moved

RESULTS = Path(__file__).parent / "results" / "defaults.jsonl"
EPOCHS = 200
STOPS = tuple(itertools.product((100, 150, 200), (50, 100)))
BETAS, EPS = (0.9, 0.999), 1e-8

# Networks of one shape and dropout are trained together, for all learning rates and weight decays.
SHAPES = [
    {"hidden_dim": width, "num_layers": layers, "kernel_size": 4, "dropout": dropout, "reach": reach}
    for width, layers in ((64, 2), (32, 2), (16, 2), (32, 3), (64, 3))
    for dropout in (0.35, 0.5, 0.4)
    for reach in (5.0,)
]
RATES = [{"lr": lr, "weight_decay": decay} for lr in (0.005, 0.01, 0.02) for decay in (1e-3, 5e-3, 1e-2)]
# Dataset, task and number of splits.
SETS = (
    *(("tree", "node", 3), ("disease", "node", 3), ("tree", "link", 1), ("disease", "link", 1)),
    *((name, "node", 4) for name in ("cornell", "texas", "wisconsin")),
    ("cora", "node", 2),
)
GRAPH_SETS = (("ptc", "graph", 5),)


@cache
def hidden_dataset(name: str, task: str, data: str | None) -> Any:
    """The dataset without the test part of any split."""
    return hide_test(load_dataset(Recipe(dataset=name, task=task, num_splits=10, data=data)))


class Networks:
    """Several HKN of one shape with parameters of a leading axis, and Adam with a rate and a decay for each."""

    def __init__(self, make: Callable[[], HKN], lr: Tensor, decay: Tensor, seeds: list[int]):
        made = []
        for seed in seeds:
            torch.manual_seed(seed)
            made.append(make().to(lr.device))
        self.network, self.lr, self.decay, self.steps = made[0], lr, decay, 0
        self.parameters, self.buffers = stack_module_state(made)
        # The reference backend is what torch.func can map.
        self.manifold = hkconv.Lorentz()
        self.moments: dict[str, Any] = {}

    def __call__(self, is_training: bool, *arguments: Any, **options: Any) -> Tensor:
        self.network.train(is_training)

        def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
            return functional_call(self.network, (parameters, buffers), arguments, options)

        return vmap(one, randomness="different")(self.parameters, self.buffers)

    def step(self, loss: Tensor) -> None:
        """Descend the gradient of the sum of all losses: each network's own."""
        gradients = torch.autograd.grad(loss, list(self.parameters.values()))
        self.steps += 1
        with torch.no_grad():
            for (name, value), gradient in zip(self.parameters.items(), gradients):
                self._move(name, value, gradient)

    def _move(self, name: str, value: Tensor, gradient: Tensor) -> None:
        each = (-1,) + (1,) * (value.dim() - 1)
        lr = self.lr.view(each)
        if name.endswith("centers"):
            point = geoopt.ManifoldParameter(value.detach(), manifold=self.manifold)
            point.grad = gradient
            state = self.moments.setdefault(name, start_state(point, capturable=False))
            group = {"lr": lr, "betas": BETAS, "eps": EPS, "step": "exp", "capturable": False}
            step_on_manifolds([point], [state], group)
            return
        first, second = self.moments.setdefault(name, (torch.zeros_like(value), torch.zeros_like(value)))
        gradient = gradient + self.decay.view(each) * value
        first.lerp_(gradient, 1 - BETAS[0])
        second.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        root = (second / (1 - BETAS[1] ** self.steps)).sqrt().add_(EPS)
        value.sub_(lr * first / (1 - BETAS[0] ** self.steps) / root)


def train_together(name: str, task: str, splits: list[int], shape: dict, device: str, data: str | None) -> list[dict]:
    """Train a shape with all rates on some splits; one record for each network."""
    dataset, started = hidden_dataset(name, task, data), time.perf_counter()
    each = [(rates, split) for rates in RATES for split in splits]
    lr, decay = (torch.tensor([rates[key] for rates, _ in each], device=device) for key in ("lr", "weight_decay"))
    classes = None if task == "link" else dataset.num_classes
    networks = Networks(
        lambda: HKN(dataset.num_features, num_classes=classes, task=task, **shape), lr, decay, [0] * len(each)
    )
    measure = (_train_links if task == "link" else _train_nodes)(networks, dataset, [split for _, split in each])
    curves = torch.stack(list(measure)).cpu()
    seconds = round((time.perf_counter() - started) / len(each), 3)
    return [
        {
            **{"settings": {**shape, **rates}, "dataset": name, "task": task, "split": split, "device": device},
            **{"beaten": _beaten(curves[:, :, index]), "seconds": seconds},
        }
        for index, (rates, split) in enumerate(each)
    ]


def _train_nodes(networks: Networks, dataset: Any, splits: list[int]) -> Iterator[Tensor]:
    """Metric and negated loss on validation nodes after every epoch, ``(2, R)``."""
    graph = moved(dataset.graph, networks.lr)
    masks = {}
    for part in ("train", "val"):
        masks[part] = torch.zeros(len(splits), graph.x.size(0), device=networks.lr.device)
        for row, split in zip(masks[part], splits):
            row[dataset.splits[split].parts[part].to(row.device)] = 1
        masks[part] /= masks[part].sum(1, keepdim=True)
    labels = graph.y.expand(len(splits), -1)

    def losses(logits: Tensor, part: str) -> Tensor:
        return (F.cross_entropy(logits.transpose(1, 2), labels, reduction="none") * masks[part]).sum(1)

    for _ in range(EPOCHS):
        networks.step(losses(networks(True, graph.x, graph.edge_index), "train").sum())
        with torch.no_grad():
            logits = networks(False, graph.x, graph.edge_index)
            right = ((logits.argmax(-1) == labels) * masks["val"]).sum(1)
            yield torch.stack([right, -losses(logits, "val")])


def _train_links(networks: Networks, dataset: Any, splits: list[int]) -> Iterator[Tensor]:
    """The same on validation links, of one split."""
    (split,) = set(splits)
    task: Any = make_task(dataset, dataset.splits[split], networks.lr)

    def logits(is_training: bool, pairs: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
        found = networks(is_training, task.graph.x, task.message_edges, pairs=torch.cat(pairs, dim=1))
        return found.tensor_split([pairs[0].size(1)], dim=1)

    def losses(positive: Tensor, negative: Tensor) -> Tensor:
        return torch.cat([F.softplus(-positive), F.softplus(negative)], dim=1).mean(1)

    for _ in range(EPOCHS):
        (pairs,) = task.batches()
        networks.step(losses(*logits(True, pairs)).sum())
        with torch.no_grad():
            found = logits(False, task.pairs["val"])
            scores = torch.stack([roc_auc(*pair) for pair in zip(*found)])
            yield torch.stack([scores.float(), -losses(*found)])


def _beaten(curve: Tensor) -> list[list[float]]:
    """The epochs, from 1, whose validation metric, or the loss at the same metric, was better than all before."""
    found, best = [], (-1.0, 0.0)
    for number, (metric, negated) in enumerate(curve.tolist(), start=1):
        if (metric, negated) > best:
            best = (metric, negated)
            found.append([number, round(metric, 5)])
    return found


def train_graphs(name: str, task: str, split: int, settings: dict, data: str | None) -> dict:
    """One training in mini-batches, as ``hkconv train`` does it."""
    fixed = {"dataset": name, "task": task, "models": ["hkn"], "num_splits": 10, "epochs": EPOCHS, "patience": 50}
    done = train_cell(
        Cell("hkn", split, 0),
        make_recipe({**fixed, **settings}),
        hidden_dataset(name, task, data),
        torch.device("cpu"),
    )
    curve = torch.tensor([[epoch.val_metric, -epoch.val_loss] for epoch in done.history])
    record = {"settings": settings, "dataset": name, "task": task, "split": split, "device": "cpu"}
    return {**record, "beaten": _beaten(curve), "seconds": round(done.result.seconds, 2)}


def stopped_at(record: dict, epochs: int, patience: int) -> float:
    """The validation metric that a training with these limits keeps."""
    kept, last = 0.0, 0
    for number, metric in record["beaten"]:
        if number > epochs or number - last > patience:
            break
        kept, last = metric, number
    return kept


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def ranking(records: list[dict], stop: tuple[int, int], sets: tuple = SETS) -> list[tuple[float, dict, dict]]:
    """Mean validation metric, its parts and the settings, of all that were trained on every set; best first."""
    found: dict[str, dict[str, list[float]]] = {}
    for record in records:
        of_sets = found.setdefault(json.dumps(record["settings"], sort_keys=True), {})
        of_sets.setdefault(f"{record['dataset']} {record['task']}", []).append(stopped_at(record, *stop))
    wanted = {f"{name} {task}" for name, task, _ in sets}
    ranked = []
    for settings, of_sets in found.items():
        if wanted <= set(of_sets):
            means = {name: fmean(of_sets[name]) for name in sorted(wanted)}
            ranked.append((fmean(means.values()), means, json.loads(settings)))
    return sorted(ranked, key=lambda entry: -entry[0])


def show(path: Path) -> None:
    """Print the best settings, and the mean over all others of every value."""
    records = read(path)
    for sets in (SETS, (*SETS, *GRAPH_SETS)):
        for stop in STOPS:
            for score, _, settings in ranking(records, stop, sets)[:1]:
                print(f"{len(sets)} sets, epochs {stop[0]}, patience {stop[1]}: {100 * score:.2f} {settings}")
        for score, means, settings in ranking(records, STOPS[-2], sets)[:12]:
            print(f"{100 * score:.2f}", settings, {name: round(100 * mean, 1) for name, mean in means.items()})
    ranked = ranking(records, STOPS[-2])
    for key in ("hidden_dim", "num_layers", "dropout", "lr", "weight_decay"):
        values = sorted({settings[key] for _, _, settings in ranked})
        means = {value: fmean(score for score, _, settings in ranked if settings[key] == value) for value in values}
        print(key, {value: round(100 * mean, 2) for value, mean in means.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder of the datasets, laid out as docs/data.md says")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shapes", type=int, nargs="+", default=range(len(SHAPES)), help="indices of what to train")
    parser.add_argument("--finalists", type=int, default=0, help="train the best so many on graphs too")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing more after this long")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    started, before = time.monotonic(), read(options.out)
    jobs: list[Callable[[], list[dict]]] = []
    done = {json.dumps([r["settings"], r["dataset"], r["task"], r["split"]], sort_keys=True) for r in before}
    if options.finalists:
        for _, _, settings in ranking(before, STOPS[-2])[: options.finalists]:
            for (name, task, count), index in ((entry, i) for entry in GRAPH_SETS for i in range(entry[2])):
                if json.dumps([settings, name, task, index], sort_keys=True) not in done:
                    jobs.append(lambda a=(name, task, index, settings): [train_graphs(*a, options.data)])
    elif not options.show:
        for shape, (name, task, count) in itertools.product([SHAPES[index] for index in options.shapes], SETS):
            if json.dumps([{**shape, **RATES[-1]}, name, task, count - 1], sort_keys=True) not in done:
                groups = [[index] for index in range(count)] if task == "link" else [list(range(count))]
                for group in groups:
                    arguments = (name, task, group, shape, options.device, options.data)
                    jobs.append(lambda arguments=arguments: train_together(*arguments))
    for job in jobs:
        if time.monotonic() - started > options.seconds:
            break
        records = job()
        with options.out.open("a") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)
        last = records[-1]
        print(last["dataset"], last["task"], last["settings"], f"{last['seconds']} s a training", flush=True)
    show(options.out)


if __name__ == "__main__":
    main()
