"""Losses and scores of classes, of answers to questions, and of numbers, against their equations."""

import numpy as np
import pytest
import torch
from small_datasets import small_tree

from hkconv.data import GraphDataset, NodeDataset, Split
from hkconv.data.scaling import mean_and_deviation
from hkconv.engine.settings import Settings
from hkconv.errors import InputError
from hkconv.models import GCN
from hkconv.tasks.fitting import fit
from hkconv.tasks.scoring import ClassScoring, NumberScoring, QuestionScoring, make_scoring
from hkconv.tasks.tasks import make_task

UNKNOWN = torch.nan


@pytest.fixture
def numbers(tree) -> NodeDataset:
    """The tree with a number for most nodes: its first feature, somewhere far from zero."""
    return with_labels(tree, 300 + 20 * tree.graph.x[:, :1])


def with_labels(dataset: NodeDataset, y: torch.Tensor, metric: str = "R2") -> NodeDataset:
    graph = dataset.graph.clone()
    graph.y = y.clone()
    return NodeDataset("tree", graph, dataset.splits, 2, "test", metric=metric)


def logits_of(values, dtype):
    """Logits of no and yes whose difference is the values, in another place in every row."""
    shift = torch.randn(len(values), 1, generator=torch.Generator().manual_seed(5)).to(dtype)
    values = torch.as_tensor(values, dtype=dtype)[:, None]
    return torch.cat([shift - values / 2, shift + values / 2], dim=1).requires_grad_()


def test_the_loss_of_numbers_is_the_squared_error_in_units_of_their_variance(dtype):
    labels = torch.tensor([[310.0], [UNKNOWN], [280.0], [301.5]])
    logits = logits_of([0.5, 7.0, -1.5, 0.25], dtype)
    loss = NumberScoring(300.0, 20.0).loss(logits, labels)
    said = 300 + 20 * np.array([0.5, -1.5, 0.25])
    error = said - np.array([310.0, 280.0, 301.5])
    tolerance = 1e-5 if dtype == torch.float32 else 1e-6
    assert loss.dtype == dtype and loss.item() == pytest.approx((error**2).mean() / 20**2, rel=tolerance)
    loss.backward()
    slope = torch.tensor(2 * error / 20 / 3, dtype=dtype)
    expected = torch.stack([-slope, slope], dim=1)
    torch.testing.assert_close(logits.grad[[0, 2, 3]], expected, rtol=1e-5, atol=1e-6)
    assert (logits.grad[1] == 0).all()


def test_r2_is_the_share_of_the_variance_that_is_explained(dtype):
    generator = np.random.default_rng(0)
    y = generator.normal(50, 3, size=40)
    values = generator.normal(size=40)
    labels = torch.tensor(y, dtype=torch.float32)[:, None]
    known = np.arange(40) % 4 > 0
    labels[~torch.from_numpy(known)] = UNKNOWN
    said = 48 + 2.5 * values
    expected = 1 - ((y - said)[known] ** 2).sum() / ((y[known] - y[known].mean()) ** 2).sum()
    scoring = NumberScoring(48.0, 2.5)
    score, loss = scoring.measure(logits_of(values, dtype).detach(), labels)
    assert score.dtype == loss.dtype == torch.float64
    assert score.item() == pytest.approx(expected, abs=1e-5)
    assert scoring.score(logits_of((y - 48) / 2.5, dtype), labels).item() == pytest.approx(1, abs=1e-5)
    assert scoring.values(logits_of(values, dtype)).flatten().tolist() == pytest.approx(list(said), rel=1e-5)


def test_large_numbers_with_small_differences_keep_them(dtype):
    """Years, of which float32 squares say nothing."""
    labels = torch.tensor([[2001.0], [2002.0], [2004.0]])
    scoring = NumberScoring(*mean_and_deviation(labels))
    y = np.array([2001.0, 2002.0, 2004.0])
    exact = logits_of((y - y.mean()) / y.std(), dtype)
    assert scoring.loss(exact, labels).item() < 1e-6
    assert scoring.score(exact, labels).item() == pytest.approx(1, abs=1e-6)


def test_the_training_mean_is_the_rule_without_a_model_and_zero_is_unlearned(numbers):
    split = numbers.splits[0]
    y, train, test = numbers.labels, split.train, split.test
    task = make_task(numbers, split, torch.empty(0))
    mean = y[train].double().mean()
    rest = y[test].double()
    expected = 1 - (rest - mean).square().sum() / (rest - rest.mean()).square().sum()
    assert (task.metric, task.chance) == ("R2", "training mean")
    assert task.chance_score() == pytest.approx(expected.item(), abs=1e-6) and task.chance_score() < 0
    assert task.unlearned_score() == 0


def test_a_split_may_say_with_which_mean_and_deviation_to_train(numbers):
    split = numbers.splits[0]
    own = make_scoring(numbers, split)
    train = numbers.labels[split.train].double().numpy()
    assert (own.mean, own.deviation) == pytest.approx((train.mean(), train.std()))
    given = make_scoring(numbers, Split(*split.parts.values(), target=(1.0, 2.0)))
    assert (given.mean, given.deviation) == (1.0, 2.0)


