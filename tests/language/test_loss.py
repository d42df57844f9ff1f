import torch

from hkconv.language.loss import summed_loss
from hkconv.models.translation.tokens import PAD


def literal(logits, target, smoothing):
    """The docstring's sum, position by position."""
    total = 0.0
    for row, tokens in zip(logits.double(), target):
        for scores, token in zip(row, tokens):
            if token == PAD:
                continue
            log_p = scores - scores.exp().sum().log()
            total -= (1 - smoothing) * log_p[token] + smoothing / len(log_p) * log_p.sum()
    return total


def test_against_the_literal_sum(generator, dtype):
    logits = torch.randn(3, 5, 11, generator=generator, dtype=dtype)
    target = torch.randint(1, 11, (3, 5), generator=generator)
    target[0, 3:] = PAD
    target[2, 1:] = PAD
    for smoothing in (0.0, 0.1, 0.5):
        expected = literal(logits, target, smoothing)
        torch.testing.assert_close(summed_loss(logits, target, smoothing).double(), expected, rtol=1e-6, atol=0)


def test_padding_gets_no_gradient(generator):
    logits = torch.randn(2, 4, 7, generator=generator, requires_grad=True)
    target = torch.tensor([[4, 2, PAD, PAD], [5, 6, 4, 2]])
    summed_loss(logits, target, 0.1).backward()
    assert (logits.grad[0, 2:] == 0).all()
    assert (logits.grad[0, :2].abs().sum(-1) > 0).all()


def test_half_precision_logits_are_summed_in_float32(generator):
    logits = torch.randn(2, 600, 50, generator=generator).bfloat16()
    target = torch.randint(4, 50, (2, 600), generator=generator)
    found = summed_loss(logits, target, 0.1)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), literal(logits, target, 0.1), rtol=1e-5, atol=0)
