from itertools import islice

import numpy as np
import pytest
import torch

from hkconv.engine.distributed import Place, Processes
from hkconv.errors import InputError
from hkconv.language.batches import Buckets, Position, padded_width, prefetch, training_batches
from hkconv.language.loss import summed_loss
from hkconv.models.translation import create_translator
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
    assert all(width % 8 == 0 for width in widths)
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
        assert longest <= batch.source.size(1) < longest + 8
        assert batch.target.size(1) == batch.source.size(1) + 1


def test_the_widest_batch_is_no_wider_than_the_limit(text, tokenizer, tmp_path):
    from hkconv.language.corpus import Corpus, encode_corpus

    encode_corpus(text, tokenizer, 27, tmp_path / "corpus", "odd")
    buckets = Buckets(Corpus(tmp_path / "corpus", "odd"), 64)
    assert max(buckets.load(pairs).source.size(1) for pairs in buckets.in_order()) == 27
    with pytest.raises(InputError, match="batch_tokens must be at least max_length = 27, got 26"):
        Buckets(Corpus(tmp_path / "corpus", "odd"), 26)


def test_widths_are_few():
    lengths = np.arange(1, 257)
    widths = padded_width(lengths, 250)
    assert (widths >= np.minimum(lengths, 250)).all()
    assert (widths[:64] - lengths[:64] < 8).all()
    assert sorted(set(widths.tolist())) == [8, 16, 24, 32, 40, 48, 56, 64, 96, 128, 160, 192, 224, 250]


def test_filled_batches_have_one_shape_a_width_and_the_same_tokens(corpus):
    plain, filled = Buckets(corpus, 300), Buckets(corpus, 300, fill=True)
    shapes = set()
    for pairs in plain.shuffled(0, 0):
        batch, full = plain.load(pairs), filled.load(pairs)
        rows = len(pairs)
        shapes.add(tuple(full.source.shape))
        assert torch.equal(full.source[:rows], batch.source)
        assert torch.equal(full.target[:rows], batch.target)
        assert (full.source[rows:] == full.source[0]).all()
        assert (full.target[rows:] == PAD).all()
        assert (full.target_tokens, full.tokens) == (batch.target_tokens, batch.tokens)
    assert len(shapes) == len({width for _, width in shapes})
    assert all(rows == 300 // width for rows, width in shapes)


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


def parts_of(corpus, budget, fill=False):
    """The buckets of each of three processes."""
    return [Buckets(corpus, budget, fill=fill, processes=Processes(Place(rank, 3, rank, 3))) for rank in range(3)]


@pytest.mark.parametrize("fill", [False, True])
def test_processes_have_every_row_of_a_batch_once(corpus, fill):
    whole, parts = Buckets(corpus, 100, fill=fill), parts_of(corpus, 100, fill)
    shapes = {}
    for pairs in whole.shuffled(0, 0):
        batch, loaded = whole.load(pairs), [part.load(pairs) for part in parts]
        assert all((part.target_tokens, part.tokens) == (batch.target_tokens, batch.tokens) for part in loaded)
        # Where there is no row for a process it repeats one, without a token to be predicted.
        rows = [(part.source, part.target) for part in loaded if fill or (part.target != PAD).any()]
        if len(batch.source) >= 3 or not fill:
            assert torch.equal(torch.cat([source for source, _ in rows]), batch.source)
            assert torch.equal(torch.cat([target for _, target in rows]), batch.target)
        assert sum(int((part.target[:, 1:] != PAD).sum()) for part in loaded) == batch.target_tokens
        for rank, part in enumerate(loaded):
            shapes.setdefault((rank, batch.source.size(1)), set()).add(part.source.shape)
    assert not fill or all(len(found) == 1 for found in shapes.values())


def test_gradients_of_parts_add_up_to_that_of_the_batch(corpus, tokenizer):
    """Of a hyperbolic model too, and where two of three processes have no row of their own."""
    sizes = {"dim": 8, "num_heads": 2, "num_layers": 1, "dropout": 0.0, "max_length": 64}
    model = create_translator("hkn", tokenizer.get_vocab_size(), **sizes, backend="reference").double()
    whole, parts = Buckets(corpus, 64), parts_of(corpus, 64)
    widest = whole.in_order()[-1]
    assert len(widest) == 1
    for pairs in (widest, whole.in_order()[0]):
        loss, gradient = loss_and_gradient(model, whole.load(pairs))
        found = [loss_and_gradient(model, part.load(pairs)) for part in parts]
        torch.testing.assert_close(sum(part for part, _ in found), loss, rtol=1e-12, atol=0)
        torch.testing.assert_close(sum(part for _, part in found), gradient, rtol=1e-9, atol=1e-12)


def loss_and_gradient(model, batch):
    model.zero_grad()
    loss = summed_loss(model(batch.source, batch.target[:, :-1]), batch.target[:, 1:], 0.1)
    loss.backward()
    return loss.detach(), torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
