"""kill -9 at random moments: what was done is kept, what is there is whole, and the end is that of one never killed."""

import json
import random
import signal
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import optuna
import pytest
from own_files import write_papers
from safetensors import safe_open
from safetensors.torch import load_file
from toy_translation import SMALL, write_toy

from hkconv.engine.checkpoint import load_checkpoint
from hkconv.engine.files import is_part
from hkconv.engine.state import FILE
from hkconv.engine.steps import read_log
from hkconv.experiments import store

TABLE = """\
metric: accuracy
settings: {epochs: 6, patience: 100, hidden_dim: 4}
systems:
  MLP: {model: mlp}
  GCN: {model: gcn}
protocols:
  clean: {num_splits: 3, seeds: 1}
quick: {num_splits: 1, epochs: 1}
datasets: {tree: {}}
"""


@dataclass(frozen=True)
class Case:
    """A command that can be stopped and goes on.

    Args:
        prepare: makes what the command needs in an empty folder.
        begin: its arguments.
        go_on: its arguments when it was stopped, given the folder.
        outcome: what came of it, to compare with that of another folder; it checks what it reads.
    """

    prepare: Callable[[Path], None]
    begin: tuple
    go_on: Callable[[Path], tuple]
    outcome: Callable[[Path], object]


def trained(folder: Path) -> object:
    run = folder / "run"
    found = {}
    for path in sorted(run.rglob("metrics.json")):
        load_checkpoint(path.parent, expected=path.parent.parent.name)
        metrics = {name: value for name, value in json.loads(path.read_text()).items() if name != "seconds"}
        found[str(path.parent)[len(str(run)) :]] = metrics, (path.parent / "model.safetensors").read_bytes()
    return found, names_in(run)


def searched(folder: Path) -> object:
    study = optuna.load_study(study_name="tree-mlp-grid", storage=f"sqlite:///{folder / 'search' / 'study.db'}")
    states = [trial.state.name for trial in study.trials]
    assert set(states) <= {"COMPLETE", "PRUNED", "FAIL"}
    best = (folder / "search" / "best.yaml").read_text().split("\n", 2)[2]
    return [(trial.params, trial.value) for trial in study.trials if trial.state.name != "FAIL"], best


def reproduced(folder: Path) -> object:
    records, damaged = store.read(folder / "records", ["node"])
    assert damaged == []
    identities = [store.identity(record) for record in records]
    assert len(set(identities)) == len(identities)
    return {key: (record["test_loss"], record["val_loss"]) for key, record in zip(identities, records)}


def translated(folder: Path) -> object:
    run = folder / "run"
    tensors = {name: tensor.tolist() for name, tensor in load_file(run / "state.safetensors").items()}
    curve = [(entry.step, entry.loss, entry.validation_loss) for entry in read_log(run / "log.jsonl")]
    return tensors, curve, names_in(run)


def names_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def write_table(folder: Path) -> None:
    (folder / "recipes").mkdir()
    (folder / "recipes" / "node.yaml").write_text(TABLE)


SIZES = ("--hidden-dim", 4, "--device", "cpu")
TRAIN = ("train", "papers/", "--models", "mlp,gcn", "--epochs", 8, "--num-splits", 2, *SIZES, "--keep-every", 0)
TRAIN = (*TRAIN, "--out", "run")
SEARCH = ("search", "--model", "mlp", "--trials", 5, "--epochs", 4, "--num-splits", 1, *SIZES, "--out", "search")
REPRODUCE = ("reproduce", "node", "--recipes", "recipes", "--device", "cpu", "--results", "records")
PACE = {**SMALL, "validate_every": 2, "log_every": 1, "keep": 2}
TRANSLATE = (
    *("translate", "train", "--train", "train", "--valid", "valid", "--out", "run"),
    *(text for name, value in PACE.items() for text in (f"--{name.replace('_', '-')}", value)),
)


def resumed(begin: tuple, first_file: str) -> Callable[[Path], tuple]:
    """``--resume`` where the folder has become a run, else the same command again."""
    command = begin[:2] if begin[0] == "translate" else begin[:1]
    return lambda folder: (*command, "--resume", "run") if (folder / "run" / first_file).exists() else begin


