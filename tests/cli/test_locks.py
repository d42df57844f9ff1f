"""Two commands in one folder: the second says who is there and touches nothing; a kill leaves no lock behind."""

import platform
import re
import shlex
import signal
import time
from pathlib import Path

import pytest
from toy_translation import write_toy

from hkconv.engine.files import locked

from .test_signals import CASES


def contents(folder: Path) -> dict:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["train", "translate"])
def test_the_second_command_says_who_holds_the_folder_and_touches_nothing(forks, tmp_path, name):
    case = CASES[name]
    write_toy(tmp_path)
    words = case.arguments[:1] if name == "train" else case.arguments[:2]
    first = forks.start(*case.arguments, folder=tmp_path)
    deadline = time.monotonic() + 120
    while not case.has_begun(tmp_path):
        assert first.is_running() and time.monotonic() < deadline, first.stderr
        time.sleep(0.01)
    # It holds still, so that whatever changes is the second one's doing.
    first.send(signal.SIGSTOP)
    before = {}
    while before != (before := contents(tmp_path)):
        time.sleep(0.1)
    command = re.escape(shlex.join(["hkconv", *map(str, case.arguments)]))[:100]
    since = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    for arguments in (case.arguments, (*words, "--resume", "run")):
        code, second = forks.run(*arguments, folder=tmp_path)
        assert code == 2
        line = second.stderr.splitlines()[-1]
        holder = f"process {first.pid} on {platform.node()} since {since}: {command}"
        assert re.match(f"error: out run is in use by {holder}", line), line
        assert "Traceback" not in second.stderr
        assert contents(tmp_path) == before
    first.send(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    second = forks.start(*words, "--resume", "run", folder=tmp_path)
    lock = tmp_path / "run" / ".hkconv-lock"
    while f"process {second.pid} " not in lock.read_text():
        assert second.is_running() and time.monotonic() < deadline, second.stderr
        time.sleep(0.01)
    second.send(signal.SIGTERM)
    assert second.wait() == 143, second.stderr
    assert not lock.exists()


def test_a_search_shares_its_folder_as_it_is_meant_to(forks, tmp_path):
    arguments = ("search", "--model", "mlp", "--trials", 4, "--epochs", 2, "--num-splits", 1, "--hidden-dim", 4)
    both = [forks.start(*arguments, "--device", "cpu", "--out", "search", folder=tmp_path) for _ in range(2)]
    assert [command.wait() for command in both] == [0, 0], [command.stderr for command in both]


def test_a_report_of_a_probe_has_one_writer(hkconv, tmp_path, monkeypatch):
    from toy_treebank import write_treebank

    from hkconv.language import probe_training

    monkeypatch.setattr(probe_training, "EPOCHS", 1)
    write_toy(tmp_path)
    texts = ("--train", tmp_path / "train", "--valid", tmp_path / "valid", "--out", "run")
    small = {"model": "transformer", "dim": 8, "num-heads": 2, "num-layers": 1, "merges": 30, "max-length": 32}
    small |= {"batch-tokens": 128, "steps": 1, "device": "cpu"}
    options = [text for name, value in small.items() for text in (f"--{name}", value)]
    assert hkconv("translate", "train", *texts, *options).exit_code == 0
    treebank = write_treebank(tmp_path / "treebank", {"train": 20, "dev": 5, "test": 5})
    with locked(Path("run", "probe"), "out"):
        line = hkconv.fails("probe", "run", "--treebank", treebank, "--device", "cpu")
        assert line.startswith("error: out run/probe is in use by process ")
    assert not Path("run", "probe").exists()
