import math

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from hkconv.data import GraphDataset, Split
from hkconv.engine.checkpoint import load_checkpoint
from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.report.style import styled
from hkconv.tasks import building
from hkconv.tasks.building import load_dataset
from hkconv.tasks.recipe import make_recipe
from hkconv.tasks.run import read_recipe, read_result, train_run
from hkconv.tasks.summary import Cell
from hkconv.viz import class_distances_figure, confusion_figure
from hkconv.viz.class_figures import MOST_NUMBERED, confusion_matrix, matrix_figure, mean_distances


def draw(values, **options):
    names = {"heat_map": "Blues", "title": "a title", "scale": "a scale", "across": "columns"}
    return styled(matrix_figure)(values, lambda row, column: f"{row}/{column}", **names, **options)


def test_cells_texts_and_labels():
    values = np.arange(9.0).reshape(3, 3)
    axes, bar = draw(values).axes
    (image,) = axes.images
    assert (image.get_array() == values).all()
    assert image.get_clim() == (0, 8)
    texts = {text.get_position(): text.get_text() for text in axes.texts}
    assert texts == {(column, row): f"{row}/{column}" for row in range(3) for column in range(3)}
    assert [axes.get_title(), axes.get_xlabel(), axes.get_ylabel()] == ["a title", "columns", "true class"]
    assert bar.get_ylabel() == "a scale"
    assert axes.get_xticks().tolist() == axes.get_yticks().tolist() == [0, 1, 2]


def test_classes_have_the_names_of_the_data():
    axes = draw(np.zeros((2, 2)), names=("low", "a name that goes on and on")).axes[0]
    for ticks in (axes.get_xticklabels(), axes.get_yticklabels()):
        assert [tick.get_text() for tick in ticks] == ["low", "a name that goe…"]


def test_limits_and_missing_values():
    axes = draw(np.array([[0.5, np.nan], [0.2, 0.1]]), limits=(0, 1)).axes[0]
    assert axes.images[0].get_clim() == (0, 1)
    assert len(axes.texts) == 4


@pytest.mark.parametrize("count, texts", [(MOST_NUMBERED, MOST_NUMBERED**2), (MOST_NUMBERED + 1, 0), (300, 0)])
def test_many_classes_have_no_numbers_and_the_size_stays(count, texts):
    figure = draw(np.zeros((count, count)))
    assert len(figure.axes[0].texts) == texts
    assert max(figure.get_size_inches()) < 9


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


def distance(x, c):
    """arcosh(-<x, c>), literally."""
    return math.acosh(max(1.0, (x[0] * c[0] - x[1:] @ c[1:]).item()))


def literal_means(pairs, centres, classes):
    """Pairs of point and label, and the centres that belong to each pair."""
    sums, counts = np.zeros((classes, classes)), np.zeros((classes, 1))
    for (point, label), own in zip(pairs, centres):
        sums[label] += [distance(point, center) for center in own]
        counts[label] += 1
    return sums / counts


@torch.no_grad()
def test_entries_are_the_mean_distances_of_both_trainings(run):
    dataset = load_dataset(read_recipe(run))
    graph = dataset.graph
    pairs, centres = [], []
    for number, split in enumerate(dataset.splits):
        model, _ = load_checkpoint(run / "hkn" / f"split{number}-seed0")
        model = model.double()
        points = model.encode(graph.x.double(), graph.edge_index)
        pairs += [(points[node], graph.y[node]) for node in split.test]
        centres += [model.distance.centers] * len(split.test)
    expected = literal_means(pairs, centres, dataset.num_classes)
    axes, bar = class_distances_figure(run, device="cpu").axes
    assert axes.images[0].get_array().data == pytest.approx(expected, abs=1e-4)
    assert axes.get_title() == "tree, hkn, 2 trainings"
    across = {"views": "centre of class, last of 4 readouts", "paper": "centre of class"}[
        read_recipe(run).model.hkn.form
    ]
    assert (axes.get_xlabel(), bar.get_ylabel()) == (across, "mean distance")
    assert {text.get_text() for text in axes.texts if text.get_position() == (0, 1)} == {f"{expected[1, 0]:.2f}"}


@pytest.mark.parametrize("form", ["views", "paper"])
@torch.no_grad()
def test_a_graphs_distance_is_that_of_its_centroid(tmp_path, monkeypatch, form):
    graphs = []
    for index in range(12):
        edges = torch.stack([torch.arange(3 + index % 4), (torch.arange(3 + index % 4) + 1) % (3 + index % 4)])
        x = torch.full((3 + index % 4, 2), float(index % 2))
        graphs.append(Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], 1), y=torch.tensor([index % 2])))
    split = Split(torch.arange(6), torch.arange(6, 8), torch.arange(8, 12))
    shapes = GraphDataset("shapes", graphs, [split], 2, "test")
    monkeypatch.setattr(building, "load", lambda *_, **__: shapes)
    with torch.enable_grad():
        values = {"models": ("hkn",), "form": form, "epochs": 1, "num_splits": 1, "hidden_dim": 3, "device": "cpu"}
        train_run(make_recipe(**values, out=str(tmp_path / "run")))
    model, _ = load_checkpoint(tmp_path / "run" / "hkn" / "split0-seed0")
    pooled = [lorentz.centroid(model.encode(graph.x, graph.edge_index)) for graph in graphs[8:]]
    pairs = [(point, graph.y) for point, graph in zip(pooled, graphs[8:])]
    expected = literal_means(pairs, [model.distance.centers] * 4, 2)
    axes = class_distances_figure(tmp_path / "run", device="cpu").axes[0]
    assert axes.images[0].get_array().data == pytest.approx(expected, abs=1e-3)


def test_a_class_without_members_has_no_mean():
    means = mean_distances(torch.tensor([0, 2, 2]), torch.tensor([[1.0, 2, 3], [4, 5, 6], [6, 5, 4]]))
    assert means[[0, 2]].tolist() == [[1, 2, 3], [5, 5, 5]]
    assert means[1].isnan().all()


def test_a_model_without_centres(run):
    with pytest.raises(InputError, match=r"the model has no class centres \(tree, gcn, 2 trainings\)"):
        class_distances_figure(run, "gcn", device="cpu")
