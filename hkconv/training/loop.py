"""The training loop: one for node, graph and link tasks, short enough to be read in one sitting."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hkconv.data import LinkSplit, Split
from hkconv.errors import InputError
from hkconv.training.finite import first_non_finite
from hkconv.training.optimizer import RiemannianAdam
from hkconv.training.settings import Settings
from hkconv.training.tasks import Dataset, Score, Task, make_task


@dataclass(frozen=True)
class Epoch:
    """What one epoch came to; the first has number 1."""

    number: int
    loss: float
    val_loss: float
    val_metric: float


@dataclass(frozen=True)
class FitResult:
    """A finished training; the model is left with the weights of ``best_epoch``.

    Args:
        metric: the name of the metric.
        best_epoch: the epoch with the best validation metric, the lowest validation loss among equals.
        val_metric, val_loss: validation scores of that epoch.
        test_metric, test_loss: test scores, computed once, with the weights of that epoch.
        seconds: wall time.
        interrupted: whether Ctrl-C ended the training.
        history: every epoch.
    """

    metric: str
    best_epoch: int
    val_metric: float
    val_loss: float
    test_metric: float
    test_loss: float
    seconds: float
    interrupted: bool
    history: list[Epoch]

    @property
    def epochs(self) -> int:
        """How many epochs were trained."""
        return len(self.history)


def fit(
    model: torch.nn.Module,
    dataset: Dataset,
    split: Split | LinkSplit,
    settings: Settings | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
) -> FitResult:
    """Train a model on one split, with early stopping, and leave it with its best weights.

    Ctrl-C ends the training early but in order, unless it comes before the end of the first epoch.

    Args:
        model: a network with the signature of :class:`hkconv.models.HKN`; its device and type are kept.
        dataset: graphs and labels.
        split: one of the dataset's.
        settings: how to train.
        on_epoch: called after every epoch.

    Returns:
        Scores and history.
    """
    settings = settings or Settings()
    reference = next(model.parameters())
    task = make_task(dataset, split, reference, batch_size=settings.batch_size, seed=settings.seed)
    optimizer = RiemannianAdam(model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay)
    history: list[Epoch] = []
    best: _Best | None = None
    interrupted = False
    started = time.perf_counter()
    try:
        for number in range(1, settings.epochs + 1):
            loss = _train_epoch(model, task, optimizer, number)
            val = task.evaluate(model, "val")
            _check_finite(val.loss, model, number, "validation", lambda: task.evaluate(model, "val"))
            history.append(Epoch(number, loss, val.loss, val.metric))
            if best is None or best.is_beaten_by(val):
                best = _Best(number, val, _copy_of_weights(model))
            if on_epoch is not None:
                on_epoch(history[-1])
            if number - best.epoch >= settings.patience:
                break
    except KeyboardInterrupt:
        if best is None:
            raise
        interrupted = True
    model.load_state_dict(best.weights)
    test = task.evaluate(model, "test")
    seconds = time.perf_counter() - started
    return FitResult(
        task.metric,
        best.epoch,
        best.score.metric,
        best.score.loss,
        test.metric,
        test.loss,
        seconds,
        interrupted,
        history,
    )


@dataclass(frozen=True)
class _Best:
    epoch: int
    score: Score
    weights: dict[str, Tensor]

    def is_beaten_by(self, score: Score) -> bool:
        return (score.metric, -score.loss) > (self.score.metric, -self.score.loss)


def _train_epoch(model: torch.nn.Module, task: Task, optimizer: torch.optim.Optimizer, number: int) -> float:
    """One pass over the training data; returns the mean loss of its steps."""
    model.train()
    losses = []
    for batch in task.batches():
        optimizer.zero_grad()
        loss = task.loss(model, batch)
        losses.append(loss.item())
        _check_finite(losses[-1], model, number, "training", lambda batch=batch: task.loss(model, batch))
        loss.backward()
        optimizer.step()
    return sum(losses) / len(losses)


def _check_finite(loss: float, model: torch.nn.Module, epoch: int, part: str, forward: Callable[[], object]) -> None:
    if not math.isfinite(loss):
        place = first_non_finite(model, forward)
        raise InputError(
            f"the {part} loss became {loss} in epoch {epoch}; first not finite: {place}; a smaller lr may help"
        )


def _copy_of_weights(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
