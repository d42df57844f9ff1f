"""Summary of a run of many trainings, as numbers to print and as JSON to keep."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, cast

import torch

from hkconv.data import GraphDataset, NodeDataset
from hkconv.data.neighbor_sampling import sampler_name
from hkconv.data.options import DIRECTIONS, LOG
from hkconv.engine.reproducibility import versions
from hkconv.tasks.building import describe_dataset
from hkconv.tasks.recipe import Recipe
from hkconv.tasks.tasks import Dataset, make_task

# Above the rounding of a mean of float64 numbers; one example more or less is far above it.
ROUNDING = 1e-9
# With fewer epochs than this no other setting has had its chance yet.
FEW_EPOCHS = 20


@dataclass(frozen=True)
class Cell:
    """One training of a run."""

    model: str
    split: int
    seed: int

    @property
    def folder(self) -> str:
        """Its folder inside the run's."""
        return f"{self.model}/split{self.split}-seed{self.seed}"

    def __str__(self) -> str:
        return f"{self.model} split {self.split} seed {self.seed}"


@dataclass(frozen=True)
class CellResult:
    """The scores of one training; ``seed`` is the seed it was done with. A hidden test part has no scores.

    ``interrupted`` says that Ctrl-C or the guard ended it, ``guard`` what the guard did when something was not finite.
    Of links ``test_ap`` is the average precision of the test part, which nothing is chosen by.
    """

    model: str
    split: int
    seed: int
    metric: str
    test_metric: float | None
    test_loss: float | None
    val_metric: float
    val_loss: float
    best_epoch: int
    epochs: int
    seconds: float
    parameters: int
    interrupted: bool
    guard: str | None = None
    test_ap: float | None = None

    @property
    def cell(self) -> Cell:
        """The training it is of."""
        return Cell(self.model, self.split, self.seed)


