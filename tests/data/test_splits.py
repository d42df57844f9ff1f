import pytest
import torch
from torch_geometric.data import Data

from hkconv.data.dataset import link_keys, pair_keys
from hkconv.data.splits import (
    link_splits,
    masks_to_splits,
    seeded_generator,
    stratified_folds,
    stratified_split,
    stratified_splits,
)
from hkconv.errors import InputError

SIXTY_TWENTY_TWENTY = (0.6, 0.2, 0.2)


def labels(*sizes, seed=0):
    y = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return y[torch.randperm(len(y), generator=seeded_generator(seed))]


def same(first, second):
    return all(torch.equal(first.parts[part], second.parts[part]) for part in first.parts)


def test_a_stratified_split_covers_everybody_in_proportion():
    y = labels(300, 100, 50, 37)
    split = stratified_split(y, SIXTY_TWENTY_TWENTY, seeded_generator(1))
    assert torch.equal(torch.cat(list(split.parts.values())).sort().values, torch.arange(len(y)))
    for members, fraction in zip(split.parts.values(), SIXTY_TWENTY_TWENTY):
        assert abs(len(members) - fraction * len(y)) <= 2
        counts = y[members].bincount(minlength=4)
        assert ((counts - fraction * y.bincount()).abs() <= 2).all()


def test_small_classes_keep_a_training_member():
    y = labels(1, 2, 3, 60, 1)
    for seed in range(20):
        split = stratified_split(y, (0.3, 0.1, 0.6), seeded_generator(seed))
        assert set(y[split.train].tolist()) == {0, 1, 2, 3, 4}


def test_many_tiny_classes_still_fill_every_part():
    y = labels(*[2] * 10)
    split = stratified_split(y, SIXTY_TWENTY_TWENTY, seeded_generator(0))
    assert [len(members) for members in split.parts.values()] == [12, 4, 4]


def test_splits_depend_on_the_seed_and_not_on_their_number():
    y = labels(40, 40, 20)
    few = stratified_splits(y, SIXTY_TWENTY_TWENTY, 2, seed=5)
    many = stratified_splits(y, SIXTY_TWENTY_TWENTY, 6, seed=5)
    assert same(few[0], many[0]) and same(few[1], many[1])
    assert not same(many[0], many[1])
    assert not same(few[0], stratified_splits(y, SIXTY_TWENTY_TWENTY, 1, seed=6)[0])


@pytest.mark.parametrize("fractions", [(0.5, 0.2, 0.2), (0.8, 0.2, 0.0), (0.5, 0.5), (1.2, -0.1, -0.1)])
def test_fractions_must_be_positive_and_sum_to_one(fractions):
    with pytest.raises(InputError, match="three positive numbers"):
        stratified_split(labels(5, 5), fractions, seeded_generator(0))


def test_every_member_is_tested_in_exactly_one_fold():
    y = labels(57, 91, 30)
    folds = stratified_folds(y, num_folds=10, val_fraction=0.1, seed=2)
    tested = torch.cat([fold.test for fold in folds])
    assert torch.equal(tested.sort().values, torch.arange(len(y)))
    for fold in folds:
        assert len(fold.train) + len(fold.val) + len(fold.test) == len(y)


def test_folds_and_their_validation_sets_are_stratified():
    y = labels(57, 91, 30)
    for fold in stratified_folds(y, num_folds=10, val_fraction=0.1, seed=2):
        assert ((y[fold.test].bincount(minlength=3) - y.bincount() / 10).abs() < 1).all()
        rest = len(fold.train) + len(fold.val)
        assert abs(len(fold.val) - 0.1 * rest) <= 1.5
        assert ((y[fold.val].bincount(minlength=3) / len(fold.val) - y.bincount() / len(y)).abs() < 0.15).all()


def test_folds_follow_the_seed():
    y = labels(30, 30)
    assert all(map(same, stratified_folds(y, seed=1), stratified_folds(y, seed=1)))
    assert not same(stratified_folds(y, seed=1)[0], stratified_folds(y, seed=2)[0])


def test_each_fold_chooses_its_validation_members_by_its_own_chance():
    """Of one class and folds of one size, a stream that two folds share would choose the same places of the rest."""
    folds = stratified_folds(torch.zeros(4000, dtype=torch.int64), 5, val_fraction=0.5, seed=3)
    chosen = torch.stack([torch.isin(torch.cat([fold.train, fold.val]).sort().values, fold.val) for fold in folds])
    agreement = (chosen[:, None] == chosen[None]).double().mean(-1)
    torch.testing.assert_close(agreement, (torch.ones(5, 5) + torch.eye(5)).double() / 2, atol=0.06, rtol=0)


def test_folds_are_those_that_stored_results_were_found_with():
    y = torch.tensor([0, 1]).repeat(6)
    folds = stratified_folds(y, num_folds=4, val_fraction=0.25, seed=0)
    assert [fold.test.tolist() for fold in folds] == [[0, 2, 11], [1, 4, 6], [5, 7, 10], [3, 8, 9]]
    assert [fold.val.tolist() for fold in folds] == [[9, 10], [10, 11], [8, 11], [4, 11]]


