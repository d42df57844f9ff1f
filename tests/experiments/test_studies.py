"""Searches that share a study: processes that know nothing of each other, as on several machines."""

import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
import yaml
from optuna.trial import TrialState

from hkconv.tasks.recipe import make_recipe

TRIALS = 8

# Loads all that it needs, and then searches whenever it is told a storage and a folder.
SEARCHER = f"""
import json, sys
from hkconv.experiments.search import plan_search, run_search
from hkconv.tasks.recipe import Recipe
recipe = make_recipe(models=("mlp",), epochs=5, hidden_dim=4, num_splits=1, device="cpu")
print("ready", flush=True)
for line in sys.stdin:
    storage, out = json.loads(line)
    plan = plan_search(make_recipe(**{{**recipe.flat(), "out": out}}), storage=storage, study="shared")
    run_search(plan, {TRIALS})
    print("done", flush=True)
"""


@pytest.fixture(scope="module")
def searchers() -> Iterator[list[subprocess.Popen]]:
    """Two processes that are ready to search."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen([sys.executable, "-c", SEARCHER], **pipes) for _ in range(2)]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 2
    yield processes
    for process in processes:
        process.communicate(timeout=60)


def check_two_searches(searchers: list[subprocess.Popen], storage: str, folder: Path) -> None:
    """Start two at the same time on a storage that neither has seen, and look at what they made of it together."""
    for number, process in enumerate(searchers):
        process.stdin.write(json.dumps([storage, str(folder / str(number))]) + "\n")
        process.stdin.flush()
    assert [process.stdout.readline() for process in searchers] == ["done\n"] * 2
    trials = optuna.load_study(study_name="shared", storage=storage).trials
    # Each may have started one more before it saw the last of the other.
    assert TRIALS <= len(trials) <= TRIALS + 2
    assert {trial.state for trial in trials} <= {TrialState.COMPLETE, TrialState.PRUNED}
    assert [trial.number for trial in trials] == list(range(len(trials)))
    assert {trial.user_attrs["worker"]["pid"] for trial in trials} == {process.pid for process in searchers}
    best = max(trial.value for trial in trials if trial.state is TrialState.COMPLETE)
    recipes = [make_recipe(yaml.safe_load((folder / name / "best.yaml").read_text())) for name in ("0", "1")]
    # Who ended last has seen them all.
    assert best in (
        trial.value
        for recipe in recipes
        for trial in trials
        if all(getattr(recipe, name) == value for name, value in trial.params.items())
    )


def test_two_processes_share_an_sqlite_file(searchers, tmp_path):
    check_two_searches(searchers, f"sqlite:///{tmp_path}/study.db", tmp_path)


def test_two_processes_share_a_postgresql_database(searchers, postgresql, tmp_path):
    check_two_searches(searchers, postgresql, tmp_path)


@pytest.fixture
def postgresql() -> Iterator[str]:
    """The URL of a PostgreSQL server of this test's own. A machine of the continuous integration must have it."""
    pytest.importorskip("psycopg")
    programs = _programs()
    if programs is None:
        message = "PostgreSQL not found: .ci/install-postgresql installs Debian's package"
        pytest.fail(message) if os.environ.get("CI") == "true" else pytest.skip(message)
    # PostgreSQL does not run as root, and another user cannot enter the folders of the tests.
    user = _unprivileged_user()
    folder = Path(tempfile.mkdtemp(prefix="hkconv-postgresql-"))
    if user is not None:
        shutil.chown(folder, user)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def call(program: str, *arguments: object) -> None:
        command = [programs / program, *map(str, arguments)]
        with (folder / "output").open("a") as output:
            done = subprocess.run(command, user=user, cwd="/", stdout=output, stderr=output, timeout=120)
        assert done.returncode == 0, (folder / "output").read_text()

    options = f"-h 127.0.0.1 -p {port} -k '' -c fsync=off"
    call("initdb", "-D", folder / "data", "-U", "hkconv", "-A", "trust", "--no-sync")
    call("pg_ctl", "-D", folder / "data", "-o", options, "-w", "-l", folder / "data" / "log", "start")
    try:
        yield f"postgresql+psycopg://hkconv@127.0.0.1:{port}/postgres"
    finally:
        call("pg_ctl", "-D", folder / "data", "-m", "immediate", "-w", "stop")
        shutil.rmtree(folder)


def _programs() -> Path | None:
    """The folder of PostgreSQL's programs, which Debian does not put on the path."""
    found = shutil.which("pg_ctl")
    folders = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((folder for folder in reversed(folders) if (folder / "initdb").exists()), None)


def _unprivileged_user() -> str | None:
    """Whom to run a server as; None for the current user."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)
