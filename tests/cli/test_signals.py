"""Ctrl-C and SIGTERM: what was done is kept, the exit code says which it was, and the command can go on."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from toy_translation import SMALL, write_toy

from hkconv.engine.checkpoint import load_checkpoint
from hkconv.engine.state import FILE
from hkconv.experiments import store
from hkconv.language.runs import load_run

from .test_kills import check_files

TABLE = """\
metric: accuracy
settings: {epochs: 300, patience: 1000, hidden_dim: 4}
systems: {MLP: {model: mlp}}
protocols: {clean: {num_splits: 40, seeds: 1}}
quick: {num_splits: 1, epochs: 1}
datasets: {tree: {}}
"""
SPACE = "trials: 99\nnum_splits: 2\nspace: {lr: [0.01, 0.02, 0.03, 0.05, 0.1], hidden_dim: [3, 4, 5, 6]}\nown: {}\n"


@dataclass(frozen=True)
class Case:
    """A command that takes long.

    Args:
        arguments: its own.
        has_begun: whether it has something to lose, given the folder.
        check: that it did not lose it, given the folder and what the command printed.
    """

    arguments: tuple
    has_begun: Callable[[Path], bool]
    check: Callable[[Path, str], None]


def check_train(folder: Path, stdout: str) -> None:
    cell = folder / "run" / "mlp" / "split0-seed0"
    metrics = json.loads((cell / "metrics.json").read_text())
    assert metrics["interrupted"] and 1 <= metrics["best_epoch"] <= metrics["epochs"] == len(metrics["history"])
    load_checkpoint(cell, expected="mlp")
    assert (cell / FILE).exists()
    assert json.loads((folder / "run" / "summary.json").read_text())["interrupted"]
    assert "interrupted: the table shows what had finished; mlp split 0 seed 0 kept its best weights" in stdout
    assert "go on: hkconv train --resume run" in stdout


def check_search(folder: Path, stdout: str) -> None:
    assert "interrupted: the same command goes on" in stdout
    assert "best: search/best.yaml" in stdout and (folder / "search" / "best.yaml").exists()


def check_records(table: str) -> Callable[[Path, str], None]:
    def check(folder: Path, stdout: str) -> None:
        records, damaged = store.read(folder / "records", [table])
        assert damaged == [] and 0 < len(store.finished(records)) == len(records)
        assert "interrupted: what ended is kept; go on with the same command" in stdout

    return check


def check_translate(folder: Path, stdout: str) -> None:
    assert "interrupted; go on: hkconv translate train --resume run" in stdout
    load_run(folder / "run", "last")


def has(pattern: str) -> Callable[[Path], bool]:
    return lambda folder: any(folder.glob(pattern))


LONG = ("--epochs", 100_000, "--patience", 100_000, "--hidden-dim", 4, "--device", "cpu")
SHORT = ("--epochs", 5, "--num-splits", 1, "--hidden-dim", 4, "--device", "cpu")
RECIPES = ("--recipes", "recipes", "--results", "records", "--device", "cpu")
SLOW = {**SMALL, "steps": 100_000, "validate_every": 3}
TRANSLATE = (text for name, value in SLOW.items() for text in (f"--{name.replace('_', '-')}", value))
CASES = {
    "train": Case(
        ("train", "--models", "mlp", *LONG, "--keep-every", 0, "--out", "run"), has(f"run/mlp/*/{FILE}"), check_train
    ),
    "search": Case(
        ("search", "--model", "mlp", "--trials", 5000, *SHORT, "--out", "search"), has("search/best.yaml"), check_search
    ),
    "reproduce": Case(("reproduce", "node", *RECIPES), has("records/node/clean.csv"), check_records("node")),
    "tune": Case(("tune", "node", *RECIPES), has("records/tuning-node/clean.csv"), check_records("tuning-node")),
    "translate": Case(
        ("translate", "train", "--train", "train", "--valid", "valid", "--out", "run", *TRANSLATE),
        has("run/state.safetensors"),
        check_translate,
    ),
}


def prepare(folder: Path) -> None:
    for name, text in (("node", TABLE), ("tuning/node", SPACE)):
        path = folder / "recipes" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    write_toy(folder)


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize("name", CASES)
def test_an_interrupted_command_keeps_what_it_has(forks, tmp_path, name, number, code):
    case = CASES[name]
    prepare(tmp_path)
    command = forks.start(*case.arguments, folder=tmp_path)
    deadline = time.monotonic() + 120
    while not case.has_begun(tmp_path):
        assert command.is_running() and time.monotonic() < deadline, command.stderr
        time.sleep(0.01)
    command.send(number)
    assert command.wait() == code, command.stderr
    assert "Traceback" not in command.stderr and "\x1b" not in command.stdout + command.stderr
    check_files(tmp_path)
    assert not list(tmp_path.rglob("*.part"))
    case.check(tmp_path, command.stdout)


def test_a_translation_keeps_the_step_it_was_in(forks, tmp_path):
    """Not only the last validation: the state is that of the last step."""
    write_toy(tmp_path)
    arguments = [text for name, value in SLOW.items() for text in (f"--{name.replace('_', '-')}", value)]
    begin = ("translate", "train", "--train", "train", "--valid", "valid", "--out", "run", *arguments)
    command = forks.start(*begin, "--validate-every", 100_000, "--log-every", 1, folder=tmp_path)
    log = tmp_path / "run" / "log.jsonl"
    deadline = time.monotonic() + 120
    while not log.exists() or log.read_bytes().count(b"\n") < 3:
        assert command.is_running() and time.monotonic() < deadline, command.stderr
        time.sleep(0.01)
    command.send(signal.SIGTERM)
    assert command.wait() == 143
    last = json.loads(log.read_text().splitlines()[-1])["step"]
    assert command.stdout.startswith(f"step {last}, ")
    command = forks.start("translate", "train", "--resume", "run", folder=tmp_path)
    while log.read_bytes().count(b"\n") <= last:
        assert command.is_running() and time.monotonic() < deadline, command.stderr
        time.sleep(0.01)
    command.send(signal.SIGKILL)
    command.wait()
    steps = [json.loads(line)["step"] for line in log.read_text().splitlines()]
    assert steps == list(range(1, len(steps) + 1))


def test_the_echo_of_a_sigterm_does_not_disturb_the_orderly_end(forks, tmp_path):
    """A scheduler may send it to all processes, and a launcher passes it on."""
    command = forks.start(*CASES["train"].arguments, folder=tmp_path)
    deadline = time.monotonic() + 120
    while not CASES["train"].has_begun(tmp_path):
        assert command.is_running() and time.monotonic() < deadline, command.stderr
        time.sleep(0.01)
    for _ in range(5):
        command.send(signal.SIGTERM)
    assert command.wait() == 143, command.stderr
    check_train(tmp_path, command.stdout)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["search", "reproduce", "tune"])
def test_sigterm_to_all_processes_of_a_command_is_no_failure_of_its_trainings(tmp_path, name):
    """A scheduler sends it to all of them; the workers die of it, and the command must not take that for a result."""
    case = CASES[name]
    prepare(tmp_path)
    command = [sys.executable, "-m", "hkconv", *map(str, case.arguments), "--jobs", "2"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 240
    while not case.has_begun(tmp_path):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 143, stderr
    assert "Traceback" not in stderr
    check_files(tmp_path)
    case.check(tmp_path, stdout)