def test_a_class_left_outside_the_test_fold_can_be_learned():
    y = labels(2, 48)
    for fold in stratified_folds(y, num_folds=10, val_fraction=0.5, seed=0):
        assert set(y[fold.train].tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_folds": 1}, "num_folds must be from 2 to the number of members"),
        ({"num_folds": 7}, r"number of members \(6\), got 7"),
        ({"num_folds": 2, "val_fraction": 1.0}, "val_fraction must lie between 0 and 1"),
    ],
)
def test_impossible_folds_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        stratified_folds(labels(3, 3), **options)


def test_masks_become_one_split_a_column():
    train = torch.tensor([[1, 0], [1, 0], [0, 1], [0, 0]]).bool()
    val = torch.tensor([[0, 1], [0, 0], [1, 0], [0, 0]]).bool()
    test = torch.tensor([[0, 0], [0, 1], [0, 0], [1, 0]]).bool()
    first, second = masks_to_splits(Data(train_mask=train, val_mask=val, test_mask=test))
    assert [part.tolist() for part in first.parts.values()] == [[0, 1], [2], [3]]
    assert [part.tolist() for part in second.parts.values()] == [[2], [0], [1]]
    (only,) = masks_to_splits(Data(train_mask=train[:, 0], val_mask=val[:, 0], test_mask=test[:, 0]))
    assert same(only, first)


def test_overlapping_masks_are_refused():
    mask = torch.tensor([True, False])
    with pytest.raises(InputError, match="train and val of a split share 1"):
        masks_to_splits(Data(train_mask=mask, val_mask=mask, test_mask=~mask))


def ring_with_chords(num_nodes=60):
    nodes = torch.arange(num_nodes)
    links = torch.cat([torch.stack([nodes, (nodes + hop) % num_nodes]) for hop in (1, 2, 5)], dim=1)
    loops = torch.stack([nodes[:4], nodes[:4]])
    return torch.cat([links, links.flip(0), loops, links[:, :7]], dim=1)


def test_links_are_divided_completely_and_negatives_are_no_links():
    edge_index = ring_with_chords()
    links = link_keys(edge_index, 60)
    for split in link_splits(edge_index, 60, num_splits=3, seed=0):
        positives = torch.cat([split.train, split.val, split.test], dim=1)
        assert torch.equal(pair_keys(positives, 60).sort().values, links)
        assert [split.train.size(1), split.val.size(1), split.test.size(1)] == [153, 9, 18]
        assert split.val_negatives.size(1) == 9 and split.test_negatives.size(1) == 18
        negatives = torch.cat([split.val_negatives, split.test_negatives], dim=1)
        assert not torch.isin(pair_keys(negatives, 60), links).any()
        assert (negatives[0] != negatives[1]).all()
        assert split.message_edges.size(1) == 2 * 153


def test_negatives_are_spread_over_all_nodes():
    negatives = link_splits(ring_with_chords(), 60, (0.4, 0.3, 0.3), 1)[0].val_negatives
    assert negatives[0].float().mean() > 12 and negatives.unique().numel() > 40


def test_link_splits_depend_on_the_seed_and_not_on_their_number():
    edge_index = ring_with_chords()
    few, many = (link_splits(edge_index, 60, num_splits=count, seed=4) for count in (1, 3))
    assert same(few[0], many[0])
    assert not same(many[0], many[1])
    assert not same(few[0], link_splits(edge_index, 60, num_splits=1, seed=5)[0])


def test_a_graph_with_too_few_links_or_non_links_is_refused():
    with pytest.raises(InputError, match="at least 3 links between different nodes, got 2"):
        link_splits(torch.tensor([[0, 1, 2], [1, 2, 2]]), 5)
    complete = torch.combinations(torch.arange(6)).t()
    with pytest.raises(InputError, match="needs 3 unlinked pairs to compare with, the graph has 0"):
        link_splits(complete, 6)


def test_all_non_links_can_be_used_up():
    edge_index = torch.combinations(torch.arange(6)).t()[:, :12]
    (split,) = link_splits(edge_index, 6, (0.75, 0.10, 0.15), 1)
    assert split.val_negatives.size(1) + split.test_negatives.size(1) == 3


def draw(*arguments):
    return torch.rand(8, generator=seeded_generator(*arguments))


def test_equal_arguments_give_equal_numbers():
    assert torch.equal(draw(3, 1), draw(3, 1))


def test_seed_and_stream_both_matter():
    arguments = [(0,), (0, 0), (0, 1), (1,), (1, 0), (0, 0, 0), (2**40, 1), (2**40 + 1,)]
    assert len({tuple(draw(*choice).tolist()) for choice in arguments}) == len(arguments)


def test_a_negative_seed_is_refused():
    with pytest.raises(InputError, match="seed must be zero or larger, got -1"):
        seeded_generator(-1)
