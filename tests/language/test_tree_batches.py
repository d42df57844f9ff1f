import pytest
import torch
from tree_cases import random_trees, tree

from hkconv.language import tree_batches
from hkconv.language.tree_batches import batch_trees


def test_every_tree_is_in_one_batch_as_it_was(monkeypatch):
    monkeypatch.setattr(tree_batches, "BATCH_SENTENCES", 7)
    monkeypatch.setattr(tree_batches, "BATCH_PAIRS", 500)
    trees = random_trees(0, [3, 30, 1, 5, 12, 5, 40, 2, 2, 9, 4, 4, 6, 8, 3, 7])
    offsets = torch.tensor([0] + [len(entry) for entry in trees]).cumsum(0)
    seen = []
    for batch in batch_trees(trees):
        members, width = batch.rows.shape
        assert members == 1 or (members <= 7 and members * width**2 <= 500)
        for place, number in enumerate(batch.sentences.tolist()):
            expected, n = trees[number], len(trees[number])
            seen.append(number)
            assert batch.present[place].tolist() == [True] * n + [False] * (width - n)
            assert batch.rows[place, :n].tolist() == list(range(offsets[number], offsets[number] + n))
            assert batch.heads[place].tolist() == expected.heads.tolist() + [-1] * (width - n)
            assert batch.scored[place].tolist() == (~expected.is_punctuation).tolist() + [False] * (width - n)
            assert batch.depths[place, :n].tolist() == expected.depths.tolist()
            assert (batch.distances[place, :n, :n].numpy() == expected.distances()).all()
            assert not batch.distances[place, n:].any() and not batch.distances[place, :, n:].any()
    assert sorted(seen) == list(range(len(trees)))


def test_a_sentence_beyond_the_size_of_a_batch_is_a_batch_of_its_own(monkeypatch):
    monkeypatch.setattr(tree_batches, "BATCH_PAIRS", 3)
    assert [len(batch.rows) for batch in batch_trees([tree("2 0 2"), tree("0"), tree("0")])] == [2, 1]


@pytest.mark.parametrize("size", [1, 3])
def test_a_batch_of_one_tree(size):
    (batch,) = batch_trees(random_trees(1, [size]))
    assert batch.present.tolist() == [[True] * size]
