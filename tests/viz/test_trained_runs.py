import shutil

import pytest
import torch
from own_files import write_houses

from hkconv.engine.checkpoint import load_checkpoint
from hkconv.errors import InputError
from hkconv.geometry.lorentz import dist
from hkconv.tasks.building import load_dataset
from hkconv.tasks.recipe import make_recipe
from hkconv.tasks.run import read_recipe, read_result, train_run
from hkconv.tasks.summary import Cell
from hkconv.viz.trained_runs import TrainingFilter, choose_trainings, read_answers


@pytest.mark.parametrize(
    "choice, expected",
    [
        (TrainingFilter(), ["hkn split 0 seed 0", "hkn split 1 seed 0", "gcn split 0 seed 0", "gcn split 1 seed 0"]),
        (TrainingFilter("gcn"), ["gcn split 0 seed 0", "gcn split 1 seed 0"]),
        (TrainingFilter(split=1), ["hkn split 1 seed 0", "gcn split 1 seed 0"]),
        (TrainingFilter("hkn", 0, 0), ["hkn split 0 seed 0"]),
    ],
)
def test_choice(run, choice, expected):
    assert [str(cell) for cell in choose_trainings(run, choice)] == expected


def test_answers_give_the_stored_accuracy(run):
    for model in ("hkn", "gcn"):
        answers = read_answers(run, TrainingFilter(model, 1), device="cpu")
        right = (answers.labels == answers.predicted).double().mean().item()
        assert right == read_result(run, Cell(model, 1, 0)).test_metric
        assert answers.title == f"tree, {model}, 1 training"
        assert (answers.distances is None) == (model == "gcn")


@torch.no_grad()
def test_distances_are_those_of_the_last_readout(run):
    recipe = read_recipe(run)
    dataset = load_dataset(recipe)
    model = load_checkpoint(run / "hkn" / "split1-seed0")[0]
    points = model.encode(dataset.graph.x, dataset.graph.edge_index)[dataset.splits[1].test]
    answers = read_answers(run, TrainingFilter("hkn", 1), device="cpu")
    assert torch.allclose(answers.distances, dist(points[:, None], model.distance.centers), atol=1e-5)
    if recipe.model.hkn.form == "paper":
        assert answers.layers_read == 1
        assert torch.equal(answers.distances.argmin(1), answers.predicted)
    else:
        # The embedding and three layers; the last alone gives another answer somewhere.
        assert answers.layers_read == 4
        assert not torch.equal(answers.distances.argmin(1), answers.predicted)


def test_answers_of_a_network_trained_on_samples_are_those_of_the_whole_graph(sampled_run):
    answers = read_answers(sampled_run, TrainingFilter("hkn", 1), device="cpu")
    dataset = load_dataset(read_recipe(sampled_run))
    test = dataset.splits[1].test
    model = load_checkpoint(sampled_run / "hkn" / "split1-seed0")[0]
    with torch.no_grad():
        logits = model(dataset.graph.x, dataset.graph.edge_index)[test]
        points = model.encode(dataset.graph.x, dataset.graph.edge_index)[test]
    assert torch.equal(answers.labels, dataset.graph.y[test])
    assert torch.equal(answers.predicted, logits.argmax(1))
    assert torch.allclose(answers.distances, dist(points[:, None], model.distance.centers), atol=1e-5)


def test_answers_of_a_model_are_those_of_its_trainings_in_a_row(run):
    both = read_answers(run, TrainingFilter(), device="cpu")
    each = [read_answers(run, TrainingFilter("hkn", split), device="cpu") for split in (0, 1)]
    assert both.title == "tree, hkn, 2 trainings"
    for field in ("labels", "predicted", "distances"):
        assert torch.equal(getattr(both, field), torch.cat([getattr(answers, field) for answers in each]))
    dataset = load_dataset(read_recipe(run))
    assert torch.equal(each[1].labels, dataset.graph.y[dataset.splits[1].test])


def test_the_model_is_left_as_it_was(run):
    before = load_checkpoint(run / "hkn" / "split0-seed0")[0].state_dict()
    read_answers(run, TrainingFilter("hkn", 0), device="cpu")
    after = load_checkpoint(run / "hkn" / "split0-seed0")[0].state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_runs_that_cannot_be_drawn(run, tmp_path):
    with pytest.raises(InputError, match="run must be a folder that `hkconv train` made"):
        choose_trainings(tmp_path / "nowhere", TrainingFilter())
    with pytest.raises(InputError, match="has no training of model mlp split 7; it has hkn split 0 seed 0 to gcn"):
        choose_trainings(run, TrainingFilter("mlp", 7))
    copy = shutil.copytree(run, tmp_path / "copy")
    (copy / "hkn" / "split0-seed0" / "model.safetensors").unlink()
    with pytest.raises(InputError, match="weights cannot be read"):
        read_answers(copy, TrainingFilter(), device="cpu")
    for model in ("hkn", "gcn"):
        shutil.rmtree(copy / model)
    with pytest.raises(InputError, match="has no finished training; continue it with hkconv train --resume"):
        choose_trainings(copy, TrainingFilter())


def test_links_have_no_classes(tmp_path):
    recipe = make_recipe(task="link", models=("gcn",), epochs=1, num_splits=1, hidden_dim=3, device="cpu")
    summary = train_run(make_recipe({**recipe.flat(), "models": ("gcn",), "out": str(tmp_path / "links")}))
    with pytest.raises(InputError, match="has no classes to compare: its task is scored by ROC-AUC"):
        read_answers(summary.folder, TrainingFilter(), device="cpu")


@pytest.mark.parametrize(("labels", "metric"), [("target", "R2"), ("questions", "ROC-AUC")])
def test_numbers_and_answers_have_no_classes(tmp_path, labels, metric):
    houses = str(write_houses(tmp_path / "houses", labels))
    recipe = make_recipe(
        dataset=houses, models=("gcn",), epochs=1, num_splits=1, device="cpu", out=str(tmp_path / "run")
    )
    with pytest.raises(InputError, match=f"has no classes to compare: its task is scored by {metric}"):
        read_answers(train_run(recipe).folder, TrainingFilter(), device="cpu")
