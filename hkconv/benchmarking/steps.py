"""One training epoch as the training loop does it, without its evaluation, as a call that can be timed."""

from collections.abc import Callable

import torch

from hkconv.engine.guard import Rewind
from hkconv.engine.optimizer import RiemannianAdam
from hkconv.engine.settings import Settings
from hkconv.engine.step import CapturedSteps, Step, check_capture
from hkconv.tasks.tasks import Dataset, make_task


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
    batching = {name: getattr(settings, name) for name in ("batch_size", "groupings", "neighbors", "seed")}
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
