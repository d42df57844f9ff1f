"""Trainings a second on small graphs: one batch of networks against worker processes that train one each.

Run: python benchmarks/many_networks.py --data FOLDER --device cuda --out many-networks-cuda.json
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, cast

import torch

from hkconv.data import NodeDataset
from hkconv.engine.devices import describe_device, find_device
from hkconv.engine.many import train_many
from hkconv.engine.reproducibility import deterministic_algorithms, versions
from hkconv.experiments.tables import TableCell
from hkconv.experiments.training import CellTrainer
from hkconv.tasks.building import model_config
from hkconv.tasks.many import ManyNodeTask
from hkconv.tasks.recipe import make_recipe
from hkconv.tasks.run import build_cell, train_cell

DATASETS = ("texas", "cora")
MODELS = ("hkn", "gcn")
SPLITS = 10
RATES = (0.003, 0.01, 0.02, 0.05)
COMPARED_EPOCHS, COMPARED = 20, 3


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


def time_workers(groups: list[list[TableCell]], jobs: int) -> Iterator[float]:
    """Seconds in which so many processes, started once, train the cells of each group."""
    context = get_context("spawn")
    barrier, spent = context.Barrier(jobs), context.Queue()
    workers = [context.Process(target=_work, args=(groups, rank, jobs, barrier, spent)) for rank in range(jobs)]
    for worker in workers:
        worker.start()
    for _ in groups:
        yield spent.get()
    for worker in workers:
        worker.join()


def _work(groups: list[list[TableCell]], rank: int, jobs: int, barrier: Any, spent: Any) -> None:
    trainer = CellTrainer()
    for cells in groups:
        trainer.train(shortened(cells)[0])
        barrier.wait()
        started = time.perf_counter()
        for cell in cells[rank::jobs]:
            trainer.train(cell)
        if barrier.wait() == 0:
            spent.put(time.perf_counter() - started)


def largest_difference(dataset: str, model: str, given: argparse.Namespace) -> float:
    """The largest difference of a loss in the first epochs, without dropout, of a batch and of single trainings."""
    cells, device = make_cells(dataset, model, COMPARED, given), find_device(given.device)
    recipe = cells[0].recipe.replace(dropout=0.0, epochs=COMPARED_EPOCHS)
    data = cast(NodeDataset, CellTrainer().load(cells[0]))
    built = [build_cell(cell.training, recipe, model_config(recipe, model, data), device) for cell in cells]
    networks, settings = zip(*built)
    task = ManyNodeTask(data, [data.splits[cell.split] for cell in cells], next(networks[0].parameters()))
    with deterministic_algorithms(True):
        together = train_many(networks, task, settings, [0.0] * COMPARED)
        alone = [train_cell(cell.training, recipe, data, device) for cell in cells]
    return max(
        abs(here.loss - there.loss)
        for found, single in zip(together, alone)
        for here, there in zip(found.history, single.history, strict=True)
    )


def measure(given: argparse.Namespace) -> Iterator[dict[str, str | float]]:
    """Rows of the table."""
    pairs = [(dataset, model) for dataset in given.datasets for model in given.models]
    groups = [make_cells(*pair, given.singles, given) for pair in pairs]
    # All of them first: workers and batch must not share the device.
    for (dataset, model), of_workers in zip(pairs, list(time_workers(groups, given.jobs))):
        seconds = time_batch(make_cells(dataset, model, given.networks, given))
        batch, workers = given.networks / seconds, given.singles / of_workers
        yield {
            "dataset": dataset,
            "model": model,
            "networks": given.networks,
            "batch_per_second": batch,
            "workers": given.jobs,
            "workers_per_second": workers,
            "ratio": batch / workers,
            "largest_difference": largest_difference(dataset, model, given),
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
    device, rows = find_device(given.device), []
    print("| dataset | model | batch, trainings a second | workers | ratio | largest difference |")
    print("|---|---|---|---|---|---|")
    for row in measure(given):
        rows.append(row)
        figures = " | ".join(f"{row[name]:.3g}" for name in ("batch_per_second", "workers_per_second", "ratio"))
        print(f"| {row['dataset']} | {row['model']} | {figures} | {row['largest_difference']:.1e} |", flush=True)
        if given.out:
            place = {"device": describe_device(device), "cores": os.cpu_count(), "threads": torch.get_num_threads()}
            result = {"versions": versions(), "hardware": place, "epochs": given.epochs, "rows": rows}
            given.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
