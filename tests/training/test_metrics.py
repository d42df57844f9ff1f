import pytest
import torch

from hkconv.training.metrics import accuracy, roc_auc

from .watching import Operations


def test_accuracy(dtype):
    logits = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 2.0]], dtype=dtype)
    assert accuracy(logits, torch.tensor([1, 1, 1])) == pytest.approx(2 / 3)


def test_roc_auc_counts_pairs_and_halves_ties(dtype, generator):
    positive = torch.randint(0, 6, (40,), generator=generator).to(dtype)
    negative = torch.randint(0, 5, (30,), generator=generator).to(dtype)
    above = (positive[:, None] > negative[None]).double().mean()
    equal = (positive[:, None] == negative[None]).double().mean()
    assert roc_auc(positive, negative) == pytest.approx((above + equal / 2).item(), abs=1e-12)


@pytest.mark.parametrize("measure", [lambda a, b: roc_auc(a, b), lambda a, b: accuracy(a[:, None], b.long())])
def test_no_metric_looks_at_its_numbers(measure):
    """A shape that depends on them, as of ``unique``, would make the host wait for a GPU."""
    with Operations() as seen:
        value = measure(torch.rand(9), torch.rand(9))
    assert value.shape == () and value.dtype == torch.float64
    assert seen.reads == 0
    assert not any(name.split(".")[1].startswith(("_unique", "unique", "nonzero")) for name in seen.counts)


def test_roc_auc_of_perfect_reversed_and_constant_scores(dtype):
    high, low = torch.tensor([2.0, 3.0], dtype=dtype), torch.tensor([0.0, 1.0, 1.0], dtype=dtype)
    assert roc_auc(high, low) == 1
    assert roc_auc(low, high) == 0
    assert roc_auc(torch.zeros(3, dtype=dtype), torch.zeros(4, dtype=dtype)) == 0.5
