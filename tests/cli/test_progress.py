import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from hkconv.cli.progress import SearchProgress, TableProgress, TrainProgress, TranslationProgress, duration
from hkconv.engine.loop import Epoch
from hkconv.engine.steps import LogEntry
from hkconv.experiments.tuner import SearchStep
from hkconv.tasks.recipe import make_recipe
from hkconv.tasks.summary import Cell, CellResult

RECORD = {
    "table": "node",
    "dataset": "texas",
    "protocol": "clean",
    "variant": "GCN",
    "split": 1,
    "seed": 0,
    "test": 0.5,
    "val": 0.625,
    "seconds": 2.0,
}


@pytest.fixture
def terminal(monkeypatch) -> io.StringIO:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=100, highlight=False)
    monkeypatch.setattr("hkconv.cli.progress.Console", lambda **_: console)
    return shown


def test_a_terminal_sees_loss_and_validation_metric_of_a_training(terminal):
    with TrainProgress() as progress:
        progress.run_started(make_recipe(epochs=10), [Cell("hkn", 0, 0)])
        progress.cell_started(Cell("hkn", 0, 0))
        progress.epoch_ended(Epoch(5, 1.2345, 1.0, 0.512))
        progress.progress.refresh()
        shown = terminal.getvalue()
    assert "hkn split 0 seed 0 (1/1)" in shown
    assert "loss 1.234" in shown or "loss 1.235" in shown
    assert "val 51.2 %" in shown


def result_of(cell, seconds):
    scores = {"metric": "accuracy", "test_metric": 0.5, "test_loss": 1.0, "val_metric": 0.625, "val_loss": 1.0}
    sizes = {"best_epoch": 3, "epochs": 10, "seconds": seconds, "parameters": 7, "interrupted": False}
    return CellResult(cell.model, cell.split, cell.seed, **scores, **sizes)


def test_a_terminal_keeps_a_line_of_every_training_that_ended(terminal):
    cells = [Cell("hkn", 0, 0), Cell("hkn", 1, 0)]
    with TrainProgress() as progress:
        progress.run_started(make_recipe(epochs=10), cells)
        for cell in cells:
            progress.cell_started(cell)
            progress.cell_ended(result_of(cell, 2.0))
    for number, cell in enumerate(cells, start=1):
        assert f"{cell} ({number}/2): validation 62.5 %, test 50.0 %, 10 epochs, 2.0 s\n" in terminal.getvalue()


def test_the_time_left_is_that_of_the_whole_run(terminal):
    cells = [Cell("hkn", 0, 0), Cell("hkn", 1, 0), Cell("gcn", 0, 0), Cell("gcn", 1, 0)]
    with TrainProgress() as progress:
        progress.run_started(make_recipe(epochs=100), cells)
        progress.cell_started(cells[0])
        # A tenth of the first of four takes 3 s.
        assert progress.seconds_left(10, 3.0) == pytest.approx(27 + 3 * 30)
        progress.cell_ended(result_of(cells[0], 20.0))
        progress.cell_started(cells[1])
        assert progress.seconds_left(50, 15.0) == pytest.approx(5 + 2 * 20)
        # Longer than usual: nobody knows how much.
        assert progress.seconds_left(90, 25.0) == pytest.approx(2 * 20)
        progress.cell_ended(result_of(cells[1], 30.0))
        progress.cell_started(cells[2])
        progress.cell_ended(result_of(cells[2], 1.0))
        progress.cell_started(cells[3])
        assert progress.seconds_left(5, 0.25) == pytest.approx(0.75)
        progress.epoch_ended(Epoch(5, 1.2345, 1.0, 0.512))
        progress.progress.refresh()
    assert "1 s left" in terminal.getvalue()


def test_a_terminal_sees_speed_and_the_latest_validation_loss_of_a_translator(terminal):
    with TranslationProgress() as progress:
        progress.steps_started(0, 400)
        for step, validation_loss in ((100, 3.21), (150, None)):
            progress.steps_logged(LogEntry(step, 4.5678, 1.0, 1e-3, 0, 1000, 2.0, 98765.4, validation_loss))
        progress.progress.refresh()
        shown = terminal.getvalue()
    assert "150/400" in shown
    assert "loss 4.568" in shown
    assert "val 3.210" in shown
    assert "98,765 tokens/s" in shown


def test_a_terminal_sees_what_is_done_and_what_is_left(terminal):
    with TableProgress() as progress:
        progress.planned(12, 2, [])
        progress.cell_ended(RECORD, 3, 10, 700.0)
        progress.progress.refresh()
        shown = terminal.getvalue()
    assert "12 cells, 2 of them stored already" in shown
    assert "node texas clean GCN" in shown
    assert "3/10" in shown.replace(" ", "")
    assert "about 12 min left" in shown


def test_a_pipe_gets_a_line_for_each_training(capsys):
    with TableProgress() as progress:
        progress.cell_ended(RECORD, 3, 10, 40.0)
        progress.cell_ended({**RECORD, "error": "out of [memory]"}, 4, 10, None)
        progress.cell_ended({**RECORD, "table": "runtime", "test": 0.0125}, 5, 10, None)
    assert capsys.readouterr().err.splitlines() == [
        "node texas clean GCN split 1 seed 0 (3/10): validation 62.5 %, test 50.0 %, 2.0 s, about 40 s left",
        "node texas clean GCN split 1 seed 0 (4/10): failed: out of [memory]",
        "runtime texas clean GCN split 1 seed 0 (5/10): 12.5 ms an epoch",
    ]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_search_has_a_line_for_each_trial(request, capsys, is_terminal):
    shown = request.getfixturevalue("terminal") if is_terminal else None
    best = SimpleNamespace(number=0, value=0.5, state=SimpleNamespace(name="COMPLETE"))
    worse = SimpleNamespace(number=1, value=0.25, state=SimpleNamespace(name="PRUNED"))
    with SearchProgress() as progress:
        progress.trial_ended(SearchStep(best, 1, 3, best))
        progress.trial_ended(SearchStep(worse, 2, 3, best))
    lines = shown.getvalue() if shown else capsys.readouterr().err
    assert "trial 0 (1/3): validation 50.0 %, best 50.0 %, 0 s\n" in lines
    assert "trial 1 (2/3): cut short at 25.0 %, best 50.0 %, 0 s\n" in lines


def test_durations():
    assert [duration(seconds) for seconds in (40, 700, 7200)] == ["40 s", "12 min", "2.0 h"]
