"""What callbacks are told, and what loggers write."""

import csv
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from hkconv.engine.callbacks import Callback, Callbacks, CsvLogger, make_loggers
from hkconv.engine.loop import Epoch
from hkconv.errors import InputError
from hkconv.tasks.recipe import Recipe
from hkconv.tasks.summary import Cell


def test_the_default_callback_is_silent(capsys):
    callback = Callback()
    callback.run_started(Recipe(), [])
    callback.cell_started(Cell("hkn", 0, 0))
    assert capsys.readouterr() == ("", "")


def train(logger, cell, numbers):
    logger.cell_started(cell)
    for number in numbers:
        logger.epoch_ended(Epoch(number, 1 / number, 0.5, 0.25))


def rows(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_csv_has_a_row_an_epoch_as_soon_as_it_ended(tmp_path):
    logger = CsvLogger(tmp_path)
    train(logger, Cell("hkn", 1, 3), [1, 2])
    expected = {"model": "hkn", "split": "1", "seed": "3", "val_loss": "0.5", "val_metric": "0.25"}
    assert rows(tmp_path) == [{**expected, "epoch": "1", "loss": "1.0"}, {**expected, "epoch": "2", "loss": "0.5"}]
    logger.cell_ended(None)
    train(logger, Cell("gcn", 0, 0), [1])
    assert [(row["model"], row["epoch"]) for row in rows(tmp_path)] == [("hkn", "1"), ("hkn", "2"), ("gcn", "1")]


def test_a_resumed_training_replaces_the_rows_that_it_repeats(tmp_path):
    first, second = Cell("hkn", 0, 0), Cell("hkn", 1, 0)
    logger = CsvLogger(tmp_path)
    train(logger, first, [1, 2, 3])
    logger.cell_ended(None)
    train(logger, second, [1, 2, 3])
    with (tmp_path / "metrics.csv").open("a") as file:
        file.write("hkn,1,0,4,0.")
    train(CsvLogger(tmp_path), second, [3, 4])
    assert [(row["split"], row["epoch"]) for row in rows(tmp_path)] == [
        *(("0", epoch) for epoch in "123"),
        *(("1", epoch) for epoch in "1234"),
    ]


@pytest.mark.parametrize("damage", [b"model,spl", b"\xff\xfe\n", b""])
def test_a_damaged_log_begins_anew(tmp_path, damage):
    (tmp_path / "metrics.csv").write_bytes(damage)
    train(CsvLogger(tmp_path), Cell("hkn", 0, 0), [1])
    assert [(row["model"], row["epoch"]) for row in rows(tmp_path)] == [("hkn", "1")]


@dataclass(frozen=True)
class Line:
    step: int
    loss: float
    validation_loss: float | None


def test_steps_are_rows_too(tmp_path):
    logger = CsvLogger(tmp_path)
    logger.steps_logged(Line(50, 2.0, None))
    logger.steps_logged(Line(100, 1.0, 1.5))
    CsvLogger(tmp_path).steps_logged(Line(100, 0.5, 1.25))
    assert rows(tmp_path) == [
        {"step": "50", "loss": "2.0", "validation_loss": ""},
        {"step": "100", "loss": "0.5", "validation_loss": "1.25"},
    ]


def test_a_log_that_cannot_be_written_is_an_input_error(tmp_path):
    logger = CsvLogger(tmp_path / "absent")
    with pytest.raises(InputError, match=r"the log .*metrics\.csv cannot be written"):
        logger.steps_logged(Line(1, 1.0, None))


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_logger_that_is_not_installed_says_what_to_install(tmp_path, monkeypatch, name):
    for module in (name, "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=f"the logger {name} needs the package {name}: pip install {name}"):
        make_loggers((name,), tmp_path)


def test_an_unknown_logger_and_the_default_one(tmp_path):
    assert [type(logger) for logger in make_loggers((), tmp_path)] == [CsvLogger]
    with pytest.raises(InputError, match="unknown logger 'tensorbord'; did you mean 'tensorboard'"):
        make_loggers(("tensorbord",), tmp_path)


class Tracker:
    """In the place of a package that is not installed: remembers the calls of its functions."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def call(*arguments, **options):
            self.calls.append((name, arguments, options))
            return self

        return call


def test_trackers_have_a_run_for_every_training(tmp_path, monkeypatch):
    trackers = {name: Tracker() for name in ("tensorboard", "wandb", "mlflow")}
    monkeypatch.setitem(sys.modules, "wandb", trackers["wandb"])
    monkeypatch.setitem(sys.modules, "mlflow", trackers["mlflow"])
    writer = SimpleNamespace(SummaryWriter=trackers["tensorboard"].SummaryWriter)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", writer)
    callbacks = Callbacks(make_loggers(("tensorboard", "wandb", "mlflow"), tmp_path))
    callbacks.run_started(Recipe(), [])
    for split in (0, 1):
        train(callbacks, Cell("hkn", split, 0), [1, 2])
        callbacks.cell_ended(None)
    names = {
        name: [call for call, *_ in tracker.calls if not call.startswith("__")] for name, tracker in trackers.items()
    }
    scalars = ["add_scalar"] * 6
    assert names["tensorboard"] == ["SummaryWriter", *scalars, "close"] * 2
    assert names["wandb"] == ["init", "log", "log", "finish"] * 2
    assert names["mlflow"] == ["start_run", "log_metrics", "log_metrics", "end_run"] * 2
    logged = [(arguments[0], options["step"]) for name, arguments, options in trackers["wandb"].calls if name == "log"]
    assert logged[1] == ({"loss": 0.5, "val_loss": 0.5, "val_metric": 0.25}, 2)
