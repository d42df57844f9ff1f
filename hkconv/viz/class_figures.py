"""Matrices by class of a trained model: confusion, and mean distances to the learned class centers."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.report.style import HEAT_MAP, new_figure, styled, text_color
from hkconv.viz.trained_runs import TrainingFilter, read_answers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Beyond this many classes numbers would not fit into their cells, and the colours have to do.
MOST_NUMBERED = 16
CELL = 0.42
LONGEST_NAME = 16


def matrix_figure(
    colors: np.ndarray,
    texts: Callable[[int, int], str],
    *,
    heat_map: str,
    title: str,
    scale: str,
    across: str,
    names: Sequence[str] | None = None,
    limits: tuple[float | None, float | None] = (None, None),
) -> "Figure":
    """Draw a matrix whose rows are true classes.

    Args:
        colors: values that cells are coloured by, ``(C, C)``; NaN leaves a cell white.
        texts: what stands in the cell of a row and a column.
        heat_map: name of matplotlib's colour map.
        title: of the figure.
        scale: what the colours mean.
        across: what the columns are.
        names: of the classes; by default their numbers.
        limits: values at the two ends of the colours; by default the lowest and the highest there are.

    Returns:
        The figure.
    """
    import matplotlib

    count = len(colors)
    side = CELL * min(max(count, 5), MOST_NUMBERED)
    figure = new_figure(side + 1.5, side + 0.9)
    axes = figure.subplots()
    image = axes.imshow(colors, cmap=heat_map, vmin=limits[0], vmax=limits[1])
    axes.set_title(title, fontsize=8)
    axes.set_xlabel(across)
    axes.set_ylabel("true class")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    if count <= MOST_NUMBERED:
        shown = None if names is None else [_shortened(name) for name in names]
        axes.set_xticks(range(count), shown)
        axes.set_yticks(range(count), shown)
        if names is not None:
            axes.tick_params(axis="x", rotation=90)
        for row, column in np.ndindex(colors.shape):
            value = colors[row, column]
            shade = (
                "black"
                if math.isnan(value)
                else text_color(cast(float, image.norm(value)), matplotlib.colormaps[heat_map])
            )
            axes.text(column, row, texts(row, column), color=shade, ha="center", va="center", fontsize=7)
    bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.03)
    bar.set_label(scale)
    bar.outline.set_visible(False)
    return figure


def _shortened(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def confusion_matrix(labels: Tensor, predicted: Tensor, num_classes: int) -> Tensor:
    """Number of members of class i that were taken for class j, ``(M,), (M,) -> (num_classes, num_classes)``."""
    counts = torch.bincount(labels * num_classes + predicted, minlength=num_classes**2)
    return counts.view(num_classes, num_classes)


@styled
def confusion_figure(
    run: Path | str,
    model: str | None = None,
    *,
    split: int | None = None,
    seed: int | None = None,
    data: str | None = None,
    device: str = "auto",
) -> "Figure":
    """Draw the confusion matrix of a model of a run on its test data, all chosen trainings together.

    Cells are coloured by their share of the row. A member of several test sets counts once for each.

    Args:
        run: a folder that :func:`~hkconv.tasks.run.train_run` made.
        model: its name; by default the run's first.
        split, seed: only the trainings with these.
        data: folder of the datasets; by default the one the run used.
        device: where to compute.

    Returns:
        The figure.
    """
    answers = read_answers(Path(run), TrainingFilter(model, split, seed), data, device)
    counts = confusion_matrix(answers.labels, answers.predicted, answers.num_classes)
    rows = counts.sum(1, keepdim=True)
    shares = torch.where(rows > 0, counts / rows, torch.nan).numpy()
    right = 100 * counts.trace().item() / counts.sum().item()
    return matrix_figure(
        shares,
        lambda row, column: str(counts[row, column].item()),
        heat_map=HEAT_MAP,
        title=f"{answers.title}: {right:.1f} % right",
        names=answers.class_names,
        scale="share of the class",
        across="predicted class",
        limits=(0, 1),
    )


def mean_distances(labels: Tensor, distances: Tensor) -> Tensor:
    r"""Means :math:`m_{ij}` of :math:`d(x, c_j)` over the members :math:`x` of class i; NaN where it has none.

    Shapes: ``(M,), (M, C) -> (C, C)``.
    """
    members = torch.nn.functional.one_hot(labels, distances.size(1)).T.to(distances)
    return members @ distances / members.sum(1, keepdim=True)


@styled
def class_distances_figure(
    run: Path | str,
    model: str | None = None,
    *,
    split: int | None = None,
    seed: int | None = None,
    data: str | None = None,
    device: str = "auto",
) -> "Figure":
    """Draw the mean hyperbolic distance of test members of each class to the centre of each class.

    The centres are those that the logits are read off; for a graph task the distance is that of a graph's pooled
    point. Where several layers are read, as HKN does by default, they are those of the last, and the axis says so: the
    answer follows from all layers and need not be the nearest of them. Distances of all chosen trainings are averaged.

    Args:
        run: a folder that :func:`~hkconv.tasks.run.train_run` made.
        model: its name; by default the run's first.
        split, seed: only the trainings with these.
        data: folder of the datasets; by default the one the run used.
        device: where to compute.

    Returns:
        The figure.
    """
    answers = read_answers(Path(run), TrainingFilter(model, split, seed), data, device)
    if answers.distances is None:
        raise InputError(f"run {run}: the model has no class centres ({answers.title}); hkn, hgcn and hybonet have")
    means = mean_distances(answers.labels, answers.distances.double()).numpy()
    return matrix_figure(
        means,
        lambda row, column: "–" if means[row, column] != means[row, column] else f"{means[row, column]:.2f}",
        # Near is dark, as right is in a confusion matrix.
        heat_map=f"{HEAT_MAP}_r",
        title=answers.title,
        names=answers.class_names,
        scale="mean distance",
        across="centre of class"
        if answers.layers_read == 1
        else f"centre of class, last of {answers.layers_read} readouts",
    )
