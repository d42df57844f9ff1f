"""Training a probe: Adam on batches of whole sentences, slower whenever unseen sentences stop getting better.

Hewitt and Manning (2019) start Adam anew at a tenth of the rate after an epoch without a better loss on the dev part.
So do we, from the best weights so far, at most twice, and from a rate of 0.01: theirs is 0.001, but for batches of 20
sentences, and unlike theirs our states all have one scale.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.language.probes import EuclideanProbe, depth_loss, distance_loss
from hkconv.language.tree_batches import TreeBatch

Task = Literal["distance", "depth"]
EPOCHS = 40
LEARNING_RATES = (1e-2, 1e-3, 1e-4)
# A loss counts as better if it is lower by this share.
BETTER_BY = 1e-4


class ProbeData(NamedTuple):
    """States of words and the trees over them.

    Attributes:
        states: ``(words, dim)``.
        batches: of the same words, on the same device.
    """

    states: Tensor
    batches: list[TreeBatch]


def train_probe(
    probe: EuclideanProbe, task: Task, train: ProbeData, dev: ProbeData, generator: torch.Generator
) -> list[float]:
    """Train a probe, which ends with the weights that did best on ``dev``.

    Args:
        probe: changed in place; on the device of the data.
        task: what it shall predict.
        train: what it learns from.
        dev: what tells when to stop.
        generator: on the CPU, for the order of the batches.

    Returns:
        The loss on ``dev`` after each epoch.
    """
    rates = iter(LEARNING_RATES)
    optimizer = torch.optim.Adam(probe.parameters(), lr=next(rates))
    losses: list[float] = []
    lowest, best = float("inf"), probe.weight.detach().clone()
    for _ in range(EPOCHS):
        for number in torch.randperm(len(train.batches), generator=generator).tolist():
            optimizer.zero_grad()
            probe_loss(probe, task, train.states, train.batches[number]).backward()
            optimizer.step()
        losses.append(mean_loss(probe, task, dev))
        if not losses[-1] < float("inf"):
            raise InputError(f"the loss of a {task} probe is {losses[-1]} after epoch {len(losses)}")
        if losses[-1] < lowest * (1 - BETTER_BY):
            lowest, best = losses[-1], probe.weight.detach().clone()
            continue
        with torch.no_grad():
            probe.weight.copy_(best)
        rate = next(rates, None)
        if rate is None:
            break
        optimizer = torch.optim.Adam(probe.parameters(), lr=rate)
    with torch.no_grad():
        probe.weight.copy_(best)
    return losses


def probe_loss(probe: EuclideanProbe, task: Task, states: Tensor, batch: TreeBatch) -> Tensor:
    """The loss of a probe on a batch, a mean over its sentences."""
    predicted = predict(probe, task, states, batch)
    if task == "distance":
        return distance_loss(predicted, batch.distances, batch.present)
    return depth_loss(predicted, batch.depths, batch.present)


def predict(probe: EuclideanProbe, task: Task, states: Tensor, batch: TreeBatch) -> Tensor:
    """Predicted distances ``(B, n, n)`` or depths ``(B, n)`` of a batch."""
    method: Callable[[Tensor], Tensor] = probe.distances if task == "distance" else probe.depths
    return method(states[batch.rows])


@torch.no_grad()
def mean_loss(probe: EuclideanProbe, task: Task, data: ProbeData) -> float:
    """The loss of a probe, a mean over all sentences."""
    losses = [probe_loss(probe, task, data.states, batch) * len(batch.rows) for batch in data.batches]
    return float(torch.stack(losses).sum()) / sum(len(batch.rows) for batch in data.batches)
