"""How far the members of each class lie from the learned centre of each class."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.viz.matrix import matrix_figure
from hkconv.viz.style import HEAT_MAP, styled
from hkconv.viz.trained_runs import Choice, read_answers

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    answers = read_answers(Path(run), Choice(model, split, seed), data, device)
    if answers.distances is None:
        raise InputError(f"run {run}: the model has no class centres ({answers.title}); hkn, hgcn and hybonet have")
    means = mean_distances(answers.labels, answers.distances.double()).numpy()
    return matrix_figure(
        means,
        lambda row, column: "–" if means[row, column] != means[row, column] else f"{means[row, column]:.2f}",
        # Near is dark, as right is in a confusion matrix.
        heat_map=f"{HEAT_MAP}_r",
        title=answers.title,
        scale="mean distance",
        across="centre of class"
        if answers.layers_read == 1
        else f"centre of class, last of {answers.layers_read} readouts",
    )
