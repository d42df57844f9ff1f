"""The paper's runtime table: seconds an epoch, measured by :mod:`hkconv.experiments.epochs`, kept as records."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch

from hkconv.data.catalog import CATALOG
from hkconv.engine.devices import describe_device
from hkconv.engine.reproducibility import source_commit
from hkconv.engine.step import batches_return
from hkconv.experiments.epochs import PAPER_DATASETS, EpochPlan, run_epochs
from hkconv.experiments.store import RUNTIME, Record
from hkconv.experiments.tables import Choice, Execution, TableCell, check_names, is_wanted
from hkconv.tasks.recipe import FIRST_RELEASE, Recipe, make_recipe

# The systems of the paper's table, and one that is not hyperbolic for scale.
SYSTEMS = {"HKN": "hkn", "HyboNet": "hybonet", "H2H-GCN": "h2h-gcn", "HGCN": "hgcn", "GCN": "gcn"}
METRIC = "seconds an epoch"
BUDGET, QUICK_BUDGET = 20.0, 2.0

_NO_SCORES = dict.fromkeys(("val", "test_loss", "val_loss", "best_epoch", "epochs", "seconds", "parameters"))


@dataclass(frozen=True)
class RuntimeCell(TableCell):
    """One cell of the table; ``device`` is the device in words, for a time belongs to it."""

    device: str

    def head(self) -> Record:
        return {**super().head(), "device": self.device}


def list_timings(choice: Choice, place: Execution, device: torch.device, *, strict: bool) -> list[RuntimeCell]:
    """The cells of the table, dataset by dataset.

    Args:
        choice: what of them is wanted; protocols make no difference to a time.
        place: where.
        device: that place's.
        strict: whether a name that this table does not have is refused; other tables may have it.
    """
    if strict:
        check_names(choice.datasets, PAPER_DATASETS, "dataset")
        check_names(choice.systems, SYSTEMS, "system")
    return [
        RuntimeCell(RUNTIME, label, 0, 0, choice.quick, _recipe(dataset, model, place), describe_device(device))
        for dataset in PAPER_DATASETS
        if is_wanted(dataset, choice.datasets)
        for label, model in SYSTEMS.items()
        if is_wanted(label, choice.systems)
    ]


def time_epochs(timings: list[RuntimeCell], device: torch.device, tell: Callable[[str], None]) -> Iterator[Record]:
    """A record for each cell. The systems of a dataset are timed in turns, in this process and with nothing beside it.

    Args:
        timings: what to measure.
        device: where.
        tell: called with what is being done.
    """
    for dataset, group in groupby(timings, key=lambda timing: timing.recipe.data.dataset):
        cells = list(group)
        models = tuple(cell.training.model for cell in cells)
        budget = QUICK_BUDGET if cells[0].quick else BUDGET
        document = run_epochs(EpochPlan((dataset,), models, cells[0].recipe, device, budget), tell=tell)
        if document["interrupted"]:
            raise KeyboardInterrupt
        for cell in cells:
            yield {**cell.head(), **_figures(document["cells"][0], cell.training.model), **_circumstances(document)}


def _recipe(dataset: str, model: str, place: Execution) -> Recipe:
    """Width, layers and all else as they were when the tables began, the same for every dataset and system."""
    capture = place.capture and batches_return(CATALOG[dataset].tasks[0])
    fixed = {"dataset": dataset, "models": (model,), "num_splits": 1}
    return make_recipe({**FIRST_RELEASE, **fixed, "device": place.device, "data": place.data, "capture": capture})


def _figures(measured: dict[str, Any], model: str) -> dict[str, Any]:
    if "skipped" in measured:
        return {"error": measured["skipped"]}
    result = measured["models"][model]
    if "epoch" not in result:
        return {"error": result.get("skipped", "not measured")}
    timing = result["epoch"]
    return {
        "metric": METRIC,
        "test": timing["median"],
        **_NO_SCORES,
        "timing": timing,
        "dataset_info": measured["data"],
    }


def _circumstances(document: dict[str, Any]) -> dict[str, Any]:
    return {
        "machine": document["machine"],
        "versions": document["versions"],
        "commit": source_commit(),
        "when": document["started"],
    }
