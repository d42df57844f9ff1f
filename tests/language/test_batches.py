from itertools import islice

import numpy as np
import pytest
import torch

from hkconv.errors import InputError
from hkconv.language.batches import WIDTH_STEP, Buckets, Position, prefetch, training_batches
from hkconv.models.translation.tokens import BEGIN, END, PAD


@pytest.mark.parametrize("budget", [64, 100, 1000])
def test_every_pair_is_met_once_an_epoch(corpus, budget):
    buckets = Buckets(corpus, budget)
    for batches in (buckets.in_order(), buckets.shuffled(0, 0), buckets.shuffled(3, 7)):
        assert sorted(np.concatenate(batches).tolist()) == list(range(300))


@pytest.mark.parametrize("budget", [64, 100, 1000])
def test_no_batch_is_above_the_budget_and_few_are_far_below(corpus, budget):
    buckets = Buckets(corpus, budget)
    loaded = [buckets.load(pairs) for pairs in buckets.shuffled(0, 0)]
    assert all(batch.source.numel() <= budget for batch in loaded)
    widths = {batch.source.size(1) for batch in loaded}
    assert all(width % WIDTH_STEP == 0 for width in widths)
    # One batch of each width is what was left over; every other is as full as can be.
    full = [batch for batch in loaded if batch.source.numel() + batch.source.size(1) > budget]
    assert len(full) >= len(loaded) - len(widths)
    assert len({tuple(batch.source.shape) for batch in loaded}) <= 2 * len(widths)


def test_a_batch_holds_the_ids_of_its_pairs(corpus, text, tokenizer):
    buckets, pairs = Buckets(corpus, 200), list(text)
    for numbers in buckets.shuffled(0, 0):
        batch = buckets.load(numbers)
        sides = [[tokenizer.encode(side).ids for side in pairs[number]] for number in numbers]
        for (source, target), row, goal in zip(sides, batch.source.tolist(), batch.target.tolist()):
            assert row == [*source, END] + [PAD] * (len(row) - len(source) - 1)
            assert goal == [BEGIN, *target, END] + [PAD] * (len(goal) - len(target) - 2)
        assert batch.target_tokens == (batch.target[:, 1:] != PAD).sum()
        assert batch.tokens == batch.target_tokens + (batch.source != PAD).sum()
        longest = max(len(side) + 1 for pair in sides for side in pair)
        assert longest <= batch.source.size(1) < longest + WIDTH_STEP
        assert batch.target.size(1) == batch.source.size(1) + 1


def test_the_widest_batch_is_no_wider_than_the_limit(text, tokenizer, tmp_path):
    from hkconv.language.corpus import Corpus, encode_corpus

    encode_corpus(text, tokenizer, 27, tmp_path / "corpus", "odd")
    buckets = Buckets(Corpus(tmp_path / "corpus", "odd"), 64)
    assert max(buckets.load(pairs).source.size(1) for pairs in buckets.in_order()) == 27
    with pytest.raises(InputError, match="batch_tokens must be at least max_length = 27, got 26"):
        Buckets(Corpus(tmp_path / "corpus", "odd"), 26)


def test_epochs_differ_and_follow_from_the_seed(corpus):
    buckets = Buckets(corpus, 100)

    def order(seed, epoch):
        return [batch.tolist() for batch in buckets.shuffled(seed, epoch)]

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1)
    assert order(0, 0) != order(1, 0)
    together = {frozenset(batch) for batch in order(0, 0)} & {frozenset(batch) for batch in order(0, 1)}
    assert len(together) < len(order(0, 0)) / 2


def test_going_on_from_any_place_sees_the_same_batches(corpus):
    buckets = Buckets(corpus, 300)
    epoch = len(buckets.shuffled(5, 0))
    whole = list(islice(training_batches(buckets, 5, Position()), 2 * epoch + 3))
    assert whole[epoch - 1][0] == Position(1, 0)
    for place in (0, 1, epoch - 1, epoch, 2 * epoch):
        rest = islice(training_batches(buckets, 5, whole[place][0]), 2)
        for (mark, batch), (expected_mark, expected) in zip(rest, whole[place + 1 :]):
            assert mark == expected_mark
            assert batch.tolist() == expected.tolist()


def test_prefetching_changes_nothing(corpus):
    buckets = Buckets(corpus, 100)
    plan = [(Position(0, number), pairs) for number, pairs in enumerate(buckets.shuffled(0, 0))]
    loaded = list(prefetch(buckets, plan, torch.device("cpu")))
    assert [mark for mark, _ in loaded] == [mark for mark, _ in plan]
    for (_, batch), (_, pairs) in zip(loaded, plan):
        torch.testing.assert_close(batch.source, buckets.load(pairs).source)


def test_an_error_while_loading_is_raised_where_the_batch_is_needed(corpus):
    buckets = Buckets(corpus, 100)
    batches = prefetch(buckets, [(Position(), np.array([0])), (Position(), np.array([300]))], torch.device("cpu"))
    next(batches)
    with pytest.raises(IndexError):
        next(batches)
