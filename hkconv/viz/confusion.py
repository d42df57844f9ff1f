"""Which classes a trained model takes for which."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hkconv.viz.matrix import matrix_figure
from hkconv.viz.style import HEAT_MAP, styled
from hkconv.viz.trained_runs import Choice, read_answers

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def confusion_matrix(labels: Tensor, predicted: Tensor, num_classes: int) -> Tensor:
    """How many members of class i were taken for class j, ``(M,), (M,) -> (num_classes, num_classes)``."""
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
    answers = read_answers(Path(run), Choice(model, split, seed), data, device)
    counts = confusion_matrix(answers.labels, answers.predicted, answers.num_classes)
    rows = counts.sum(1, keepdim=True)
    shares = torch.where(rows > 0, counts / rows, torch.nan).numpy()
    right = 100 * counts.trace().item() / counts.sum().item()
    return matrix_figure(
        shares,
        lambda row, column: str(counts[row, column].item()),
        heat_map=HEAT_MAP,
        title=f"{answers.title}: {right:.1f} % right",
        scale="share of the class",
        across="predicted class",
        limits=(0, 1),
    )
