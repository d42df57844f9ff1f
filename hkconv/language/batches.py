"""Batches of sentence pairs: alike in length, within a budget of tokens, few in shape, and ready before they are due.

The batches of an epoch follow from the seed and the epoch's number alone. So a place in the data is two numbers, and a
run that goes on from there sees what it would have seen.
"""

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hkconv.engine.distributed import ALONE, Processes
from hkconv.engine.steps import Position
from hkconv.errors import InputError
from hkconv.language.corpus import Corpus
from hkconv.models.translation.tokens import BEGIN, END, PAD

# Widths are multiples of 8, above 64 of 32: a kernel or graph that is made for a shape meets few of them.
_STEP, _LONG_STEP, _LONG = 8, 32, 64
_AHEAD = 8


def padded_width(length: np.ndarray, limit: int) -> np.ndarray:
    """The width that sentences of some lengths, their ends included, are padded to; at most ``limit``."""
    step = np.where(length <= _LONG, _STEP, _LONG_STEP)
    return np.minimum(-(-length // step) * step, limit)


class Batch(NamedTuple):
    """Sentence pairs as ids, padded to one width; of several processes, each has some of the rows.

    Args:
        source: ids and an end, ``(B, W)``.
        target: a beginning, ids and an end, ``(B, W + 1)``: all but the last position are read, all but the first are
            to be predicted.
        target_tokens: how many tokens are to be predicted in all rows, padding not counted.
        tokens: tokens of both sides of all rows, padding not counted.
    """

    source: Tensor
    target: Tensor
    target_tokens: int
    tokens: int


class Buckets:
    """The pairs of a corpus sorted into widths, and cut into batches.

    A pair's width is that of its longer side with an end. A batch has pairs of one width :math:`W` and at most
    :math:`\\lfloor \\text{budget} / W \\rfloor` of them.

    Args:
        corpus: the pairs.
        budget: most tokens of one side of a batch, padding included.
        fill: give every batch of a width as many rows, the last ones without a token to be predicted.
        processes: which divide the rows of every batch; its tokens are counted as a whole.
    """

    def __init__(self, corpus: Corpus, budget: int, *, fill: bool = False, processes: Processes = ALONE):
        limit = corpus.info.max_length
        if budget < limit:
            raise InputError(f"batch_tokens must be at least max_length = {limit}, got {budget}")
        self.corpus, self.budget, self.fill, self.processes = corpus, budget, fill, processes
        self.widths = padded_width(corpus.lengths.max(1) + 1, limit)

    def in_order(self) -> list[np.ndarray]:
        """The batches as numbers of pairs, by width and then as in the corpus."""
        return self._cut(np.argsort(self.widths, kind="stable"))

    def shuffled(self, seed: int, epoch: int) -> list[np.ndarray]:
        """The batches of an epoch: other pairs together each time, and in another order."""
        generator = np.random.default_rng([seed, epoch])
        order = generator.permutation(len(self.corpus))
        batches = self._cut(order[np.argsort(self.widths[order], kind="stable")])
        return [batches[index] for index in generator.permutation(len(batches))]

    def _cut(self, order: np.ndarray) -> list[np.ndarray]:
        widths = self.widths[order]
        edges = np.flatnonzero(np.diff(widths)) + 1
        batches = []
        for bucket in np.split(order, edges):
            rows = self.budget // int(self.widths[bucket[0]])
            batches += [bucket[start : start + rows] for start in range(0, len(bucket), rows)]
        return batches

    def load(self, pairs: np.ndarray) -> Batch:
        """This process's part of the batch of some pairs of one width, in ordinary memory."""
        width = int(self.widths[pairs[0]])
        sources, targets = self.corpus.lengths[pairs].T
        starts = self.corpus.starts[pairs]
        missing = self.budget // width - len(pairs) if self.fill else 0
        source = np.full((len(pairs), width), PAD, np.int64)
        target = np.full((len(pairs), width + 1), PAD, np.int64)
        self._fill(source, starts, sources, first=0)
        target[:, 0] = BEGIN
        self._fill(target, starts + sources, targets, first=1)
        # A source of padding alone has nothing to attend to, so that further rows repeat the first.
        source = np.concatenate([source, np.repeat(source[:1], missing, axis=0)])
        target = np.pad(target, ((0, missing), (0, 0)), constant_values=PAD)
        count = int(targets.sum()) + len(pairs)
        rows = self._share(torch.from_numpy(source), torch.from_numpy(target))
        return Batch(*rows, count, count + int(sources.sum()) + len(pairs))

    def _share(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of this process, or, if there are none for it, one without a token to be predicted."""
        rows = self.processes.share(source), self.processes.share(target)
        return rows if len(rows[0]) else (source[:1], torch.full_like(target[:1], PAD))

    def _fill(self, rows: np.ndarray, starts: np.ndarray, lengths: np.ndarray, first: int) -> None:
        """Write ids from position ``first`` on, and an end after them."""
        places = np.arange(rows.shape[1] - first)
        filled = places < lengths[:, None]
        rows[:, first:][filled] = self.corpus.ids[(starts[:, None] + places)[filled]]
        rows[np.arange(len(rows)), first + lengths] = END


def training_batches(buckets: Buckets, seed: int, start: Position) -> Iterator[tuple[Position, np.ndarray]]:
    """The batches from a place on, epoch after epoch without an end, each with the place after it."""
    epoch, first = start.epoch, start.batch
    while True:
        batches = buckets.shuffled(seed, epoch)
        for index in range(first, len(batches)):
            is_last = index + 1 == len(batches)
            yield Position(epoch + 1, 0) if is_last else Position(epoch, index + 1), batches[index]
        epoch, first = epoch + 1, 0


def prefetch(
    buckets: Buckets, plan: Iterable[tuple[Position, np.ndarray]], device: torch.device
) -> Generator[tuple[Position, Batch], None, None]:
    """Load batches in a thread, some ahead, and hand them over on a device.

    To a GPU they go from pinned memory, so that the host waits neither for the disk nor for the copy.

    Args:
        buckets: of the corpus.
        plan: which pairs, and what to hand over with them.
        device: where the batches are needed.
    """
    pinned = device.type == "cuda"

    def load_next() -> tuple[Position, Batch] | None:
        for mark, pairs in islice(steps, 1):
            batch = buckets.load(pairs)
            if pinned:
                batch = batch._replace(source=batch.source.pin_memory(), target=batch.target.pin_memory())
            return mark, batch
        return None

    # One thread, so the plan is walked through in order; it makes the plan of the next epoch too.
    steps = iter(plan)
    with ThreadPoolExecutor(1) as thread:
        waiting: deque[Future] = deque(thread.submit(load_next) for _ in range(_AHEAD))
        try:
            while (loaded := waiting.popleft().result()) is not None:
                waiting.append(thread.submit(load_next))
                mark, batch = loaded
                source, target = (ids.to(device, non_blocking=True) for ids in (batch.source, batch.target))
                yield mark, batch._replace(source=source, target=target)
        finally:
            for future in waiting:
                future.cancel()
