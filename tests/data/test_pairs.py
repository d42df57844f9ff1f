import torch

from hkconv.data.pairs import link_keys, pair_keys, pairs_of_keys


def test_direction_does_not_matter_and_different_pairs_differ():
    pairs = torch.combinations(torch.arange(7)).t()
    keys = pair_keys(pairs, 7)
    assert torch.equal(keys, pair_keys(pairs.flip(0), 7))
    assert len(keys.unique()) == 21


def test_pairs_come_back_from_their_keys():
    pairs = torch.combinations(torch.arange(9)).t()
    assert torch.equal(pairs_of_keys(pair_keys(pairs.flip(0), 9), 9), pairs)


def test_links_are_counted_once_and_loops_not_at_all():
    edges = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 1, 1, 1, 1]])
    assert torch.equal(pairs_of_keys(link_keys(edges, 3), 3), torch.tensor([[0, 1], [1, 2]]))


def test_int32_indices_do_not_overflow():
    pairs = torch.tensor([[99_999], [99_998]], dtype=torch.int32)
    assert pair_keys(pairs, 100_000).item() == 99_998 * 100_000 + 99_999


def test_no_pairs_have_no_keys():
    assert pair_keys(torch.empty(2, 0, dtype=torch.int64), 5).numel() == 0
