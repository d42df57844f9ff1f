from dataclasses import replace

import pytest
import torch

from hkconv.engine.callbacks import Callback
from hkconv.engine.devices import describe_device
from hkconv.engine.step import CaptureBrokenError, CaptureRefusedError
from hkconv.errors import InputError
from hkconv.experiments import training
from hkconv.experiments.pool import SpoiledError
from hkconv.experiments.recipe_files import read_table
from hkconv.experiments.store import append, read
from hkconv.experiments.tables import Choice, Execution, list_cells
from hkconv.experiments.training import CellTrainer, torch_threads
from hkconv.tasks.building import load_dataset
from hkconv.tasks.run import train_cell


@pytest.fixture
def cell(recipes):
    return list_cells(read_table("node", recipes), Choice(systems=("GCN",)), Execution("cpu"))[1]


def test_a_record_holds_what_its_figure_rests_on(cell, tmp_path):
    record = CellTrainer()(cell)
    with torch_threads(1):
        result = train_cell(cell.training, cell.recipe, load_dataset(cell.recipe), torch.device("cpu")).result
    assert (record["test"], record["val"]) == (result.test_metric, result.val_metric)
    assert (record["test_loss"], record["val_loss"]) == (result.test_loss, result.val_loss)
    assert (record["best_epoch"], record["epochs"]) == (result.best_epoch, 3)
    assert record["parameters"] == result.parameters > 0
    assert record["metric"] == "accuracy"
    assert record["dataset_info"]["num_nodes"] == 971
    assert record["versions"]["torch"] == torch.__version__
    assert record["device"] == describe_device(torch.device("cpu"))
    assert record["peak_memory_bytes"] >= 0
    assert {"commit", "when"} < set(record)
    append(tmp_path, record)
    (found,), damaged = read(tmp_path, ("node",))
    # What counts for nobody is not stored to the last digit; fields that its model does not use have their defaults.
    assert found.keys() == record.keys() and damaged == []
    changed = {key for key in record if found[key] != record[key]}
    assert (
        changed <= {"recipe", "seconds", "test_loss", "val_loss"}
        and record["recipe"].items() <= found["recipe"].items()
    )
    assert found["val_loss"] == pytest.approx(record["val_loss"], rel=1e-7)


def test_a_record_of_links_has_both_scores_and_counts_pairs(cell, tmp_path):
    on_links = replace(cell, recipe=cell.recipe.replace(task="link"))
    record = CellTrainer()(on_links)
    assert record["metric"] == "ROC-AUC" and 0 < record["test_ap"] < 1
    sizes = record["split_sizes"]
    # The tree has 970 links.
    assert sizes["train"] + sizes["val"] + sizes["test"] == 970
    assert (sizes["val_negatives"], sizes["test_negatives"]) == (sizes["val"], sizes["test"])
    append(tmp_path, record)
    (found,), damaged = read(tmp_path, ("node",))
    assert found["test_ap"] == record["test_ap"] and found["recipe"]["task"] == "link" and damaged == []


def test_threads_and_algorithms_are_as_before(cell):
    torch.set_num_threads(2)
    CellTrainer()(cell)
    assert torch.get_num_threads() == 2
    assert not torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)


@pytest.mark.parametrize(
    "error, reason",
    [
        (InputError("the training loss became nan in epoch 1"), "the training loss became nan in epoch 1"),
        (torch.OutOfMemoryError("CUDA out of memory.\nTried"), "OutOfMemoryError: CUDA out of memory."),
        (MemoryError(), "MemoryError: "),
    ],
)
def test_a_failure_is_a_record_too(cell, monkeypatch, error, reason):
    def fail(*_):
        raise error

    monkeypatch.setattr(training, "train_cell", fail)
    record = CellTrainer()(cell)
    assert record["error"] == reason
    assert "test" not in record
    assert record["versions"]


def test_half_a_training_is_no_result(cell, monkeypatch):
    class CtrlC(Callback):
        def epoch_ended(self, epoch):
            if epoch.number == 2:
                raise KeyboardInterrupt

    monkeypatch.setattr(training, "train_cell", lambda *arguments: train_cell(*arguments[:-1], CtrlC()))
    with pytest.raises(KeyboardInterrupt):
        CellTrainer()(cell)


def test_data_that_cannot_be_loaded_is_no_failure_of_the_training(tmp_path):
    cell = list_cells(read_table("graph"), Choice(datasets=("ptc",)), Execution("cpu", str(tmp_path)))[0]
    error = CellTrainer()(cell)
    assert isinstance(error, InputError) and "ptc" in str(error)


def test_more_splits_than_the_dataset_has(cell, monkeypatch):
    dataset = load_dataset(cell.recipe)
    monkeypatch.setattr(training, "load_dataset", lambda _: replace(dataset, splits=dataset.splits[:1]))
    assert str(CellTrainer()(cell)) == "dataset 'tree' has 1 split(s), asked for 2"


def test_what_cannot_be_captured_is_trained_without(cell, monkeypatch):
    tried = []
    train_cell = training.train_cell

    def refusing(cell, recipe, *rest):
        tried.append(recipe.runtime.capture)
        if recipe.runtime.capture:
            raise CaptureRefusedError("it waits")
        return train_cell(cell, recipe, *rest)

    monkeypatch.setattr(training, "train_cell", refusing)
    captured = replace(cell, recipe=cell.recipe.replace(capture=True))
    record, plain = (CellTrainer()(each) for each in (captured, cell))
    assert tried == [True, False, False]
    assert not record["recipe"]["capture"] and record["val"] == plain["val"]


def test_hidden_test_data_gives_no_test_score(cell):
    hidden, shown = (CellTrainer(test_is_hidden=value)(cell) for value in (True, False))
    assert hidden["test"] is hidden["test_loss"] is None and shown["test"] is not None
    assert (hidden["val"], hidden["val_loss"]) == (shown["val"], shown["val_loss"])
    assert set(hidden["split_sizes"]) == {"train", "val"}


def test_a_broken_capture_spoils_the_process(cell, monkeypatch):
    def breaking(*_):
        raise CaptureBrokenError("out of memory")

    monkeypatch.setattr(training, "train_cell", breaking)
    with pytest.raises(SpoiledError, match="out of memory"):
        CellTrainer()(cell)
