import pytest
import torch

from hkconv.data.checks import check_columns, check_features, overlaps
from hkconv.errors import InputError


def test_members_count_once_however_often_they_are_listed():
    parts = {"train": torch.tensor([0, 0, 1, 2]), "val": torch.tensor([3, 3]), "test": torch.tensor([2, 2, 1, 3, 4, 5])}
    found = {entry.name: (entry.shared, entry.members) for entry in overlaps(parts)}
    assert found == {"val in train": (0, 1), "test in train": (2, 5), "test in val": (1, 5)}
    assert overlaps(parts)[1].share == 0.4


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_one_number_that_is_none_is_found_in_its_row(bad):
    x = torch.zeros(4, 3)
    check_features(x, "it")
    x[2, 1] = bad
    with pytest.raises(InputError, match="features of it contain NaN or Inf, first in row 2"):
        check_features(x, "it")


@pytest.mark.parametrize("bad", [-1, 5])
def test_columns_are_those_there_are(bad):
    check_columns(torch.tensor([[0, 4], [1, 2]]), 5, "it")
    with pytest.raises(InputError, match=r"features of it must name columns in \[0, 5\), got"):
        check_columns(torch.tensor([[0, 4], [1, bad]]), 5, "it")
