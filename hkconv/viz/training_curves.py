"""Curves of the trainings of a run, epoch by epoch."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hkconv.engine.loop import Epoch
from hkconv.report.style import SeriesStyle, add_legend, new_figure, series, styled
from hkconv.tasks.run import read_history, read_recipe, read_result
from hkconv.viz.trained_runs import TrainingFilter, choose_trainings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CURVES = {"loss": "training loss", "val_loss": "validation loss", "val_metric": "validation {metric}"}
# So many lines of a model can still be told apart; more become a cloud.
FEW = 3


@styled
def training_curves_figure(
    run: Path | str, model: str | None = None, *, split: int | None = None, seed: int | None = None
) -> "Figure":
    """Draw training loss, validation loss and validation metric of a run against the epoch.

    Every training is a line, every model has its look, and a mark is the best epoch, whose weights were kept.

    Args:
        run: a folder that :func:`~hkconv.tasks.run.train_run` made.
        model: only trainings of this model.
        split, seed: only the trainings with these.

    Returns:
        The figure.
    """
    from matplotlib.ticker import MaxNLocator

    folder = Path(run)
    cells = choose_trainings(folder, TrainingFilter(model, split, seed))
    names = list(dict.fromkeys(cell.model for cell in cells))
    figure = new_figure(8.4, 2.9)
    panels = figure.subplots(1, len(CURVES))
    for cell in cells:
        alpha = 0.35 if sum(other.model == cell.model for other in cells) > FEW else 1.0
        history, best = read_history(folder, cell), read_result(folder, cell).best_epoch
        for axes, field in zip(panels, CURVES):
            _draw_training(axes, str(cell), history, best, field, series(names.index(cell.model)), alpha)
    for axes, title in zip(panels, CURVES.values()):
        axes.set_title(title.format(metric=read_result(folder, cells[0]).metric), fontweight="normal")
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    looks = {name: series(number) for number, name in enumerate(names)}
    add_legend(figure, looks, f"{read_recipe(folder).data.dataset}; a mark is the best epoch")
    return figure


def _draw_training(
    axes: "Axes", name: str, history: list[Epoch], best: int, field: str, look: SeriesStyle, alpha: float
) -> None:
    values = {epoch.number: getattr(epoch, field) for epoch in history}
    line: dict[str, Any] = {"color": look.color, "linestyle": look.linestyle, "linewidth": 1.1, "alpha": alpha}
    axes.plot(list(values), list(values.values()), **line, label=f"_{name}")
    axes.plot(best, values[best], look.marker, color=look.color, label=f"_best of {name}")
