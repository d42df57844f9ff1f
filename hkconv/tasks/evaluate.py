"""A second look at a finished run: every checkpoint is loaded and tested again."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch

from hkconv.engine.checkpoint import load_checkpoint
from hkconv.engine.devices import find_device
from hkconv.engine.task import Task
from hkconv.errors import InputError
from hkconv.tasks.building import describe_dataset, load_dataset
from hkconv.tasks.run import read_recipe, read_result, trained_cells
from hkconv.tasks.summary import Cell
from hkconv.tasks.tasks import Dataset, make_task

# Above the rounding of another device or thread count in a ROC-AUC; one node more or less is far above it.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Evaluation:
    """The test metric of one training as it was stored and as it comes out now."""

    cell: Cell
    metric: str
    stored: float
    recomputed: float

    @property
    def difference(self) -> float:
        """Distance between the two."""
        return abs(self.stored - self.recomputed)

    @property
    def agrees(self) -> bool:
        """True if the two are equal but for rounding."""
        return self.difference <= TOLERANCE


def evaluate_run(folder: Path | str, data: str | None = None, device: str = "auto") -> list[Evaluation]:
    """Test every checkpoint of a run again.

    Args:
        folder: a folder that :func:`~hkconv.tasks.run.train_run` made.
        data: folder of the datasets; by default the one the run used.
        device: where to compute.

    Returns:
        One evaluation for each training with a result.
    """
    folder, target = Path(folder), find_device(device)
    cells, dataset = open_run(folder, data)
    return [_evaluate_cell(folder, cell, dataset, target) for cell in cells]


def open_run(folder: Path, data: str | None = None) -> tuple[list[Cell], Dataset]:
    """Return the trainings of a run that have a result, at least one, and the dataset that they were on.

    Args:
        folder: of the run.
        data: folder of the datasets; by default the one the run used.
    """
    recipe = read_recipe(folder)
    if data is not None:
        recipe = recipe.replace(data=data)
    cells = trained_cells(folder, recipe)
    if not cells:
        raise InputError(f"run {folder} has no finished training to evaluate; continue it with --resume {folder}")
    return cells, load_dataset(recipe)


def _evaluate_cell(folder: Path, cell: Cell, dataset: Dataset, device: torch.device) -> Evaluation:
    stored = read_result(folder, cell)
    model, task = load_training(folder, cell, dataset, device)
    # A run hides no test part.
    before = cast(float, stored.test_metric)
    return Evaluation(cell, stored.metric, before, task.evaluate(model, "test").metric)


def load_training(folder: Path, cell: Cell, dataset: Dataset, device: torch.device) -> tuple[torch.nn.Module, Task]:
    """The model of a training and the task it was trained for.

    Args:
        folder: of the run.
        cell: which of its trainings.
        dataset: the run's; another one is refused.
        device: where the model goes.

    Returns:
        The model, in evaluation mode, and the task of its split.
    """
    model, info = load_checkpoint(folder / cell.folder, expected=cell.model)
    check_same_data(info.dataset, describe_dataset(dataset), folder / cell.folder)
    model.to(device)
    # A graph that was too large to train on at once is too large to test on at once.
    neighbors = info.training.get("neighbors")
    return model, make_task(dataset, dataset.splits[cell.split], next(model.parameters()), neighbors=neighbors)


def check_same_data(trained_on: dict, found: dict, folder: Path) -> None:
    """Raise unless the data that a checkpoint was trained on are those that were found.

    Args:
        trained_on: as the checkpoint describes them.
        found: as :func:`~hkconv.tasks.building.describe_dataset` does.
        folder: of the checkpoint.
    """
    for key, here in found.items():
        before = trained_on.get(key)
        # The same data may be read from another place.
        if key != "source" and before != here:
            raise InputError(f"checkpoint {folder} was trained on data with {key} {before!r}, but here it is {here!r}")
