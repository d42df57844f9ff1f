import torch

from hkconv.data.checks import overlaps


def test_members_count_once_however_often_they_are_listed():
    parts = {"train": torch.tensor([0, 0, 1, 2]), "val": torch.tensor([3, 3]), "test": torch.tensor([2, 2, 1, 3, 4, 5])}
    found = {entry.name: (entry.shared, entry.members) for entry in overlaps(parts)}
    assert found == {"val in train": (0, 1), "test in train": (2, 5), "test in val": (1, 5)}
    assert overlaps(parts)[1].share == 0.4
