import json
import re

import pytest
import torch
from own_files import write_houses, write_papers
from small_datasets import poisoned, small_tree

from hkconv.data.own.loading import load_own
from hkconv.engine.checkpoint import load_checkpoint
from hkconv.errors import InputError
from hkconv.tasks import building, fitting, refit
from hkconv.tasks.evaluate import evaluate_run
from hkconv.tasks.predict import choose_training, predict_run
from hkconv.tasks.recipe import make_recipe
from hkconv.tasks.refit import refit_run
from hkconv.tasks.run import train_run


@pytest.fixture
def run(tmp_path):
    papers = write_papers(tmp_path / "papers")
    settings = {"models": ("gcn", "mlp"), "epochs": 20, "lr": 0.05, "num_splits": 2, "hidden_dim": 4, "device": "cpu"}
    train_run(make_recipe(dataset=str(papers), out=str(tmp_path / "run"), **settings))
    return tmp_path / "run"


def test_every_label_is_trained_on_for_as_many_epochs_as_the_best_training_had(run, monkeypatch):
    seen = []

    def watched(network, dataset, split, settings, keep):
        seen.append((split, settings))
        return fitting.fit(network, dataset, split, settings, keep)

    monkeypatch.setattr(refit, "fit", watched)
    before = choose_training(run)
    found = refit_run(run)
    ((split, settings),) = seen
    labels = load_own(run.parent / "papers").labels
    assert split.train.tolist() == (labels >= 0).nonzero().flatten().tolist() and len(split.train) == found.labels == 50
    assert settings.epochs == found.epochs == before.result.best_epoch
    own = json.loads((run / "data.json").read_text())["scalings"][before.result.split]
    assert split.scaling.center == tuple(own["center"])


def test_the_refitted_network_predicts_and_the_stored_results_stay(run):
    before = predict_run(run, device="cpu")
    stored = [entry.stored for entry in evaluate_run(run)]
    found = refit_run(run)
    after = predict_run(run, device="cpu")
    assert after.choice.result == before.choice.result and after.choice.place == found.folder
    assert after.choice.reason == f"{before.choice.reason}; refitted on all labels"
    _, info = load_checkpoint(found.folder)
    assert info.training["refit_of"] == str(before.choice.result.cell)
    assert not torch.equal(after.probabilities, before.probabilities)
    assert [entry.stored for entry in evaluate_run(run)] == stored and all(entry.agrees for entry in evaluate_run(run))
    other = "mlp" if before.choice.result.model == "gcn" else "gcn"
    assert "refitted" not in predict_run(run, model=other, device="cpu").choice.reason


def test_poisoned_test_labels_change_neither_the_choice_nor_the_number_of_epochs(tmp_path, monkeypatch):
    chosen, weights = [], []
    for number, dataset in enumerate((small_tree(1), poisoned(small_tree(1)))):
        monkeypatch.setattr(building, "load", lambda *_, dataset=dataset, **__: dataset)
        settings = {"models": ("gcn", "mlp"), "epochs": 30, "num_splits": 1, "seeds": 2, "device": "cpu"}
        train_run(make_recipe(out=str(tmp_path / str(number)), **settings))
        result, found = choose_training(tmp_path / str(number)).result, refit_run(tmp_path / str(number))
        chosen.append((result.cell, result.val_loss, found.model, found.epochs, found.labels))
        weights.append(load_checkpoint(found.folder)[0].state_dict())
    assert chosen[0] == chosen[1]
    # The poison works: the labels to test on are trained on now.
    assert any(not torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


def test_the_weights_of_the_last_epoch_are_kept(run, monkeypatch):
    """Not those that do best on what validates, which is among what was trained on."""
    ends = []

    def watched(network, dataset, split, settings, keep):
        def look(epoch):
            keep(epoch)
            ends.append({name: tensor.clone() for name, tensor in network.state_dict().items()})

        found = fitting.fit(network, dataset, split, settings, look)
        network.load_state_dict(ends[0])  # as if the first epoch had been the best
        return found

    monkeypatch.setattr(refit, "fit", watched)
    model, _ = load_checkpoint(refit_run(run).folder)
    assert all(torch.equal(tensor, ends[-1][name]) for name, tensor in model.state_dict().items())
    assert len(ends) > 1 and any(not torch.equal(tensor, ends[0][name]) for name, tensor in model.state_dict().items())


def test_an_interrupt_leaves_the_run_as_it_was(run, monkeypatch):
    def interrupted(network, dataset, split, settings, keep):
        def stop(epoch):
            raise KeyboardInterrupt

        return fitting.fit(network, dataset, split, settings, stop)

    monkeypatch.setattr(refit, "fit", interrupted)
    assert refit_run(run) is None and not (run / "refit").exists()


def test_links_need_no_refit(tmp_path):
    papers = write_papers(tmp_path / "papers")
    settings = {"models": ("gcn",), "epochs": 2, "num_splits": 1, "device": "cpu", "task": "link"}
    train_run(make_recipe(dataset=str(papers), out=str(tmp_path / "run"), **settings))
    with pytest.raises(InputError, match=re.escape("refit is for node and graph tasks")):
        refit_run(tmp_path / "run")


def test_numbers_keep_the_unit_of_the_chosen_training(tmp_path):
    settings = {"models": ("gcn",), "epochs": 10, "num_splits": 2, "hidden_dim": 4, "device": "cpu"}
    houses = write_houses(tmp_path / "houses")
    train_run(make_recipe(dataset=str(houses), out=str(tmp_path / "run"), **settings))
    found = refit_run(tmp_path / "run")
    assert found.labels == 81
    predictions = predict_run(tmp_path / "run", device="cpu")
    dataset = load_own(houses, num_splits=2)
    split = dataset.splits[predictions.choice.result.split]
    network, _ = load_checkpoint(found.folder)
    with torch.no_grad():
        logits = network(split.scaling(dataset.graph.x), dataset.graph.edge_index).double()
    mean, deviation = split.target
    torch.testing.assert_close(predictions.probabilities, mean + deviation * (logits[:, 1:] - logits[:, :1]))
