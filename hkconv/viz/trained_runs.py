"""Trainings of a run that a figure draws, and the answers of their models on test data."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from hkconv.data import GraphDataset, NodeDataset
from hkconv.data.options import ACCURACY
from hkconv.engine.devices import find_device
from hkconv.engine.task import Task
from hkconv.errors import InputError
from hkconv.nn import HDistance
from hkconv.tasks.building import load_dataset
from hkconv.tasks.evaluate import load_training
from hkconv.tasks.run import read_recipe, trained_cells
from hkconv.tasks.summary import Cell
from hkconv.tasks.tasks import NodeTask, ScoredTask


@dataclass(frozen=True)
class TrainingFilter:
    """Filter of the trainings of a run; None leaves nothing out."""

    model: str | None = None
    split: int | None = None
    seed: int | None = None

    def has(self, cell: Cell) -> bool:
        """Return True if a training is one of them."""
        return all(wanted in (None, getattr(cell, name)) for name, wanted in vars(self).items())


@dataclass(frozen=True)
class Answers:
    """Answers of models on the test data of their trainings, one training after the other.

    Args:
        title: data, model and number of trainings.
        num_classes: number of classes.
        labels: the true classes, ``(M,)``.
        predicted: the classes with the largest logit, ``(M,)``.
        distances: to the centre of each class, ``(M, num_classes)``; None for a model without centres. Where
            several layers are read, these are the distances in the last, and the answer follows from all of them.
        layers_read: how many layers the answers are read off.
        class_names: of own data; None for a dataset of the catalog.
    """

    title: str
    num_classes: int
    labels: Tensor
    predicted: Tensor
    distances: Tensor | None
    layers_read: int = 1
    class_names: tuple[str, ...] | None = None


def choose_trainings(folder: Path, choice: TrainingFilter) -> list[Cell]:
    """The trainings of a run that a choice means, at least one.

    Args:
        folder: a folder that :func:`~hkconv.tasks.run.train_run` made.
        choice: which of them.

    Returns:
        Those with a result, in the run's order.
    """
    cells = trained_cells(folder, read_recipe(folder))
    if not cells:
        raise InputError(f"run {folder} has no finished training; continue it with hkconv train --resume {folder}")
    chosen = [cell for cell in cells if choice.has(cell)]
    if not chosen:
        wanted = " ".join(f"{name} {value}" for name, value in vars(choice).items() if value is not None)
        raise InputError(f"run {folder} has no training of {wanted}; it has {cells[0]} to {cells[-1]}")
    return chosen


def read_answers(folder: Path, choice: TrainingFilter, data: str | None = None, device: str = "auto") -> Answers:
    """Let the checkpoints of one model of a run answer on their test data.

    Args:
        folder: a folder that :func:`~hkconv.tasks.run.train_run` made.
        choice: which trainings; without a model those of the run's first.
        data: folder of the datasets; by default the one the run used.
        device: where to compute.

    Returns:
        The answers of all chosen trainings, on the CPU.
    """
    cells = choose_trainings(folder, choice)
    cells = [cell for cell in cells if cell.model == cells[0].model]
    recipe = read_recipe(folder)
    dataset = load_dataset(recipe if data is None else recipe.replace(data=data))
    target = find_device(device)
    found = [_answer(*load_training(folder, cell, dataset, target), folder) for cell in cells]
    labels, predicted, distances, layers_read = zip(*found)
    count = "1 training" if len(cells) == 1 else f"{len(cells)} trainings"
    # Links have no classes, and were refused.
    classified = cast(NodeDataset | GraphDataset, dataset)
    return Answers(
        title=f"{dataset.name}, {cells[0].model}, {count}",
        num_classes=classified.num_classes,
        labels=torch.cat(labels),
        predicted=torch.cat(predicted),
        distances=None if distances[0] is None else torch.cat(distances),
        layers_read=layers_read[0],
        class_names=None if classified.schema is None else classified.schema.classes,
    )


def _answer(model: torch.nn.Module, task: Task, folder: Path) -> tuple[Tensor, Tensor, Tensor | None, int]:
    """Labels, predicted classes and distances of one training's test data, and how many layers were read."""
    if task.metric != ACCURACY:
        raise InputError(f"run {folder} has no classes to compare: its task is scored by {task.metric}, not accuracy")
    # The layer sees graphs batch by batch, after their pooling.
    seen: list[Tensor] = []
    layer = getattr(model, "distance", None)
    hook = None
    if isinstance(layer, HDistance):
        hook = layer.register_forward_hook(lambda _, __, output: seen.append(output))
    # No other task is scored by accuracy.
    logits, labels = cast(ScoredTask, task).answers(model, "test")
    distances = None
    if hook is not None:
        hook.remove()
        distances = torch.cat(seen)
        # Without samples of neighbours a node task reads all nodes of its graph.
        if type(task) is NodeTask:
            distances = distances[task.parts["test"]]
        distances = distances.cpu()
    return labels.cpu(), logits.argmax(-1).cpu(), distances, getattr(model, "layers_read", 1)
