"""How good an answer is, as one number between 0 and 1."""

import torch
from torch import Tensor


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """The share of rows whose largest logit is the label's.

    Args:
        logits: (N, C) scores.
        labels: (N,) classes.

    Returns:
        A number from 0 to 1.
    """
    return (logits.argmax(-1) == labels).double().mean().item()


def roc_auc(positive: Tensor, negative: Tensor) -> float:
    r"""The area under the ROC curve, exact with ties,

    .. math::
        P(s^+ > s^-) + \tfrac12 P(s^+ = s^-) = \frac{\sum_i r_i - P(P + 1)/2}{P N},

    with :math:`r_i` the mean rank of the i-th positive among all scores.

    Args:
        positive: (P,) scores of what is to be found.
        negative: (N,) scores of the rest.

    Returns:
        A number from 0 to 1; 0.5 if all scores are equal.
    """
    scores = torch.cat([positive, negative])
    _, position, count = scores.unique(return_inverse=True, return_counts=True)
    mean_rank = count.cumsum(0).double() - (count.double() - 1) / 2
    P, N = len(positive), len(negative)
    rank_sum = mean_rank[position[:P]].sum().item()
    return (rank_sum - P * (P + 1) / 2) / (P * N)
