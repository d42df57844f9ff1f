"""The search that chose the defaults of HKN: one setting for all datasets and tasks, by validation data alone.

First, shapes and rates on the embedded sets (nodes and links), WebKB and Cora. Networks that differ in learning rate,
weight decay and split alone are trained as one: parameters have a leading axis of networks, and ``torch.func.vmap``
maps the reference backend over it. Then five finalists with the loop of ``hkconv train``, on PTC too, and what a plain
loop without weight decay makes of Cora. No task is ever given a test part. The score of a setting is the mean over the
datasets of its mean validation metric. The links of the stored record are of before HKN's views had loops and a higher
temperature for links.

Run: python benchmarks/defaults.py --data FOLDER --device cuda      (goes on where it was stopped)
     python benchmarks/defaults.py --data FOLDER --finalists
     python benchmarks/defaults.py --data FOLDER --device cuda --plain
     python benchmarks/defaults.py --show
"""

import argparse
import csv
import itertools
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
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
from hkconv.engine.optimizer import start_state, step_on_manifolds
from hkconv.models import HKN
from hkconv.tasks.building import load_dataset
from hkconv.tasks.metrics import roc_auc
from hkconv.tasks.recipe import make_recipe
from hkconv.tasks.run import train_cell
from hkconv.tasks.summary import Cell
from hkconv.tasks.tasks import make_task, moved

RESULTS = Path(__file__).parent / "results" / "defaults.csv"
EPOCHS = 200
STOPS = tuple(itertools.product((100, 150, 200), (50, 100)))
BETAS, EPS = (0.9, 0.999), 1e-8
# The limits that a score is kept for, and those that are the defaults.
COLUMNS = [f"{epochs}/{patience}" for epochs, patience in STOPS]
CHOSEN = "200/50"

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
FINALISTS = [
    {
        "hidden_dim": width,
        "num_layers": layers,
        "kernel_size": 4,
        "dropout": dropout,
        "reach": 5.0,
        "lr": lr,
        "weight_decay": 5e-3,
    }
    for width, layers, dropout, lr in (
        *((64, 2, 0.5, 0.01), (64, 3, 0.5, 0.01), (64, 2, 0.35, 0.01)),
        *((32, 2, 0.5, 0.02), (32, 3, 0.35, 0.01)),
    )
]
FINAL_SETS = (
    *(("tree", "node", 2), ("disease", "node", 2), ("texas", "node", 2)),
    *(("ptc", "graph", 3), ("cora", "node", 1)),
)
PLAIN_DROPOUTS, PLAIN_SEEDS = (0.35, 0.4, 0.5, 0.6), 8


@cache
def hidden_dataset(name: str, task: str, data: str | None) -> Any:
    """The dataset without the test part of any split."""
    return hide_test(load_dataset(make_recipe(dataset=name, task=task, num_splits=10, data=data)))


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
        _row("together", {**shape, **rates}, name, task, split, device, curves[:, :, index], seconds)
        for index, (rates, split) in enumerate(each)
    ]


def _row(
    how: str, settings: dict, name: str, task: str, split: int, device: str, curve: Tensor, seconds: float
) -> dict:
    about = {"how": how, "dataset": name, "task": task, "split": split, "device": device, "seconds": seconds}
    beaten = _beaten(curve)
    kept = {column: round(stopped_at(beaten, *stop), 4) for column, stop in zip(COLUMNS, STOPS)}
    return {**about, **settings, **kept}


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


def train_finalist(name: str, task: str, split: int, settings: dict, data: str | None) -> dict:
    """One training, as ``hkconv train`` does it."""
    fixed = {"dataset": name, "task": task, "models": ["hkn"], "num_splits": 10, "epochs": EPOCHS, "patience": 50}
    recipe = make_recipe({**fixed, **settings})
    done = train_cell(Cell("hkn", split, 0), recipe, hidden_dataset(name, task, data), torch.device("cpu"))
    curve = torch.tensor([[epoch.val_metric, -epoch.val_loss] for epoch in done.history])
    return _row("finalist", settings, name, task, split, "cpu", curve, round(done.result.seconds, 2))


def train_plainly(layers: int, dropout: float, device: str, data: str | None) -> list[dict]:
    """Cora after 100 epochs of a plain loop, lr 0.01 and nothing else, width 16; one record a seed."""
    dataset, shape = hidden_dataset("cora", "node", data), {"hidden_dim": 16, "num_layers": layers, "dropout": dropout}
    lr = torch.full((PLAIN_SEEDS,), 0.01, device=device)
    make = partial(HKN, dataset.num_features, num_classes=dataset.num_classes, **shape)
    networks = Networks(make, lr, torch.zeros_like(lr), list(range(PLAIN_SEEDS)))
    *_, last = itertools.islice(_train_nodes(networks, dataset, [0] * PLAIN_SEEDS), 100)
    settings = {**shape, "kernel_size": 4, "reach": 5.0, "lr": 0.01, "weight_decay": 0.0}
    about = {"how": "plain", "dataset": "cora", "task": "node", "device": device}
    return [
        {**about, "split": 0, "seed": seed, **settings, CHOSEN: round(value, 4)}
        for seed, value in enumerate(last[0].tolist())
    ]


