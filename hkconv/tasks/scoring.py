"""Losses and scores of nodes and graphs, by what they are asked for: a class, answers of yes or no, or a number.

A model has a logit for each class, and two, no and yes, for each yes-or-no question or number, of which it is the
difference that counts: a model whose logits are negative distances could not say yes with one alone.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.data import GraphDataset, NodeDataset, Split
from hkconv.data.checks import both_answers
from hkconv.data.options import ACCURACY, R2
from hkconv.data.scaling import mean_and_deviation
from hkconv.errors import InputError
from hkconv.tasks.metrics import accuracy, mean_average_precision, mean_roc_auc, r_squared

QUESTION_METRICS = {"ROC-AUC": mean_roc_auc, "AP": mean_average_precision}


class Scoring(ABC):
    """Loss and metric of some members; ``metric`` is the name of the latter, ``chance`` of a rule without a model."""

    metric: str
    chance: str

    @abstractmethod
    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss."""

    @abstractmethod
    def score(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the metric."""

    @abstractmethod
    def chance_score(self, train: Tensor, test: Tensor) -> float:
        """Return the test metric of the rule ``chance``."""

    @abstractmethod
    def unlearned_score(self, val: Tensor) -> float:
        """Return the best validation metric of one answer for all members, and one more right."""

    def weight(self, labels: Tensor) -> Tensor | int:
        """Return of how many answers the loss is the mean."""
        return len(labels)

    def measure(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the metric and the mean loss, in float64."""
        return torch.stack([self.score(logits, labels).double(), self.loss(logits, labels).double()])


class ClassScoring(Scoring):
    """Classes: cross entropy and accuracy."""

    metric = ACCURACY
    chance = "majority class"

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits, labels)

    def score(self, logits: Tensor, labels: Tensor) -> Tensor:
        return accuracy(logits, labels)

    def chance_score(self, train: Tensor, test: Tensor) -> float:
        return (test == train.bincount().argmax()).double().mean().item()

    def unlearned_score(self, val: Tensor) -> float:
        # Of the labels themselves, not of those to train on: the epoch is chosen by them, and with it the class named.
        return (int(val.bincount().max()) + 1) / len(val)


class _AnswerScoring(Scoring):
    """Known answers among (N, T), NaN where unknown."""

    def weight(self, labels: Tensor) -> Tensor:
        return (~labels.isnan()).sum()

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        known = ~labels.isnan()
        losses = self.losses(yes_over_no(logits), torch.where(known, labels, 0))
        # A batch may happen to hold no answer at all; then there is nothing to learn from it.
        return torch.where(known, losses, 0).sum() / known.sum().clamp(min=1)

    @abstractmethod
    def losses(self, values: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each answer."""


class QuestionScoring(_AnswerScoring):
    r"""Yes-or-no questions: binary cross entropy, averaged over the known answers.

    :math:`p = \operatorname{softmax}(z_{no}, z_{yes})_{yes} = \sigma(z_{yes} - z_{no})`. With one question this is
    classification with two classes.

    Args:
        metric: ``"ROC-AUC"`` or ``"AP"``.
    """

    chance = "constant score"

    def __init__(self, metric: str):
        self.metric = metric

    def losses(self, values: Tensor, labels: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(values, labels.to(values), reduction="none")

    def score(self, logits: Tensor, labels: Tensor) -> Tensor:
        return QUESTION_METRICS[self.metric](yes_over_no(logits), labels)

    def chance_score(self, train: Tensor, test: Tensor) -> float:
        return QUESTION_METRICS[self.metric](torch.zeros_like(test), test).item()

    def unlearned_score(self, val: Tensor) -> float:
        is_yes = val == 1
        first_yes = is_yes & (is_yes.cumsum(0) == 1)
        constant, lucky = (
            QUESTION_METRICS[self.metric](scores.to(val), val).item() for scores in (torch.zeros_like(val), first_yes)
        )
        # In lucky every question has its first yes above all others. One answer is luck, one to each question is not.
        return constant + (lucky - constant) / int(both_answers(val).sum())


class NumberScoring(_AnswerScoring):
    r"""Numbers: the squared error of :math:`\hat y = \mu + \sigma (z_{yes} - z_{no})`, in units of :math:`\sigma^2`.

    Args:
        mean, deviation: of the numbers to train on.
    """

    metric = R2
    chance = "training mean"

    def __init__(self, mean: float, deviation: float):
        self.mean, self.deviation = mean, deviation

    def losses(self, values: Tensor, labels: Tensor) -> Tensor:
        return (values - ((labels - self.mean) / self.deviation).to(values)).square()

    def values(self, logits: Tensor) -> Tensor:
        """Return the numbers that logits say, (N, 1)."""
        return self.mean + self.deviation * yes_over_no(logits)

    def score(self, logits: Tensor, labels: Tensor) -> Tensor:
        return r_squared(self.values(logits), labels)

    def chance_score(self, train: Tensor, test: Tensor) -> float:
        return r_squared(torch.full_like(test, self.mean), test).item()

    def unlearned_score(self, val: Tensor) -> float:
        return 0.0


def make_scoring(dataset: NodeDataset | GraphDataset, split: Split) -> Scoring:
    """The scoring of a dataset's labels; a split that cannot be scored is refused."""
    if dataset.metric == ACCURACY:
        return ClassScoring()
    labels = dataset.labels
    for part, members in split.parts.items():
        answers = labels[members]
        known = answers[~answers.isnan()]
        if dataset.metric == R2 and (not len(known) or bool((known == known[0]).all())):
            raise InputError(
                f"dataset {dataset.name!r} has no two different numbers in {part} of this split: {R2} needs them"
            )
        if part != "train" and dataset.metric != R2 and not both_answers(answers).any():
            raise InputError(
                f"no question of dataset {dataset.name!r} has both answers in {part} of this split: "
                f"{dataset.metric} needs at least one"
            )
    if dataset.metric == R2:
        return NumberScoring(*(split.target or mean_and_deviation(labels[split.train])))
    return QuestionScoring(dataset.metric)


def yes_over_no(logits: Tensor) -> Tensor:
    """(N, 2 T) logits, no and yes of one question after the other, to the (N, T) log-odds of yes."""
    no, yes = logits.unflatten(-1, (-1, 2)).unbind(-1)
    return yes - no
