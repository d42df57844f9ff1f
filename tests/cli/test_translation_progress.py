import io

from rich.console import Console

from hkconv.cli.translation_progress import TranslationProgress
from hkconv.language.log import LogEntry


def entry(step, validation_loss=None):
    return LogEntry(step, 4.5678, 1.0, 1e-3, 0, 1000, 2.0, 98765.4, validation_loss)


def test_a_terminal_sees_speed_and_the_latest_validation_loss(monkeypatch):
    terminal = io.StringIO()
    monkeypatch.setattr(
        "hkconv.cli.translation_progress.Console", lambda **_: Console(file=terminal, force_terminal=True, width=100)
    )
    with TranslationProgress() as progress:
        progress.started(0, 400)
        progress.logged(entry(100, 3.21))
        progress.logged(entry(150))
        progress.progress.refresh()
        shown = terminal.getvalue()
    assert "150/400" in shown
    assert "loss 4.568" in shown
    assert "val 3.210" in shown
    assert "98,765 tokens/s" in shown
