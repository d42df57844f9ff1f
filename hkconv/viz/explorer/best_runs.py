"""Explorer pages of the best networks of the tables: what a record says is trained once more, and shown."""

from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import cast

import torch

from hkconv.engine.reproducibility import deterministic_algorithms
from hkconv.errors import InputError
from hkconv.experiments.store import Record
from hkconv.experiments.training import torch_threads
from hkconv.models.hyperbolic_network import HyperbolicNetwork
from hkconv.models.options import removed_in
from hkconv.tasks.building import load_dataset
from hkconv.tasks.recipe import BEFORE, make_recipe, upgraded
from hkconv.tasks.run import train_cell
from hkconv.tasks.summary import Cell
from hkconv.viz.explorer.page import write_page
from hkconv.viz.explorer.run_scene import network_scene

#: Tables whose datasets have pages.
TABLES = ("node", "graph")


def best_record(records: Iterable[Record], dataset: str) -> Record:
    """The training to show of a dataset, by validation: the best split of the HKN with the highest mean of those that
    can still be trained, under the clean protocol.

    Args:
        records: of the results store.
        dataset: its name.
    """
    scores: dict[str, list[Record]] = {}
    for record in records:
        place = record["dataset"], record["protocol"], record["model"], record["quick"]
        is_shown = place == (dataset, "clean", "hkn", False) and not removed_in(record["recipe"])
        if record["table"] in TABLES and is_shown and record.get("val") is not None:
            scores.setdefault(record["variant"], []).append(record)
    if not scores:
        raise InputError(f"no training of HKN on dataset {dataset!r} under the clean protocol is stored")
    best = max(scores.values(), key=lambda found: fmean(record["val"] for record in found))
    return max(best, key=lambda record: record["val"])


def write_best_page(record: Record, page: Path, data: str | None = None) -> None:
    """Train what a record says once more, on the CPU, and write the explorer page of the network.

    Args:
        record: of :func:`best_record`.
        page: the file to write.
        data: folder of the datasets; None for the usual one.
    """
    cell = Cell(record["model"], record["split"], record["seed"])
    given = {"models": [cell.model], "num_splits": cell.split + 1, "device": "cpu", "data": data, "capture": False}
    recipe = make_recipe({**BEFORE, **upgraded(record["recipe"]), **given})
    dataset = load_dataset(recipe)
    with torch_threads(1), deterministic_algorithms(True):
        trained = train_cell(cell, recipe, dataset, torch.device("cpu"))
    write_page(network_scene(cast(HyperbolicNetwork, trained.model), dataset, trained.result), page)