CASES = {
    "train": Case(lambda folder: write_papers(folder / "papers"), TRAIN, resumed(TRAIN, "recipe.json"), trained),
    "search": Case(lambda _: None, SEARCH, lambda _: SEARCH, searched),
    "reproduce": Case(write_table, REPRODUCE, lambda _: REPRODUCE, reproduced),
    "translate": Case(write_toy, TRANSLATE, resumed(TRANSLATE, "config.json"), translated),
}


def check_files(folder: Path) -> None:
    """Whatever can be seen is whole."""
    for path in folder.rglob("*"):
        if is_part(path.name):
            continue
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".jsonl":
            for line in path.read_text().splitlines():
                json.loads(line)
        elif path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                assert all(file.get_tensor(name) is not None for name in file.keys())  # noqa: SIM118
        elif path.suffix == ".db":
            with closing(sqlite3.connect(path)) as connection:
                assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    for path in folder.rglob("metrics.json"):
        load_checkpoint(path.parent)


@pytest.mark.parametrize("kills, seed", [(3, 0), pytest.param(8, 1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", CASES)
def test_killed_at_random_moments_it_goes_on_to_the_same_end(forks, tmp_path, name, kills, seed):
    case, draw = CASES[name], random.Random(f"{name} {seed}")

    def new_folder() -> Path:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        case.prepare(folder)
        return folder

    # Once to fill the caches, once to be compared with.
    for _ in range(2):
        whole, started = new_folder(), time.monotonic()
        code, command = forks.run(*case.begin, folder=whole)
        duration = time.monotonic() - started
        assert code == 0, command.stderr
    expected, touches = case.outcome(whole), command.touches

    done, folder, kills_here = 0, new_folder(), 0
    while done < kills:
        command = draw_kill(forks, case.go_on(folder), folder, draw, duration, touches)
        code = command.wait()
        assert code in (0, -signal.SIGKILL), command.stderr
        check_files(folder)
        done, kills_here = done + (code != 0), kills_here + (code != 0)
        if code == 0 or kills_here == 3 or done == kills:
            if code != 0:
                code, command = forks.run(*case.go_on(folder), folder=folder)
                assert code == 0, command.stderr
            assert case.outcome(folder) == expected
            folder, kills_here = new_folder(), 0


def draw_kill(forks, arguments, folder, draw, duration, touches):
    """A command that is killed at a moment of its time, or right before it touches a file."""
    if draw.random() < 0.5:
        return forks.start(*arguments, folder=folder, kill_at=draw.randint(1, touches))
    command = forks.start(*arguments, folder=folder)
    time.sleep(draw.uniform(0, duration))
    command.send(signal.SIGKILL)
    return command


def test_a_long_training_killed_half_way_does_not_begin_anew(forks, tmp_path):
    """One training, killed when it has been kept: the epochs until then are not trained again."""
    arguments = ("--models", "mlp", "--epochs", 100000, "--patience", 100000, "--num-splits", 1, "--hidden-dim", 4)
    command = forks.start("train", *arguments, "--keep-every", 0.05, "--out", "run", folder=tmp_path)
    kept = tmp_path / "run" / "mlp" / "split0-seed0" / FILE
    deadline = time.monotonic() + 60
    while not (kept.exists() and len(history_of(kept)) >= 5):
        assert command.is_running() and time.monotonic() < deadline, command.stderr
        time.sleep(0.02)
    command.send(signal.SIGKILL)
    assert command.wait() == -signal.SIGKILL
    before = history_of(kept)
    command = forks.start("train", "--resume", "run", "--keep-every", 0.05, folder=tmp_path)
    while len(history_of(kept)) <= len(before):
        assert command.is_running() and time.monotonic() < deadline, command.stderr
        time.sleep(0.02)
    command.send(signal.SIGKILL)
    command.wait()
    assert history_of(kept)[: len(before)] == before


def history_of(path: Path) -> list:
    with safe_open(path, framework="pt") as file:
        return json.loads(file.metadata()["facts"])["history"]