@dataclass(frozen=True)
class Spread:
    """The mean of some numbers and their sample deviation, None for a single number."""

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Mean and deviation of at least one value."""
        return cls(fmean(values), stdev(values) if len(values) > 1 else None)


@dataclass(frozen=True)
class ModelSummary:
    """One row of the table: a model over all its trainings that were not interrupted."""

    model: str
    test: Spread
    val: Spread
    parameters: int
    trainings: int
    mean_epochs: float
    seconds: float
    test_ap: Spread | None = None

    @classmethod
    def of(cls, results: Sequence[CellResult]) -> "ModelSummary":
        """The row of at least one training of one model."""
        precisions = [result.test_ap for result in results if result.test_ap is not None]
        return cls(
            model=results[0].model,
            # A run hides no test part.
            test=Spread.of([cast(float, result.test_metric) for result in results]),
            val=Spread.of([result.val_metric for result in results]),
            parameters=results[0].parameters,
            trainings=len(results),
            mean_epochs=fmean(result.epochs for result in results),
            seconds=sum(result.seconds for result in results),
            test_ap=Spread.of(precisions) if precisions else None,
        )


@dataclass(frozen=True)
class Unlearned:
    """A model that learned nothing in ``trainings`` of ``finished`` trainings, and the options to try."""

    model: str
    trainings: int
    finished: int
    remedies: list[str] = field(default_factory=list)


def find_unlearned(cells: Iterable[CellResult], unlearned_scores: Sequence[float]) -> list[Unlearned]:
    """The models that learned nothing.

    A training has learned nothing if its validation metric, that of the best epoch, is at most one example above what
    one answer for all examples gets: the most frequent class, or 0.5 for a ROC-AUC. A single lucky example is no
    learning. A perfect score never counts as nothing, even if so many examples are of one class that one answer for all
    is nearly perfect. A model has learned nothing if that holds for more than half of its finished trainings.

    Args:
        cells: trainings of any models; interrupted ones are left out.
        unlearned_scores: of each split, see :meth:`hkconv.tasks.tasks.SplitTask.unlearned_score`.

    Returns:
        Those models, in the order of the trainings, without remedies.
    """
    by_model: dict[str, list[bool]] = {}
    for result in cells:
        if not result.interrupted:
            verdict = _is_unlearned(result.val_metric, unlearned_scores[result.split])
            by_model.setdefault(result.model, []).append(verdict)
    found = [Unlearned(model, sum(verdicts), len(verdicts)) for model, verdicts in by_model.items()]
    return [entry for entry in found if 2 * entry.trainings > entry.finished]


def _is_unlearned(metric: float, most: float) -> bool:
    return metric < 1 and metric <= most + ROUNDING


@dataclass(frozen=True)
class RunSummary:
    """A run: its recipe and data, a row for each model, and every training.

    Args:
        folder: where the files are.
        recipe: what was asked for.
        dataset: see :func:`hkconv.tasks.building.describe_dataset`.
        metric: the name of the metric.
        chance_rule, chance: a rule that needs no model, and its test metric over the splits.
        cells: every training with a checkpoint, an interrupted one too.
        device: what it was trained on.
        versions: of the software.
        seconds: wall time of this call, without trainings that an earlier one had finished.
        interrupted: whether Ctrl-C ended the run.
        sampler: what sampled neighbours, ``"pyg-lib"``, ``"torch-sparse"`` or ``"numba"``; None where nothing did.
        unlearned: the models that learned nothing, see :func:`hkconv.tasks.summary.find_unlearned`.
        notes: on how the columns of own data were taken, a sentence each.
    """

    folder: Path
    recipe: Recipe
    dataset: dict[str, Any]
    metric: str
    chance_rule: str
    chance: Spread
    cells: list[CellResult]
    device: str
    versions: dict[str, str]
    seconds: float
    interrupted: bool
    sampler: str | None = None
    unlearned: list[Unlearned] = field(default_factory=list)
    notes: tuple[str, ...] = ()

    @property
    def models(self) -> list[ModelSummary]:
        """A row for each model that finished a training, in the recipe's order."""
        finished = {
            name: [result for result in self.cells if result.model == name and not result.interrupted]
            for name in self.recipe.model.models
        }
        return [ModelSummary.of(results) for results in finished.values() if results]

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON can hold it. The folder is left out: it may be moved."""
        return {
            "interrupted": self.interrupted,
            "metric": self.metric,
            "dataset": self.dataset,
            "chance": {"rule": self.chance_rule, "test": asdict(self.chance)},
            "models": [asdict(row) for row in self.models],
            "unlearned": [asdict(entry) for entry in self.unlearned],
            "notes": list(self.notes),
            "cells": [asdict(result) for result in self.cells],
            "recipe": self.recipe.flat(),
            "device": self.device,
            "sampler": self.sampler,
            "versions": self.versions,
            "seconds": self.seconds,
        }


def summarize(
    recipe: Recipe,
    dataset: Dataset,
    folder: Path,
    cells: list[CellResult],
    device: str,
    seconds: float,
    interrupted: bool,
) -> RunSummary:
    """Return what a run came to.

    Args:
        recipe, dataset, folder: of the run.
        cells: every training with a result, in the order of the recipe.
        device: what it was trained on, in words.
        seconds: wall time.
        interrupted: whether Ctrl-C ended it.
    """
    tasks = [make_task(dataset, split, torch.empty(0)) for split in dataset.splits]
    return RunSummary(
        folder=folder,
        recipe=recipe,
        dataset=describe_dataset(dataset),
        metric=tasks[0].metric,
        chance_rule=tasks[0].chance,
        chance=Spread.of([task.chance_score() for task in tasks]),
        cells=cells,
        device=device,
        versions=versions(),
        seconds=seconds,
        interrupted=interrupted,
        sampler=None if recipe.optim.neighbors is None else sampler_name(),
        unlearned=[
            replace(entry, remedies=_remedies(recipe, dataset, entry.model))
            for entry in find_unlearned(cells, [task.unlearned_score() for task in tasks])
        ],
        notes=() if dataset.schema is None else dataset.schema.notes,
    )


def _remedies(recipe: Recipe, dataset: Dataset, model: str) -> list[str]:
    """Options that may help a model which learned nothing; none that is on already or would change nothing."""
    if recipe.optim.epochs < FEW_EPOCHS:
        return ["more --epochs", "another --lr"]
    others = [direction for direction in DIRECTIONS if direction != recipe.data.direction]
    hint = [f"--direction {' or '.join(others)} (if directed)"] if _could_have_direction(dataset, model) else []
    return [*_scalings(recipe, dataset), *hint, "another --lr"]


def _could_have_direction(dataset: Dataset, model: str) -> bool:
    """Tell whether the model may hear from other nodes over edges of another direction."""
    if isinstance(dataset, GraphDataset):
        # The edges of the catalog's graphs go both ways, and bonds of molecules have no direction.
        can_point = dataset.schema is not None and dataset.num_columns is None
    else:
        # Links are used both ways, and so are the edges of the embedded trees.
        can_point = isinstance(dataset, NodeDataset) and not dataset.source.startswith("embedded")
    return can_point and model != "mlp"


def _scalings(recipe: Recipe, dataset: Dataset) -> list[str]:
    """The options that put the features on another scale; neither applies to categories."""
    if isinstance(dataset, GraphDataset) and dataset.num_columns is not None:
        return []
    features = [graph.x for graph in (dataset.graphs if isinstance(dataset, GraphDataset) else [dataset.graph])]
    if dataset.splits[0].scaling is not None:
        x = torch.cat(features)
        varies = (x.nan_to_num().amax(0) > x.nan_to_num().amin(0)) & (x.abs() > 1).any(0)
        return ["--scale log"] if recipe.data.scale != LOG and bool(varies.any()) else []
    is_useful = {
        "--log-features": not recipe.data.log_features and any(bool((x.abs() > 1).any()) for x in features),
        "--normalize-features": not recipe.data.normalize_features and _can_divide_rows(features),
    }
    return [option for option in is_useful if is_useful[option]]


def _can_divide_rows(features: list[torch.Tensor]) -> bool:
    """Tell whether rows can be divided by their sums: nothing is negative, and something is left and changes by it."""
    sums = torch.cat([x.sum(dim=1) for x in features])
    has_other_sums = bool(((sums != 0) & ((sums - 1).abs() > 1e-5)).any())
    return features[0].size(1) > 1 and has_other_sums and not any(bool((x < 0).any()) for x in features)
