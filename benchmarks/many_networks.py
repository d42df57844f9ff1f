"""Trainings a second on small graphs: one batch of networks against worker processes that train one each.

Run: python benchmarks/many_networks.py --data FOLDER --device cuda --out many-networks-cuda.json
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import torch

from hkconv.engine.devices import describe_device, find_device
from hkconv.engine.reproducibility import versions
from hkconv.experiments.pool import results_of
from hkconv.experiments.tables import TableCell
from hkconv.experiments.training import CellTrainer
from hkconv.tasks.recipe import make_recipe

DATASETS = ("texas", "cora")
MODELS = ("hkn", "gcn")
SPLITS = 10
RATES = (0.003, 0.01, 0.02, 0.05)


def make_cells(dataset: str, model: str, count: int, given: argparse.Namespace) -> list[TableCell]:
    """Trainings of one system: ten splits with one learning rate after the other, then with another seed."""
    recipe = make_recipe(
        dataset=dataset,
        models=(model,),
        num_splits=SPLITS,
        epochs=given.epochs,
        patience=given.epochs,
        deterministic=True,
        device=given.device,
        data=given.data,
    )
    return [
        TableCell(
            "benchmark",
            model,
            number % SPLITS,
            number // (SPLITS * len(RATES)),
            False,
            recipe.replace(lr=RATES[number // SPLITS % len(RATES)]),
        )
        for number in range(count)
    ]


def shortened(cells: list[TableCell]) -> list[TableCell]:
    """The same trainings, over before they have begun: they compile kernels and load data."""
    return [replace(cell, recipe=cell.recipe.replace(epochs=2)) for cell in cells]


def time_batch(cells: list[TableCell]) -> float:
    """Seconds of one batch of all cells."""
    trainer = CellTrainer(threads=torch.get_num_threads())
    trainer.train_together(shortened(cells))
    started = time.perf_counter()
    records = trainer.train_together(cells)
    spent = time.perf_counter() - started
    if None in records:
        raise SystemExit("a network of the batch met a number that is not finite: nothing to compare")
    return spent


def time_workers(cells: list[TableCell], jobs: int) -> float:
    """Seconds in which so many processes train all cells, from when the last of them is ready."""
    warm_ups = shortened(cells[:1] * jobs)
    started = 0.0

    def in_turn() -> Iterator[TableCell]:
        yield from warm_ups
        yield from cells

    with closing(results_of(CellTrainer(), in_turn(), jobs)) as results:
        for number, (cell, outcome) in enumerate(results, start=1):
            if outcome.record is None or "error" in outcome.record:
                raise SystemExit(f"{cell} failed: {outcome}")
            if number == jobs:
                started = time.perf_counter()
    return time.perf_counter() - started


def measure(given: argparse.Namespace) -> Iterator[dict[str, str | float]]:
    """Rows of the table."""
    for dataset in given.datasets:
        for model in given.models:
            ways = {
                f"one batch of {given.networks}": (given.networks, time_batch),
                f"{given.jobs} worker processes": (given.singles, lambda cells: time_workers(cells, given.jobs)),
            }
            for way, (count, timed) in ways.items():
                seconds = timed(make_cells(dataset, model, count, given))
                yield {
                    "dataset": dataset,
                    "model": model,
                    "way": way,
                    "trainings": count,
                    "seconds": seconds,
                    "trainings_per_second": count / seconds,
                }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder of the datasets, laid out as docs/data.md says")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, ...")
    parser.add_argument("--datasets", nargs="+", default=DATASETS)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--networks", type=int, default=40, help="networks of the batch")
    parser.add_argument("--epochs", type=int, default=200, help="of every training")
    parser.add_argument("--jobs", type=int, default=4, help="worker processes")
    parser.add_argument("--singles", type=int, default=16, help="trainings by worker processes")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    given = parser.parse_args()
    device = find_device(given.device)
    rows = []
    print("| dataset | model | way | seconds | trainings a second |\n|---|---|---|---|---|")
    for row in measure(given):
        rows.append(row)
        figures = f"{row['seconds']:.1f} | {row['trainings_per_second']:.2f}"
        print(f"| {row['dataset']} | {row['model']} | {row['way']} | {figures} |", flush=True)
    if given.out:
        place = {"device": describe_device(device), "cores": os.cpu_count(), "threads": torch.get_num_threads()}
        result = {"versions": versions(), "hardware": place, "epochs": given.epochs, "rows": rows}
        given.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
