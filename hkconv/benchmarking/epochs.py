"""The epoch benchmark: the runtime table of the paper, every model in the same harness and in turns."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from hkconv import models
from hkconv.benchmarking.child import failure_line
from hkconv.benchmarking.machine import header
from hkconv.benchmarking.paper import PAPER_GPU, PAPER_ROWS
from hkconv.benchmarking.steps import training_epoch
from hkconv.benchmarking.timing import LEAST_REPEATS, MOST_REPEATS_A_ROUND, ROUNDS, Timing, measure, timer_for
from hkconv.engine.reproducibility import seed_everything
from hkconv.errors import InputError
from hkconv.tasks.building import describe_dataset, load_dataset, model_config
from hkconv.tasks.recipe import Recipe
from hkconv.tasks.tasks import Dataset

EPOCH_MODELS = ("hkn", "hybonet", "hgcn", "gcn")
WARM_UP_EPOCHS = 3

Document = dict[str, Any]


@dataclass(frozen=True)
class EpochPlan:
    """What to measure.

    Args:
        datasets: names in the catalog.
        models: names for :func:`hkconv.models.create`.
        recipe: width, layers, kernel points, batch size and all else, the same for every dataset and model.
        device: where.
        budget: seconds of timing for each dataset, shared by the models.
    """

    datasets: tuple[str, ...]
    models: tuple[str, ...]
    recipe: Recipe
    device: torch.device
    budget: float = 20.0


def run_epochs(
    plan: EpochPlan, save: Callable[[Document], None] = lambda _: None, tell: Callable[[str], None] = lambda _: None
) -> Document:
    """Time one training epoch of every model on every dataset; evaluation is left out.

    Args:
        plan: what to measure.
        save: called with the document after every dataset.
        tell: called with what is being done.

    Returns:
        The document, as plain data; Ctrl-C ends it early with what was measured so far.
    """
    document = {
        **header("epochs", plan.device, plan.recipe.optim.seed, _protocol(plan)),
        "paper": {"gpu": PAPER_GPU, "seconds_an_epoch": [asdict(row) for row in PAPER_ROWS]},
        "cells": [],
    }
    try:
        for name in plan.datasets:
            cell = {"dataset": name, "models": {}, "ratios": {}}
            document["cells"].append(cell)
            _measure_dataset(cell, name, plan, tell)
            save(document)
    except KeyboardInterrupt:
        document["interrupted"] = True
    save(document)
    return document


def _protocol(plan: EpochPlan) -> dict[str, Any]:
    # Where the data lies says nothing about a time.
    recipe = {key: value for key, value in plan.recipe.flat().items() if key not in {"data", "out", "dataset"}}
    return {
        "recipe": {**recipe, "models": list(plan.models), "device": plan.device.type},
        "budget_seconds_a_dataset": plan.budget,
        "warm_up_epochs": WARM_UP_EPOCHS,
        "rounds": ROUNDS,
        "least_repeats": LEAST_REPEATS,
        "most_repeats": ROUNDS * MOST_REPEATS_A_ROUND,
        "measured": "the training steps of one epoch, as the training loop does them, without evaluation",
    }


def _measure_dataset(cell: Document, name: str, plan: EpochPlan, tell: Callable[[str], None]) -> None:
    tell(f"{name}: loading")
    recipe = plan.recipe.replace(dataset=name)
    try:
        dataset = load_dataset(recipe)
    except InputError as error:
        cell["skipped"] = str(error).splitlines()[0]
        return
    cell["data"] = {key: value for key, value in describe_dataset(dataset).items() if key.startswith("num_")}
    epochs = {}
    for model in plan.models:
        tell(f"{name}: warm-up of {model}")
        try:
            epochs[model] = _warm_epoch(model, recipe, dataset, plan)
            cell["models"][model] = {}
        # As in the layer benchmark: a model that does not run is named with its reason, and the others go on.
        except Exception as error:
            cell["models"][model] = {"skipped": f"failed: {failure_line(str(error)) or type(error).__name__}"}
    tell(f"{name}: timing")
    samples: dict[str, list[float]] = {}
    try:
        measure(epochs, plan.budget, timer_for(plan.device), samples)
    finally:
        for model, seconds in samples.items():
            if seconds:
                cell["models"][model]["epoch"] = Timing(tuple(seconds)).as_dict()
        cell["ratios"] = epoch_ratios(cell["models"])


def _warm_epoch(name: str, recipe: Recipe, dataset: Dataset, plan: EpochPlan) -> Callable[[], object]:
    """A call that trains one epoch, after a few that were not timed."""
    seed_everything(recipe.optim.seed)
    model = models.create(name, **model_config(recipe, name, dataset)).to(plan.device)
    epoch = training_epoch(model, dataset, recipe.settings(recipe.optim.seed))
    for _ in range(WARM_UP_EPOCHS):
        epoch()
    return epoch


def epoch_ratios(results: Document) -> dict[str, float]:
    """How many times as long an epoch of HKN takes as one of each other model."""
    medians = {name: result["epoch"]["median"] for name, result in results.items() if "epoch" in result}
    if "hkn" not in medians:
        return {}
    return {f"hkn/{name}": medians["hkn"] / median for name, median in medians.items() if name != "hkn"}