def test_numbers_are_learned(numbers):
    y = numbers.labels.clone()
    y[::7] = UNKNOWN
    model = GCN(4, 16, 2, num_layers=1, residual=True)
    settings = Settings(epochs=80, lr=0.05, weight_decay=0.0)
    result = fit(model, with_labels(numbers, y), numbers.splits[0], settings)
    assert result.metric == "R2" and result.test_metric > 0.5


@pytest.mark.parametrize("metric", ["R2", "ROC-AUC"])
def test_labels_to_test_on_change_nothing_that_is_trained(numbers, metric):
    """Every test label is replaced by nonsense; losses, validation scores and weights stay the same."""
    split = numbers.splits[0]
    y = numbers.labels if metric == "R2" else (numbers.labels > numbers.labels.median()).float()
    poisoned = y.clone()
    poisoned[split.test] = torch.rand(len(split.test), 1) * 1e6 if metric == "R2" else 1 - y[split.test]
    found = []
    for labels in (y, poisoned):
        torch.manual_seed(0)
        model = GCN(4, 8, 2, num_layers=1)
        result = fit(model, with_labels(numbers, labels, metric), split, Settings(epochs=5))
        found.append((result.history, [*model.parameters()], result.test_metric))
    (first, weights, score), (second, others, other_score) = found
    assert [(epoch.loss, epoch.val_metric) for epoch in first] == [(epoch.loss, epoch.val_metric) for epoch in second]
    assert all(map(torch.equal, weights, others)) and score != other_score


@pytest.mark.parametrize("part", ["train", "val", "test"])
@pytest.mark.parametrize("value", [7.0, UNKNOWN])
def test_numbers_that_are_all_the_same_in_a_part_are_refused(numbers, part, value):
    split = numbers.splits[0]
    y = numbers.labels.clone()
    y[split.parts[part]] = value
    with pytest.raises(InputError, match=f"dataset 'tree' .*in {part} of this split") as caught:
        make_task(with_labels(numbers, y), split, torch.empty(0))
    assert "\n" not in str(caught.value)


def test_question_loss_is_the_mean_over_the_known_answers(questions, dtype):
    """Against the loss of each known answer by itself."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(40, 4, dtype=dtype, generator=generator, requires_grad=True)
    labels = questions.labels
    expected = []
    for row, answers in zip(logits, labels):
        for question, answer in enumerate(answers.tolist()):
            if answer in (0, 1):
                expected.append(-row[2 * question : 2 * question + 2].softmax(0)[int(answer)].log())
    assert 0 < len(expected) < labels.numel()
    scoring = QuestionScoring("ROC-AUC")
    loss = scoring.loss(logits, labels)
    torch.testing.assert_close(loss, torch.stack(expected).mean())
    assert scoring.weight(labels) == len(expected)
    loss.backward()
    unknown = labels.isnan().repeat_interleave(2, dim=1)
    assert unknown.any() and (logits.grad[unknown] == 0).all() and (logits.grad[~unknown] != 0).all()


@pytest.mark.parametrize("scoring", [QuestionScoring("AP"), NumberScoring(3.0, 2.0)], ids=["questions", "numbers"])
def test_a_batch_without_answers_teaches_nothing(scoring):
    logits = torch.randn(3, 2, requires_grad=True)
    loss = scoring.loss(logits, torch.full((3, 1), UNKNOWN))
    loss.backward()
    assert loss == 0 and (logits.grad == 0).all()


def test_one_question_is_classification_with_two_classes(dtype):
    logits = torch.randn(40, 2, dtype=dtype)
    labels = torch.arange(40) % 2
    losses = QuestionScoring("AP").loss(logits, labels[:, None].float()), ClassScoring().loss(logits, labels)
    torch.testing.assert_close(*losses)


def test_questions_of_nodes_are_learned_from_known_answers_alone():
    tree = small_tree()
    y = torch.stack([tree.graph.y == 0, tree.graph.y == 1], dim=1).float()
    y[::3, 0], y[1::3, 1] = UNKNOWN, UNKNOWN
    dataset = with_labels(tree, y, "ROC-AUC")
    result = fit(GCN(4, 16, 4, num_layers=1), dataset, dataset.splits[0], Settings(epochs=60, lr=0.05))
    assert dataset.num_questions == 2 and result.metric == "ROC-AUC" and result.test_metric > 0.8


def test_numbers_of_graphs_are_learned(molecules):
    """Ten times the mean degree."""
    for graph in molecules.graphs:
        graph.y = 10 * graph.x.mean().reshape(1, 1)
    dataset = GraphDataset("sizes", molecules.graphs, molecules.splits, 2, "test", metric="R2")
    settings = Settings(epochs=120, batch_size=8, lr=0.02, weight_decay=0.0)
    result = fit(GCN(1, 16, 2, num_layers=1, task="graph"), dataset, dataset.splits[0], settings)
    assert result.test_metric > 0.9
