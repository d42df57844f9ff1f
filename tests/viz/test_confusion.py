import numpy as np
import pytest
import torch

from hkconv.tasks.building import load_dataset
from hkconv.tasks.run import read_recipe, read_result
from hkconv.tasks.summary import Cell
from hkconv.viz import confusion_figure
from hkconv.viz.confusion import confusion_matrix


def test_matrix_is_counted():
    labels, predicted = torch.tensor([0, 0, 2, 2, 2]), torch.tensor([0, 1, 2, 0, 2])
    assert confusion_matrix(labels, predicted, 3).tolist() == [[1, 1, 0], [0, 0, 0], [1, 0, 2]]


def written_counts(axes, classes):
    counts = np.zeros((classes, classes), int)
    for text in axes.texts:
        column, row = text.get_position()
        counts[row, column] = int(text.get_text())
    return counts


@pytest.mark.parametrize("model", ["hkn", "gcn"])
def test_sums_are_those_of_the_test_sets_and_the_diagonal_is_the_accuracy(run, model):
    axes, bar = confusion_figure(run, model, device="cpu").axes
    dataset = load_dataset(read_recipe(run))
    counts = written_counts(axes, dataset.num_classes)
    tested = torch.cat([dataset.graph.y[split.test] for split in dataset.splits])
    assert counts.sum(1).tolist() == tested.bincount(minlength=dataset.num_classes).tolist()
    results = [read_result(run, Cell(model, split, 0)).test_metric for split in (0, 1)]
    sizes = [len(split.test) for split in dataset.splits]
    right = sum(result * size for result, size in zip(results, sizes))
    assert counts.trace() == pytest.approx(right)
    assert axes.get_title() == f"tree, {model}, 2 trainings: {100 * right / sum(sizes):.1f} % right"
    shares = counts / counts.sum(1, keepdims=True)
    assert axes.images[0].get_array().data == pytest.approx(shares)
    assert axes.images[0].get_clim() == (0, 1)
    assert (axes.get_xlabel(), bar.get_ylabel()) == ("predicted class", "share of the class")


def test_one_split_alone(run):
    axes = confusion_figure(run, split=1, device="cpu").axes[0]
    dataset = load_dataset(read_recipe(run))
    assert written_counts(axes, dataset.num_classes).sum() == len(dataset.splits[1].test)
