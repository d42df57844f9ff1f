import math

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from hkconv.data import GraphDataset, Split
from hkconv.engine.checkpoint import load_checkpoint
from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.tasks import building
from hkconv.tasks.building import load_dataset
from hkconv.tasks.recipe import make_recipe
from hkconv.tasks.run import read_recipe, train_run
from hkconv.viz import class_distances_figure
from hkconv.viz.class_distances import mean_distances


def distance(x, c):
    """arcosh(-<x, c>), literally."""
    return math.acosh(max(1.0, (x[0] * c[0] - x[1:] @ c[1:]).item()))


def literal_means(pairs, centres, classes):
    """Pairs of point and label, and the centres that belong to each pair."""
    sums, counts = np.zeros((classes, classes)), np.zeros((classes, 1))
    for (point, label), own in zip(pairs, centres):
        sums[label] += [distance(point, centre) for centre in own]
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