def stopped_at(beaten: list[list[float]], epochs: int, patience: int) -> float:
    """The validation metric that a training with these limits keeps."""
    kept, last = 0.0, 0.0
    for number, metric in beaten:
        if number > epochs or number - last > patience:
            break
        kept, last = metric, number
    return kept


SETTINGS = ("hidden_dim", "num_layers", "kernel_size", "dropout", "reach", "lr", "weight_decay")
FIELDS = ("how", "dataset", "task", "split", "seed", *SETTINGS, *COLUMNS, "device", "seconds")


def read(path: Path) -> list[dict]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, records: list[dict]) -> None:
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerows(records)


def ranking(records: list[dict], how: str, column: str) -> list[tuple[float, dict[str, float], tuple]]:
    """Mean validation metric, its parts and the settings, of all that were trained on every set; best first."""
    found: dict[tuple, dict[str, list[float]]] = {}
    for record in records:
        if record["how"] == how:
            of_sets = found.setdefault(tuple(record[name] for name in SETTINGS), {})
            of_sets.setdefault(f"{record['dataset']} {record['task']}", []).append(float(record[column]))
    every = max(map(len, found.values()), default=0)
    means = {
        settings: {name: fmean(scores) for name, scores in sorted(of_sets.items())}
        for settings, of_sets in found.items()
        if len(of_sets) == every
    }
    ranked = [(fmean(parts.values()), parts, settings) for settings, parts in means.items()]
    return sorted(ranked, key=lambda entry: -entry[0])


def show(path: Path) -> None:
    """Print the best settings, the mean of every value over all others, and what finalists and plain loops came to."""
    records = read(path)
    for column in COLUMNS:
        for score, _, settings in ranking(records, "together", column)[:1]:
            print(f"epochs/patience {column}: {100 * score:.2f}", *settings)
    ranked = ranking(records, "together", CHOSEN)
    for how, count in (("together", 8), ("finalist", 5)):
        print(how, *SETTINGS)
        for score, parts, settings in ranking(records, how, CHOSEN)[:count]:
            print(f"{100 * score:.2f}", *settings, {name: round(100 * part, 1) for name, part in parts.items()})
    for place, name in enumerate(SETTINGS):
        values = sorted({settings[place] for _, _, settings in ranked})
        means = {value: fmean(score for score, _, settings in ranked if settings[place] == value) for value in values}
        print(name, {value: round(100 * mean, 2) for value, mean in means.items()})
    for layers, dropout in sorted({(r["num_layers"], r["dropout"]) for r in records if r["how"] == "plain"}):
        scores = [
            float(r[CHOSEN]) for r in records if (r["how"], r["num_layers"], r["dropout"]) == ("plain", layers, dropout)
        ]
        print(f"plain loop on Cora, {layers} layers, dropout {dropout}: {100 * fmean(scores):.2f}, {len(scores)} seeds")


def plan(options: argparse.Namespace, before: list[dict]) -> Iterator[Callable[[], list[dict]]]:
    """What is still to be trained."""
    done = {tuple(str(r[name]) for name in ("how", "dataset", "task", "split", *SETTINGS)) for r in before}

    def is_open(how: str, name: str, task: str, split: int, settings: dict) -> bool:
        return (how, name, task, str(split), *(str(settings[key]) for key in SETTINGS)) not in done

    if options.plain:
        for layers, dropout in itertools.product((2, 3), PLAIN_DROPOUTS):
            yield partial(train_plainly, layers, dropout, options.device, options.data)
    elif options.finalists:
        for (name, task, count), settings in itertools.product(FINAL_SETS, FINALISTS):
            for split in range(count):
                if is_open("finalist", name, task, split, settings):
                    yield lambda a=(name, task, split, settings): [train_finalist(*a, options.data)]
    else:
        for shape, (name, task, count) in itertools.product([SHAPES[index] for index in options.shapes], SETS):
            if is_open("together", name, task, count - 1, {**shape, **RATES[-1]}):
                yield partial(train_together, name, task, list(range(count)), shape, options.device, options.data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder of the datasets, laid out as docs/data.md says")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shapes", type=int, nargs="+", default=range(len(SHAPES)), help="indices of what to train")
    parser.add_argument("--finalists", action="store_true")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    if not options.show:
        for job in plan(options, read(options.out)):
            records = job()
            write(options.out, records)
            print(records[-1], flush=True)
    show(options.out)


if __name__ == "__main__":
    main()
