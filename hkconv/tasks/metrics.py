"""Metrics: the quality of an answer as one number of at most 1 that stays on its device until somebody looks."""

import torch
from torch import Tensor

from hkconv.data.checks import both_answers


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
    return _twice_won(negative.sort().values, positive).sum().double() / (2 * len(positive) * len(negative))


def mean_roc_auc(scores: Tensor, labels: Tensor) -> Tensor:
    """The mean of :func:`roc_auc` over the questions with both answers, as OGB's evaluator has it.

    Args:
        scores: (N, T) finite scores, one column for each question.
        labels: (N, T) answers: 1, 0, or NaN where unknown, which are left out.

    Returns:
        A number from 0 to 1, as a 0-d float64 tensor; NaN if no question has both answers.
    """
    scores, yes, no = _by_question(scores, labels)
    won = torch.where(yes, _twice_won(_ranked(scores, no), scores), 0).sum(1)
    return _mean_where(both_answers(labels), won.double() / (2 * yes.sum(1) * no.sum(1)))


def average_precision(scores: Tensor, labels: Tensor) -> Tensor:
    r"""The average precision of each question: the mean, over its :math:`P` positives, of the share of positives
    among what scores no lower,

    .. math::
        \frac1P \sum_{i=1}^P \frac{\#\{j : s^+_j \ge s^+_i\}}{\#\{j : s_j \ge s^+_i\}},

    which is :math:`\sum_n (R_n - R_{n-1}) P_n` over the thresholds :math:`n` of the precision-recall curve.

    Args:
        scores: (N, T) finite scores, one column for each question.
        labels: (N, T) answers: 1, 0, or NaN where unknown, which are left out.

    Returns:
        (T,) numbers from 0 to 1 in float64; NaN for a question without a positive.
    """
    scores, yes, no = _by_question(scores, labels)
    found, considered = (
        members.sum(1, keepdim=True) - torch.searchsorted(_ranked(scores, members), scores)
        for members in (yes, yes | no)
    )
    return torch.where(yes, found.double() / considered, 0).sum(1) / yes.sum(1)


def mean_average_precision(scores: Tensor, labels: Tensor) -> Tensor:
    """The mean of :func:`average_precision` over the questions with both answers, as OGB's evaluator has it.

    Args:
        scores, labels: as :func:`average_precision` takes them.

    Returns:
        A number from 0 to 1, as a 0-d float64 tensor; NaN if no question has both answers.
    """
    return _mean_where(both_answers(labels), average_precision(scores, labels))


def r_squared(values: Tensor, labels: Tensor) -> Tensor:
    r"""The coefficient of determination, the share of the variance of some numbers that predictions explain,

    .. math::
        R^2 = 1 - \frac{\sum_i (y_i - \hat y_i)^2}{\sum_i (y_i - \bar y)^2}.

    Args:
        values: (N, 1) predictions.
        labels: (N, 1) numbers, NaN where unknown, which are left out.

    Returns:
        A number of at most 1, below 0 for what is worse than the mean, as a 0-d float64 tensor; NaN if all numbers are
        the same.
    """
    known = ~labels.isnan()
    count, numbers = known.sum(), torch.where(known, labels, 0).double()
    spread = torch.where(known, numbers - numbers.sum() / count, 0).square().sum()
    return 1 - torch.where(known, numbers - values.double(), 0).square().sum() / spread


def _twice_won(ranked: Tensor, scores: Tensor) -> Tensor:
    """Count the sorted scores that each score is above, plus those that it is not below."""
    below, not_above = (torch.searchsorted(ranked, scores, right=right) for right in (False, True))
    return below + not_above


def _by_question(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scores and whether the answer is yes and whether it is no, each (T, N), laid out as they are searched."""
    labels = labels.t().contiguous()
    return scores.t().contiguous(), labels == 1, labels == 0


def _ranked(scores: Tensor, members: Tensor) -> Tensor:
    """The members of each row, sorted, and infinities, which no score is above, for the others."""
    return torch.where(members, scores, torch.inf).sort(dim=1).values


def _mean_where(chosen: Tensor, values: Tensor) -> Tensor:
    return torch.where(chosen, values, 0).sum() / chosen.sum()
