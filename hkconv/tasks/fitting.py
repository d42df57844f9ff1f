"""Training of a model on one split of a dataset."""

from collections.abc import Callable

import torch

from hkconv.data import LinkSplit, Split
from hkconv.engine.distributed import ALONE, Processes
from hkconv.engine.loop import Epoch, FitResult, train
from hkconv.engine.settings import Settings
from hkconv.engine.state import Unfinished
from hkconv.engine.step import check_capture
from hkconv.tasks.layerwise import check_sampled
from hkconv.tasks.tasks import BATCHING, Dataset, edge_dim_of, make_task


def fit(
    model: torch.nn.Module,
    dataset: Dataset,
    split: Split | LinkSplit,
    settings: Settings | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
    processes: Processes = ALONE,
    unfinished: Unfinished | None = None,
) -> FitResult:
    """Train a model on one split, with early stopping, and leave it with its best weights.

    Args:
        model: a network with the signature of :class:`hkconv.models.HKN`; its device and type are kept.
        dataset: graphs and labels.
        split: one of the dataset's.
        settings: how to train.
        on_epoch, processes, unfinished: as for :func:`hkconv.engine.loop.train`, which says what Ctrl-C does and what
            happens to numbers that are not finite.

    Returns:
        Scores and history; a :class:`~hkconv.engine.guard.DivergenceError` if the training does not stay finite.
    """
    settings, reference = settings or Settings(), next(model.parameters())
    if settings.capture:
        check_capture(reference.device, dataset.task, settings.groupings, model)
    check_sampled(model, dataset.task, settings, edge_dim_of(dataset))
    batching = {name: getattr(settings, name) for name in BATCHING}
    task = make_task(dataset, split, reference, **batching)
    return train(model, task, settings, on_epoch, processes, unfinished)
