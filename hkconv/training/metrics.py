"""How good an answer is, as one number between 0 and 1 that stays on its device until somebody looks."""

import torch
from torch import Tensor


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:
    """The share of rows whose largest logit is the label's.

    Args:
        logits: (N, C) scores.
        labels: (N,) classes.

    Returns:
        A number from 0 to 1, as a 0-d float64 tensor.
    """
    return (logits.argmax(-1) == labels).double().mean()


def roc_auc(positive: Tensor, negative: Tensor) -> Tensor:
    r"""The area under the ROC curve, exact with ties,

    .. math::
        P(s^+ > s^-) + \tfrac12 P(s^+ = s^-)
        = \frac{1}{2PN} \sum_{i=1}^P \big(\#\{j : s^-_j < s^+_i\} + \#\{j : s^-_j \le s^+_i\}\big).

    Args:
        positive: (P,) scores of what is to be found.
        negative: (N,) scores of the rest.

    Returns:
        A number from 0 to 1, as a 0-d float64 tensor; 0.5 if all scores are equal.
    """
    ranked = negative.sort().values
    below, not_above = (torch.searchsorted(ranked, positive, right=right) for right in (False, True))
    return (below + not_above).sum().double() / (2 * len(positive) * len(negative))
