"""Seconds of a training epoch, every model in the same harness and in turns, and the paper's own."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from hkconv import models
from hkconv.engine.guard import Rewind
from hkconv.engine.measuring import (
    LEAST_REPEATS,
    MOST_REPEATS_A_ROUND,
    ROUNDS,
    failure_line,
    fill_cells,
    header,
    time_calls,
)
from hkconv.engine.optimizer import RiemannianAdam
from hkconv.engine.reproducibility import seed_everything
from hkconv.engine.settings import Settings
from hkconv.engine.step import CapturedSteps, Step, check_capture
from hkconv.errors import InputError
from hkconv.tasks.building import describe_dataset, load_dataset, model_config
from hkconv.tasks.recipe import Recipe
from hkconv.tasks.tasks import BATCHING, Dataset, make_task

EPOCH_MODELS = ("hkn", "hybonet", "hgcn", "gcn")
WARM_UP_EPOCHS = 3

Document = dict[str, Any]

# From the paper's appendix, "Runtime of different hyperbolic GCNs in graph-related tasks"; not measured by us.
PAPER_GPU = "RTX 3090"


@dataclass(frozen=True)
class PaperRow:
    """Seconds an epoch of one dataset; ``dataset`` is its name in our catalog."""

    dataset: str
    hknet: float
    hybonet: float
    h2h_gcn: float
    hgcn: float


PAPER_ROWS = (
    PaperRow("ptc", 1.04, 0.55, 0.63, 0.97),
    PaperRow("enzymes", 2.48, 1.66, 1.43, 2.27),
    PaperRow("proteins", 3.05, 2.26, 2.17, 2.94),
    PaperRow("imdb-binary", 2.82, 1.83, 1.64, 2.62),
    PaperRow("imdb-multi", 5.63, 2.92, 2.58, 4.21),
    PaperRow("cornell", 0.029, 0.0066, 0.0089, 0.027),
    PaperRow("texas", 0.021, 0.0076, 0.0084, 0.025),
    PaperRow("wisconsin", 0.020, 0.0076, 0.0091, 0.031),
    PaperRow("chameleon", 0.035, 0.016, 0.013, 0.031),
    PaperRow("squirrel", 0.15, 0.016, 0.014, 0.043),
    PaperRow("actor", 0.051, 0.012, 0.014, 0.042),
    PaperRow("cora", 0.024, 0.0084, 0.011, 0.035),
    PaperRow("pubmed", 0.022, 0.0082, 0.0076, 0.027),
)
PAPER_DATASETS = tuple(row.dataset for row in PAPER_ROWS)


@dataclass(frozen=True)
class EpochPlan:
    """Models, datasets and devices to measure.

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
    }
    cells = ({"dataset": name, "models": {}, "ratios": {}} for name in plan.datasets)
    return fill_cells(document, cells, lambda cell: _measure_dataset(cell, plan, tell), save)


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


def _measure_dataset(cell: Document, plan: EpochPlan, tell: Callable[[str], None]) -> None:
    name = cell["dataset"]
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
    try:
        time_calls(epochs, plan.budget, plan.device, cell["models"], "epoch")
    finally:
        cell["ratios"] = epoch_ratios(cell["models"])


def _warm_epoch(name: str, recipe: Recipe, dataset: Dataset, plan: EpochPlan) -> Callable[[], object]:
    """A call that trains one epoch, after a few that were not timed."""
    seed_everything(recipe.optim.seed)
    model = models.create(name, **model_config(recipe, name, dataset)).to(plan.device)
    epoch = training_epoch(model, dataset, recipe.settings(recipe.optim.seed))
    for _ in range(WARM_UP_EPOCHS):
        epoch()
    return epoch


def training_epoch(model: torch.nn.Module, dataset: Dataset, settings: Settings) -> Callable[[], float]:
    """A call that trains one more epoch on the first split and returns its mean loss.

    It takes the steps of :func:`hkconv.tasks.fitting.fit`, keeps what that keeps to trace a loss that is not finite,
    and like that waits for a GPU once, at the end.

    Args:
        model: on its device.
        dataset: with at least one split.
        settings: how to train.
    """
    reference = next(model.parameters())
    if settings.capture:
        check_capture(reference.device, dataset.task, settings.groupings)
    batching = {name: getattr(settings, name) for name in BATCHING}
    task = make_task(dataset, dataset.splits[0], reference, **batching)
    optimizer = RiemannianAdam(
        model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay, capturable=settings.capture
    )
    rewind = Rewind(model, optimizer, task.generator)
    step = (CapturedSteps if settings.capture else Step)(model, task, optimizer)

    def epoch() -> float:
        rewind.save()
        model.train()
        return torch.stack([step([batch])[0] for batch in task.batches()]).mean().item()

    return epoch


def epoch_ratios(results: Document) -> dict[str, float]:
    """Ratio of the time of HKN's epoch to that of each other model."""
    medians = {name: result["epoch"]["median"] for name, result in results.items() if "epoch" in result}
    if "hkn" not in medians:
        return {}
    return {f"hkn/{name}": medians["hkn"] / median for name, median in medians.items() if name != "hkn"}
