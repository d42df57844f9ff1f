import pytest
import torch
from watching import Operations

from hkconv.data import smiles
from hkconv.tasks.metrics import accuracy, average_precision, mean_average_precision, mean_roc_auc, roc_auc


def test_accuracy(dtype):
    logits = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 2.0]], dtype=dtype)
    assert accuracy(logits, torch.tensor([1, 1, 1])) == pytest.approx(2 / 3)


def test_roc_auc_counts_pairs_and_halves_ties(dtype, generator):
    positive = torch.randint(0, 6, (40,), generator=generator).to(dtype)
    negative = torch.randint(0, 5, (30,), generator=generator).to(dtype)
    above = (positive[:, None] > negative[None]).double().mean()
    equal = (positive[:, None] == negative[None]).double().mean()
    assert roc_auc(positive, negative) == pytest.approx((above + equal / 2).item(), abs=1e-12)


@pytest.mark.parametrize(
    "measure",
    [
        lambda a, b: roc_auc(a, b),
        lambda a, b: accuracy(a[:, None], b.long()),
        lambda a, b: mean_roc_auc(a[:, None], (b[:, None] > 0.5).float()),
        lambda a, b: mean_average_precision(a[:, None], (b[:, None] > 0.5).float()),
    ],
)
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


def questions(num_questions, dtype, generator):
    """Scores with ties and sparse answers of 60 graphs; the first question has no yes and the second no no."""
    scores = torch.randint(0, 9, (60, num_questions), generator=generator).to(dtype)
    answers = torch.tensor([0.0, 0.0, 1.0, torch.nan])
    labels = answers[torch.randint(0, 4, (60, num_questions), generator=generator)]
    labels[:, 0], labels[:, 1] = 0, 1
    labels[3:9, 1] = torch.nan
    return scores, labels


def literal_roc_auc(scores, labels):
    pairs = [
        (high, low) for high, yes in zip(scores, labels) for low, no in zip(scores, labels) if yes == 1 and no == 0
    ]
    return sum((high > low) + (high == low) / 2 for high, low in pairs) / len(pairs)


def literal_average_precision(scores, labels):
    """The area under the steps of the precision-recall curve, threshold after threshold."""
    known = [(score, label) for score, label in zip(scores, labels) if label in (0, 1)]
    area = recall = 0
    for threshold in sorted({score for score, _ in known}, reverse=True):
        chosen = [label for score, label in known if score >= threshold]
        higher = sum(chosen) / sum(label for _, label in known)
        area, recall = area + (higher - recall) * sum(chosen) / len(chosen), higher
    return area


@pytest.mark.parametrize(
    ("measure", "literal"), [(mean_roc_auc, literal_roc_auc), (mean_average_precision, literal_average_precision)]
)
def test_questions_are_scored_one_by_one_over_known_answers(measure, literal, dtype, generator):
    scores, labels = questions(6, dtype, generator)
    expected = [literal(scores[:, column].tolist(), labels[:, column].tolist()) for column in range(2, 6)]
    assert measure(scores, labels).item() == pytest.approx(sum(expected) / 4, abs=1e-12)


@pytest.mark.parametrize(
    ("measure", "name", "key"),
    [
        (mean_roc_auc, "ogbg-molhiv", "rocauc"),
        (mean_roc_auc, "ogbg-moltox21", "rocauc"),
        (mean_average_precision, "ogbg-molmuv", "ap"),
        (mean_average_precision, "ogbg-molpcba", "ap"),
    ],
)
def test_questions_are_scored_as_by_the_evaluator_of_ogb(measure, name, key, dtype, generator):
    pytest.importorskip("rdkit")
    smiles.chemistry_versions()  # imports OGB without its question to PyPI
    from ogb.graphproppred import Evaluator

    evaluator = Evaluator(name)
    scores, labels = questions(evaluator.num_tasks + 2, dtype, generator)
    if evaluator.num_tasks == 1:
        scores, labels = scores[:, 2:], labels[:, 2:]
    scores, labels = scores[:, : evaluator.num_tasks], labels[:, : evaluator.num_tasks]
    expected = evaluator.eval({"y_true": labels.numpy(), "y_pred": scores.numpy()})[key]
    assert measure(scores, labels).item() == pytest.approx(expected, abs=1e-12)


def test_a_question_of_yes_alone_has_all_precision_and_one_without_has_none():
    labels = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 1.0]])
    found = average_precision(torch.tensor([[1.0, 1.0, 2.0], [0.0, 0.0, 1.0]]), labels)
    assert found[0] == 1 and found[1].isnan() and found[2] == 0.5


def test_a_constant_score_has_the_share_of_yes_as_precision():
    labels = torch.tensor([[1.0], [0.0], [torch.nan], [0.0], [0.0]])
    assert mean_average_precision(torch.zeros(5, 1), labels) == 0.25
    assert mean_roc_auc(torch.zeros(5, 1), labels) == 0.5


def test_without_a_question_that_has_both_answers_there_is_no_score():
    labels = torch.tensor([[1.0, 0.0], [1.0, torch.nan]])
    assert mean_roc_auc(torch.zeros(2, 2), labels).isnan() and mean_average_precision(torch.zeros(2, 2), labels).isnan()
