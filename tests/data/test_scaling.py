import math

import pytest
import torch

from hkconv.data.scaling import learn_scaling

NAN = math.nan


def test_training_rows_have_mean_zero_and_deviation_one(dtype):
    x = torch.randn(50, 3, dtype=torch.float64) * torch.tensor([1.0, 9e4, 1e-3]) + torch.tensor([0.0, 5e4, 7.0])
    seen = learn_scaling(x, "standard", [True] * 3)(x.to(dtype))
    assert seen.dtype == dtype
    torch.testing.assert_close(seen.double().mean(0), torch.zeros(3, dtype=torch.float64), atol=1e-3, rtol=0)
    torch.testing.assert_close(
        seen.double().std(0, correction=0), torch.ones(3, dtype=torch.float64), atol=1e-3, rtol=0
    )


def test_other_rows_go_through_the_same_map_literally():
    scaling = learn_scaling(torch.tensor([[1.0, 10], [3, 30], [NAN, 50]]), "standard", [True, True])
    deviation = math.sqrt(800 / 3)
    seen = scaling(torch.tensor([[5.0, NAN], [NAN, 30 + deviation]]))
    torch.testing.assert_close(seen, torch.tensor([[3.0, 0], [0, 1]]))


def test_logarithms_are_standardized():
    x = torch.tensor([[0.0], [math.e**2 - 1], [-(math.e**2) + 1]])
    seen = learn_scaling(x, "log", [True])(x)
    torch.testing.assert_close(seen[:, 0], torch.tensor([0, 1.5**0.5, -(1.5**0.5)]))


def test_categories_and_answers_keep_their_zeros_and_ones():
    x = torch.tensor([[0.0, 1, 0], [1, 0, 1], [1, 0, 1], [1, 0, NAN]])
    seen = learn_scaling(x, "standard", [False, False, True])(x)
    torch.testing.assert_close(seen, torch.tensor([[0, 1, 0], [1, 0, 1], [1, 0, 1], [1, 0, 2 / 3]]))


def test_a_missing_category_is_the_share_of_each_in_training():
    x = torch.tensor([[1.0, 0], [1, 0], [0, 1], [NAN, NAN]])
    for scale in ("none", "standard", "log"):
        torch.testing.assert_close(learn_scaling(x, scale, [False] * 2)(x)[3], torch.tensor([2 / 3, 1 / 3]))


def test_without_a_scale_missing_values_alone_change():
    x = torch.tensor([[50_000.0], [NAN], [70_000]])
    assert learn_scaling(x, "none", [True])(x).tolist() == [[50_000], [60_000], [70_000]]


@pytest.mark.parametrize("column", [[0.0, 0, 0], [NAN, NAN, NAN]])
def test_what_training_says_nothing_of_is_zero(column):
    scaling = learn_scaling(torch.tensor(column)[:, None], "standard", [True])
    assert scaling(torch.tensor([[7.0], [1e6], [NAN]])).tolist() == [[0], [0], [0]]


def test_a_constant_becomes_one_by_which_neighbors_can_be_counted():
    scaling = learn_scaling(torch.tensor([[-500.0, 1], [-500, 1]]), "standard", [True] * 2)
    assert scaling(torch.tensor([[-500.0, 1], [1000, 0], [NAN, NAN]])).tolist() == [[-1, 1], [2, 0], [-1, 1]]


def test_a_category_that_no_training_row_has_is_zero():
    scaling = learn_scaling(torch.tensor([[1.0, 0], [1, 0]]), "standard", [False] * 2)
    assert scaling(torch.tensor([[0.0, 1], [1, 0]])).tolist() == [[0, 0], [1, 0]]
