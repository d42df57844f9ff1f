import io

import pytest
from rich.console import Console

from hkconv.cli.table_progress import TableProgress, duration

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
    monkeypatch.setattr("hkconv.cli.table_progress.Console", lambda **_: console)
    return shown


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


def test_durations():
    assert [duration(seconds) for seconds in (40, 700, 7200)] == ["40 s", "12 min", "2.0 h"]
