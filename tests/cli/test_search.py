import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import optuna
import pytest
import yaml
from optuna.trial import TrialState

from hkconv.cli import search as module
from hkconv.tasks.recipe import Recipe, make_recipe

COMMAND = (sys.executable, "-m", "hkconv", "search", "--model", "mlp", "--hidden-dim", "4", "--num-splits", "1")
STUDY = Path("searches/tree-mlp-grid/study.db")


def trials() -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name="tree-mlp-grid", storage=f"sqlite:///{STUDY}").trials


def start(*arguments: object) -> subprocess.Popen:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until(process: subprocess.Popen, is_true) -> None:
    deadline = time.monotonic() + 120
    while not is_true():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def states_in_file() -> list[str]:
    """The states of all trials, read past Optuna, which would make the file."""
    try:
        with sqlite3.connect(f"file:{STUDY}?mode=ro", uri=True) as connection:
            return [state for (state,) in connection.execute("select state from trials order by number")]
    except sqlite3.OperationalError:
        return []


def test_a_search_prints_its_best_and_writes_a_recipe_to_train_with(hkconv):
    done = hkconv("search", "--model", "mlp", "--trials", 2, "--epochs", 3, "--num-splits", 1, "--lr", 0.05)
    assert done.exit_code == 0, done.output
    first, second = sorted(trials(), key=lambda trial: (-trial.value, trial.number))
    assert f"trial {first.number}  trial {second.number}" in done.stdout
    assert f"{100 * first.value:.1f}" in done.stdout
    assert f"best {100 * first.value:.1f} %" in done.stderr.splitlines()[-1]
    best = Path("searches/tree-mlp-grid/best.yaml")
    assert f"train: hkconv train --recipe {best}" in done.stdout
    recipe = make_recipe(yaml.safe_load(best.read_text()))
    assert (recipe.optim.lr, recipe.optim.epochs, recipe.model.models) == (0.05, 3, ("mlp",))
    assert "lr" not in first.params
    assert recipe.model.dropout == first.params["dropout"]
    trained = hkconv("train", "--recipe", best, "--out", "run")
    assert trained.exit_code == 0, trained.output
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary["cells"][0]["val_metric"] == pytest.approx(first.value, abs=1e-12)


@pytest.mark.nightly
def test_a_killed_search_of_two_workers_resumes_with_what_had_finished():
    settings = ("--trials", 4, "--epochs", 40, "--patience", 40, "--jobs", 2)
    process = start(*settings)
    wait_until(process, lambda: "COMPLETE" in states_in_file())
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    process.stderr.close()
    # The workers end with their parent, so that their trials do not run on beside those that replace them.
    workers = {trial.user_attrs["worker"]["pid"] for trial in trials() if "worker" in trial.user_attrs}
    assert workers and process.pid not in workers
    deadline = time.monotonic() + 30
    while any(is_running(pid) for pid in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    before = {trial.number: trial for trial in trials() if trial.state is TrialState.COMPLETE}
    resumed = start(*settings)
    stdout, stderr = resumed.communicate(timeout=300)
    assert resumed.returncode == 0, stderr
    after = trials()
    finished = [trial for trial in after if trial.state in (TrialState.COMPLETE, TrialState.PRUNED)]
    assert len(finished) == 4
    assert {trial.state for trial in after} - {trial.state for trial in finished} <= {TrialState.FAIL}
    for number, trial in before.items():
        assert (after[number].params, after[number].value) == (trial.params, trial.value)
    assert len(stderr.splitlines()) == 4 - len(before)
    assert stderr.splitlines()[-1].split(":")[0].endswith("(4/4)")
    assert "\x1b" not in stdout + stderr


def is_running(pid: int) -> bool:
    try:
        # Where the tests run nobody may collect orphans: what is dead but not collected does not run.
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("--space", "huge"), "space must be grid or wide, got 'huge'"),
        (("txas",), "unknown dataset 'txas': did you mean texas"),
        (("--trials", -1), "trials must be a whole number of at least 1 and at most 1000000000, got -1"),
        (("--jobs", 0), "jobs must be a whole number of at least 1 and at most 1024, got 0"),
        (("--batch", 0), "batch must be a whole number of at least 1"),
        (("--model", "GCN"), "unknown model 'GCN'; did you mean 'gcn'? accepted: hkn, mlp, gcn"),
        (("--storage", "nonsense"), "storage must be a URL"),
        (("--storage", "sqlite:////no/such/folder/study.db"), "unable to open database file"),
        (("--storage", "nosuchbase://host/base"), "storage nosuchbase://host/base cannot be used"),
        (("--lr", -1), "lr must be a number above 0 and at most 1e+20, got -1.0"),
        (("--model", "gmt"), "graph"),
        (("--recipe", "absent.yaml"), "recipe absent.yaml cannot be read"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(hkconv, in_empty_folder, arguments, words):
    assert words in hkconv.fails("search", *arguments)
    assert os.listdir(in_empty_folder) == []


def test_without_optuna_it_says_what_to_install(hkconv, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "optuna" or name.startswith("hkconv.experi")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert "install it with pip install 'hkconv[search]'" in hkconv.fails("search")


def test_every_field_of_a_recipe_but_four_is_an_option():
    own = {"model", "space", "trials", "jobs", "batch", "storage", "study", "recipe"}
    expected = set(Recipe.options()) - {"models", "seeds", "keep_every", "log"} | own
    assert set(module.search.__signature__.parameters) == expected
