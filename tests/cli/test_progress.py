import io

from rich.console import Console

from hkconv.cli.progress import ProgressReporter
from hkconv.engine.loop import Epoch
from hkconv.tasks.recipe import make_recipe
from hkconv.tasks.summary import Cell


def test_a_terminal_sees_loss_and_validation_metric(monkeypatch):
    terminal = io.StringIO()
    monkeypatch.setattr(
        "hkconv.cli.progress.Console", lambda **_: Console(file=terminal, force_terminal=True, width=80)
    )
    with ProgressReporter() as reporter:
        reporter.run_started(make_recipe(epochs=10), [Cell("hkn", 0, 0)])
        reporter.cell_started(Cell("hkn", 0, 0))
        reporter.epoch_ended(Epoch(5, 1.2345, 1.0, 0.512))
        reporter.progress.refresh()
        shown = terminal.getvalue()
    assert "hkn split 0 seed 0 (1/1)" in shown
    assert "loss 1.234" in shown or "loss 1.235" in shown
    assert "val 51.2 %" in shown
