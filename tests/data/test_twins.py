import itertools

import pytest
import torch
from torch_geometric.data import Data

from hkconv.data.twins import label_agreement, num_with_twin, same_neighbors, same_rows, same_tuples


def assert_same_pairs(number, are_alike):
    for first, second in itertools.combinations(range(len(number)), 2):
        assert (number[first] == number[second]) == are_alike(first, second), (first, second)


def test_same_neighbours_by_sets(generator):
    edge_index = torch.randint(12, (2, 30), generator=generator)
    graph = Data(x=torch.zeros(14, 1), edge_index=torch.cat([edge_index, edge_index[:, :9]], dim=1))
    pairs = set(map(tuple, edge_index.t().tolist()))
    ins = [{a for a, b in pairs if b == node} for node in range(14)]
    outs = [{b for a, b in pairs if a == node} for node in range(14)]
    number = same_neighbors(graph)
    assert len(number.unique()) < 14
    assert_same_pairs(number, lambda one, two: ins[one] == ins[two] and outs[one] == outs[two])


def test_direction_matters():
    graph = Data(x=torch.zeros(3, 1), edge_index=torch.tensor([[0, 2], [2, 1]]))
    first, second, _ = same_neighbors(graph).tolist()
    assert first != second


def test_same_rows(generator):
    x = torch.randint(2, (20, 3), generator=generator).float()
    assert_same_pairs(same_rows(x), lambda one, two: torch.equal(x[one], x[two]))
    assert len(same_rows(torch.tensor([[0.0], [-0.0]])).unique()) == 1


def test_same_tuples(generator):
    numbers = torch.randint(-1, 2, (3, 25), generator=generator) * 10**15
    found = same_tuples(*numbers)
    assert_same_pairs(found, lambda one, two: torch.equal(numbers[:, one], numbers[:, two]))
    assert torch.equal(found.unique(), torch.arange(int(found.max()) + 1))


def test_twins_in_training_by_hand():
    number = torch.tensor([0, 0, 1, 1, 2, 2, -1, -1])
    train = torch.tensor([0, 2, 6, 2])
    assert num_with_twin(torch.tensor([1, 3, 4, 7]), train, number) == 2
    # Members 0 and 2 are their own likeness in training, which is overlap and no twin.
    assert num_with_twin(torch.tensor([0, 2, 1, 1]), train, number) == 1
    assert num_with_twin(torch.tensor([0]), torch.tensor([0, 1]), number) == 1
    assert num_with_twin(torch.tensor([6]), torch.tensor([7]), number) == 0


def test_agreement_is_over_pairs(generator):
    number = torch.randint(-1, 5, (40,), generator=generator)
    y = torch.randint(2, (40,), generator=generator)
    alike = [(a, b) for a, b in itertools.combinations(range(40), 2) if number[a] == number[b] >= 0]
    agreeing = sum(bool(y[a] == y[b]) for a, b in alike)
    assert label_agreement(y, number) == pytest.approx(agreeing / len(alike))


def test_no_pairs_no_agreement():
    assert label_agreement(torch.tensor([0, 1, 1]), torch.tensor([-1, -1, 4])) is None
