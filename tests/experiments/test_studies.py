"""Searches: what is drawn, cut short and kept; alone, and by processes that know nothing of each other."""

import json
import os
import pwd
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
import torch
import yaml
from optuna.trial import TrialState
from small_datasets import poisoned, rings_and_paths, small_links, small_tree

from hkconv.data import GraphDataset, LinkDataset, NodeDataset, Split
from hkconv.errors import InputError
from hkconv.experiments import studies, training, tuner
from hkconv.experiments.pool import SPOILED, Lost
from hkconv.experiments.studies import MACHINE, open_study, sqlite_url
from hkconv.experiments.tuner import plan_search, run_search
from hkconv.models.options import OPTIONS_OF_PAPER
from hkconv.tasks import building, train_run
from hkconv.tasks.recipe import make_recipe, read_recipe_file, upgraded

QUICK = make_recipe(models=("mlp",), epochs=10, num_splits=2, hidden_dim=32, device="cpu")
TRIALS = 8

# Loads all that it needs, and then searches whenever it is told a storage and a folder.
SEARCHER = f"""
import json, sys
from hkconv.experiments.tuner import plan_search, run_search
from hkconv.tasks.recipe import make_recipe
recipe = make_recipe(models=("mlp",), epochs=5, hidden_dim=4, num_splits=1, device="cpu")
print("ready", flush=True)
for line in sys.stdin:
    storage, out = json.loads(line)
    plan = plan_search(make_recipe(**{{**recipe.flat(), "out": out}}), storage=storage, study="shared")
    run_search(plan, {TRIALS})
    print("done", flush=True)
"""


@pytest.fixture(scope="module", autouse=True)
def tree_for_every_name():
    """Every recipe trains on a small tree."""
    tree = small_tree()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "load", lambda *_, **__: tree)
        yield


@pytest.fixture(scope="module")
def whole(tree_for_every_name, tmp_path_factory) -> Path:
    """The folder of a search that nothing disturbed, long enough for the sampler to learn and the pruner to cut."""
    folder = tmp_path_factory.mktemp("whole")
    run(folder, 13)
    return folder


def run(folder: Path, trials: int = 6, **changes):
    space, batch = changes.pop("space", "grid"), changes.pop("batch", None)
    return run_search(plan_search(QUICK.replace(out=str(folder), **changes), space, batch=batch), trials)


def trials_of(folder: Path) -> list[optuna.trial.FrozenTrial]:
    storage = f"sqlite:///{folder}/study.db"
    (name,) = optuna.get_all_study_names(storage)
    return optuna.load_study(study_name=name, storage=storage).trials


def history(folder: Path) -> list[tuple]:
    """Everything that a search decided and found, to the last bit, but for trials whose process died."""
    trials = [trial for trial in trials_of(folder) if trial.state is not TrialState.FAIL]
    return [(trial.params, trial.state, trial.value, trial.intermediate_values) for trial in trials]


def test_a_search_that_was_stopped_goes_on_as_if_nothing_had_been(whole, tmp_path):
    run(tmp_path, 4)
    run(tmp_path, 13)
    assert history(tmp_path) == history(whole)
    run(tmp_path, 13)
    assert len(trials_of(tmp_path)) == 13
    settings = {tuple(params.values()) for params, *_ in history(whole)}
    assert len(settings) == 13


def test_another_seed_is_another_search(whole, tmp_path):
    run(tmp_path, 2, seed=1)
    assert history(tmp_path)[0][0] != history(whole)[0][0]


def test_the_best_recipe_trains_to_the_score_it_was_found_with(whole, tmp_path):
    finished = [trial for trial in trials_of(whole) if trial.state is TrialState.COMPLETE]
    best = max(finished, key=lambda trial: trial.value)
    recipe = make_recipe(yaml.safe_load((whole / "best.yaml").read_text()))
    assert recipe.model.models == ("mlp",)
    assert all(recipe.flat()[name] == value for name, value in best.params.items())
    summary = train_run(recipe.replace(out=str(tmp_path / "run"), device="cpu"))
    assert summary.models[0].val.mean == pytest.approx(best.value, abs=1e-12)


def test_another_search_does_not_mix_with_the_stored_one(tmp_path):
    run(tmp_path, 2)
    with pytest.raises(InputError, match=r"recipe of this search has epochs 11, but .* has 10: name another folder"):
        run(tmp_path, 4, epochs=11)
    with pytest.raises(InputError, match=r"recipe of this search has lr 0\.01, but the one"):
        run_search(plan_search(QUICK.replace(out=str(tmp_path)), fixed=("lr",)), 4)
    assert len(trials_of(tmp_path)) == 2


def test_the_worst_are_cut_short(whole):
    pruned = [trial for trial in trials_of(whole) if trial.state is TrialState.PRUNED]
    finished = [trial for trial in trials_of(whole) if trial.state is TrialState.COMPLETE]
    assert pruned
    assert len(pruned) + len(finished) == 13
    for trial in pruned:
        last = max(trial.intermediate_values)
        assert last < 2 * QUICK.optim.epochs - 1
        # The rule of the median, by hand.
        earlier = [o.intermediate_values[last] for o in finished if o.number < trial.number]
        assert trial.intermediate_values[last] < torch.tensor(earlier, dtype=torch.float64).quantile(0.5)
    # A report is what a trial has in hand, so that it never falls and ends below the value.
    for trial in finished:
        reports = [trial.intermediate_values[step] for step in sorted(trial.intermediate_values)]
        assert reports == sorted(reports)
        assert reports[-1] <= trial.value


def count_batches(monkeypatch) -> list[int]:
    """The sizes of batches of networks that are trained at once, from now on."""
    sizes, train_cells = [], training.train_cells
    monkeypatch.setattr(
        training, "train_cells", lambda cells, *rest: sizes.append(len(cells)) or train_cells(cells, *rest)
    )
    return sizes


def test_splits_trained_at_once_come_to_what_they_do_one_by_one(tmp_path, monkeypatch):
    fixed = QUICK.replace(dropout=0.0, models=("gcn",))
    sizes, found = count_batches(monkeypatch), {}
    for name, batch in (("alone", None), ("together", 5), ("again", 2)):
        plan = plan_search(fixed.replace(out=str(tmp_path / name)), fixed=("dropout",), batch=batch)
        run_search(plan, 4)
        found[name] = trials_of(tmp_path / name)
    assert sizes == [2] * 8
    for alone, together in zip(found["alone"], found["together"]):
        assert together.params == alone.params and together.state is TrialState.COMPLETE
        assert together.value == pytest.approx(alone.value, abs=0.05)
        # Nothing was left to be cut short.
        assert alone.intermediate_values and not together.intermediate_values
    assert history(tmp_path / "together") == history(tmp_path / "again")


def test_a_trial_may_be_cut_short_between_two_batches(tmp_path, monkeypatch):
    tree = small_tree(num_splits=4)
    monkeypatch.setattr(building, "load", lambda *_, **__: tree)
    sizes = count_batches(monkeypatch)
    run(tmp_path, 13, num_splits=4, batch=2)
    states = [trial.state for trial in trials_of(tmp_path)]
    assert {step for trial in trials_of(tmp_path) for step in trial.intermediate_values} == {2 * QUICK.optim.epochs}
    assert sizes == [2] * (2 * len(states) - states.count(TrialState.PRUNED)) and TrialState.PRUNED in states


@pytest.mark.parametrize(
    "changes", [{"neighbors": (2, 2)}, {"precision": "bf16"}, {}], ids=["samples", "bf16", "graphs"]
)
def test_what_cannot_be_trained_at_once_is_searched_one_by_one(changes, tmp_path, monkeypatch):
    if not changes:
        monkeypatch.setattr(building, "load", lambda *_, **__: shapes("plain", num_splits=2))
    sizes = count_batches(monkeypatch)
    for name, batch in (("alone", 1), ("together", 5)):
        recipe = QUICK.replace(out=str(tmp_path / name), epochs=2, num_layers=2, **changes)
        run_search(plan_search(recipe, fixed=("num_layers",), batch=batch), 2)
    assert not sizes and history(tmp_path / "alone") == history(tmp_path / "together")


def test_a_split_that_meets_nan_speaks_for_itself(tmp_path, monkeypatch):
    def broken(*arguments):
        return [None, *train_cells(*arguments)[1:]]

    train_cells = training.train_cells
    monkeypatch.setattr(training, "train_cells", broken)
    alone, train_cell = [], training.train_cell
    monkeypatch.setattr(training, "train_cell", lambda cell, *rest: alone.append(cell) or train_cell(cell, *rest))
    assert run(tmp_path, 2, batch=5).counts == {"complete": 2}
    assert [cell.split for cell in alone] == [0, 0]


def node_tree(test_part: str, num_splits: int) -> NodeDataset:
    """A tree with the same split so many times: another's training nodes are nobody's test nodes."""
    dataset = small_tree(num_splits=1)
    dataset = poisoned(dataset) if test_part == "poisoned" else dataset
    return replace(dataset, splits=dataset.splits * num_splits)


def linked(test_part: str, num_splits: int) -> LinkDataset:
    """A tree whose links are predicted; in the poisoned one its links to be tested are others."""
    dataset = small_links(num_splits)
    return poisoned(dataset) if test_part == "poisoned" else dataset


def shapes(test_graphs: str, num_splits: int) -> GraphDataset:
    """Rings and paths; in the poisoned one the graphs to be tested are others altogether."""
    graphs = rings_and_paths(30)
    for graph in graphs[24:] if test_graphs == "poisoned" else ():
        edge = graph.edge_index[:, :1]
        graph.x, graph.y, graph.edge_index = 3 * graph.x, 1 - graph.y, torch.cat([edge, edge.flip(0)], 1)
    split = Split(torch.arange(16), torch.arange(16, 24), torch.arange(24, 30))
    return GraphDataset("shapes", graphs, [split] * num_splits, 2, "test")


@pytest.mark.parametrize("make, num_splits", [(node_tree, 1), (shapes, 1), (linked, 1), (node_tree, 3)])
def test_poisoned_test_data_changes_nothing(make, num_splits, tmp_path, monkeypatch):
    sizes = count_batches(monkeypatch)
    for kind in ("plain", "poisoned"):
        monkeypatch.setattr(building, "load", lambda *_, kind=kind, **__: make(kind, num_splits))
        run(tmp_path / kind, 6, models=("gcn",), num_splits=num_splits, batch=9)
    assert sizes == ([3] * 12 if num_splits > 1 else [])
    assert history(tmp_path / "plain") == history(tmp_path / "poisoned")
    assert (tmp_path / "plain" / "best.yaml").read_text() == (tmp_path / "poisoned" / "best.yaml").read_text()
    # The poison works: whoever looks at the test part sees another score.
    recipe = make_recipe(yaml.safe_load((tmp_path / "plain" / "best.yaml").read_text())).replace(num_splits=1)
    scores = []
    for kind in ("plain", "poisoned"):
        monkeypatch.setattr(building, "load", lambda *_, kind=kind, **__: make(kind, 1))
        (cell,) = train_run(recipe.replace(out=str(tmp_path / f"run-{kind}"), device="cpu")).cells
        scores.append((cell.val_loss, cell.test_loss))
    (val, test), (poisoned_val, poisoned_test) = scores
    assert val == poisoned_val
    assert test != poisoned_test


def test_settings_that_diverge_are_bad_and_not_the_end(tmp_path, monkeypatch):
    def diverges(cell, recipe, *others):
        if recipe.optim.lr == 0.01:
            raise InputError("the training loss became nan in epoch 1")
        return train_cell(cell, recipe, *others)

    train_cell = training.train_cell
    monkeypatch.setattr(training, "train_cell", diverges)
    result = run(tmp_path, num_splits=1)
    pruned = [trial for trial in trials_of(tmp_path) if "reason" in trial.user_attrs]
    assert {trial.params["lr"] for trial in pruned} == {0.01}
    assert {trial.state for trial in pruned} == {TrialState.PRUNED}
    assert all(trial.params["lr"] != 0.01 for trial in result.best)

    monkeypatch.setattr(training, "train_cell", lambda *_: diverges(None, QUICK.replace(lr=0.01)))
    with pytest.raises(InputError, match="no trial finished: the training loss became nan in epoch 1"):
        run(tmp_path / "hopeless", 3)


def test_a_wide_space_and_hkn(tmp_path):
    result = run(tmp_path, 3, models=("hkn",), epochs=2, num_splits=1, space="wide")
    searched = set(result.best[0].params)
    assert {"mass", "hidden_dim", "kernel_size", "norm", "hidden_act", "readout"} <= searched
    assert not searched & {*OPTIONS_OF_PAPER, "form"}
    best = read_recipe_file(tmp_path / "best.yaml")
    assert upgraded(best) == best and make_recipe(best).model.hkn.form == "views"


def test_the_options_of_the_paper_are_searched_in_its_form(tmp_path):
    result = run(tmp_path, 2, models=("hkn",), form="paper", epochs=1, num_splits=1, space="wide")
    assert {*OPTIONS_OF_PAPER} - {"relative"} <= set(result.search.space)
    assert make_recipe(read_recipe_file(tmp_path / "best.yaml")).model.hkn.form == "paper"


def test_an_exhausted_grid_ends_without_training_again(tmp_path, monkeypatch):
    fixed = ("lr", "weight_decay", "num_layers")
    trained = []
    train_cell = training.train_cell
    monkeypatch.setattr(training, "train_cell", lambda cell, *rest: trained.append(cell) or train_cell(cell, *rest))
    plan = plan_search(QUICK.replace(out=str(tmp_path), num_splits=1, epochs=3), fixed=fixed)
    result = run_search(plan, 14)
    assert len(result.best) <= 4
    assert len({trial.params["dropout"] for trial in trials_of(tmp_path)}) == 4
    assert sum(result.counts.values()) == 14
    assert len(trained) < 14


def test_ctrl_c_keeps_what_is_done(tmp_path):
    seen = []

    def press(progress):
        seen.append(progress)
        if len(seen) == 2:
            raise KeyboardInterrupt

    result = run_search(plan_search(QUICK.replace(out=str(tmp_path))), 6, on_trial=press)
    assert result.interrupted
    assert result.counts == {"complete": 2}
    assert [progress.done for progress in seen] == [1, 2]
    assert seen[1].best.value == result.best[0].value
    assert (tmp_path / "best.yaml").exists()


@pytest.mark.parametrize(
    "code, capture, remedy",
    [(-9, False, "with fewer jobs"), (SPOILED, True, "without capture"), (SPOILED, False, "with --batch 1")],
)
def test_a_worker_that_is_lost_ends_a_search_that_can_go_on(tmp_path, monkeypatch, code, capture, remedy):
    plan = plan_search(QUICK.replace(out=str(tmp_path)))
    with monkeypatch.context() as patch:
        patch.setattr(tuner, "results_of", lambda _, jobs, processes, **__: ((job, Lost(code)) for job in jobs))
        with pytest.raises(InputError, match=rf"died \(exit code {code}\).* {remedy} goes on"):
            run_search(replace(plan, recipe=plan.recipe.replace(capture=capture)), 2, jobs=2)
    assert run_search(plan, 2).counts == {"complete": 2}


@pytest.mark.parametrize(
    "device, num_splits, batch, may",
    [("cuda", 2, 9, True), ("cuda", 2, 1, False), ("cuda", 1, 9, False), ("cpu", 2, 9, False)],
)
def test_a_batch_on_a_gpu_has_a_process_of_its_own_that_it_may_spoil(
    tmp_path, monkeypatch, device, num_splits, batch, may
):
    told = []

    def results(_, jobs, processes, *, may_spoil):
        told.append(may_spoil)
        return ((job, Lost(SPOILED)) for job in jobs)

    plan = plan_search(QUICK.replace(out=str(tmp_path), num_splits=num_splits), batch=batch)
    monkeypatch.setattr(tuner, "results_of", results)
    monkeypatch.setattr(tuner, "find_device", lambda _: torch.device(device))
    with pytest.raises(InputError, match="died"):
        run_search(plan, 1)
    assert told == [may]


@pytest.mark.filterwarnings("ignore:Heartbeat of storage")
def test_trials_of_dead_processes_are_failed_at_once_and_drawn_again(whole, tmp_path):
    plan = plan_search(QUICK.replace(out=str(tmp_path)))
    run_search(plan, 1)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    plan.open().ask().set_user_attr("worker", {"machine": MACHINE, "pid": dead.pid})
    run_search(plan, 3)
    states = [trial.state for trial in trials_of(tmp_path)]
    assert [index for index, state in enumerate(states) if state is TrialState.FAIL] == [1]
    assert history(tmp_path) == history(whole)[:3]


def test_a_trial_whose_process_died_before_it_left_a_mark_is_replaced(tmp_path, monkeypatch):
    plan = plan_search(QUICK.replace(out=str(tmp_path)))
    plan.open().ask()
    monkeypatch.setattr(studies, "MARK_GRACE", 0.5)
    assert run_search(plan, 2).counts == {"failed": 1, "complete": 2}


@pytest.mark.filterwarnings("ignore:Heartbeat of storage")
def test_trials_of_living_processes_are_left_alone(tmp_path):
    plan = plan_search(QUICK.replace(out=str(tmp_path)))
    plan.open().ask().set_user_attr("worker", {"machine": MACHINE, "pid": os.getpid()})
    elsewhere = plan.open().ask()
    elsewhere.set_user_attr("worker", {"machine": "elsewhere", "pid": 1})
    result = run_search(plan, 3)
    assert result.counts == {"running": 2, "complete": 1}


@pytest.mark.parametrize(
    "storage, message",
    [
        ("nonsense", "storage must be a URL such as sqlite:///study.db"),
        ("sqlite://", "storage must be a database that outlives the process"),
        ("nosuchbase://host/base", "cannot be used"),
        ("sqlite:////no/such/folder/study.db", "cannot be used: .*unable to open database file"),
        (
            "postgresql+nodriver://me:secret@nowhere/base",
            r"storage postgresql\+nodriver://me:\*\*\*@nowhere/base cannot",
        ),
    ],
)
def test_a_storage_that_cannot_be_used(storage, message, tmp_path):
    folder = tmp_path / "search"
    with pytest.raises(InputError, match=message) as caught:
        run_search(plan_search(QUICK.replace(out=str(folder)), storage=storage), 2)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not folder.exists()


def test_a_damaged_study_is_not_overwritten(tmp_path):
    (tmp_path / "study.db").write_text("this is no database, " * 100)
    with pytest.raises(InputError, match=r"cannot be used: .*not a database"):
        run(tmp_path)
    assert (tmp_path / "study.db").read_text().startswith("this is no database")


def test_a_file_that_a_full_disk_left_half_made_is_completed(tmp_path):
    """Optuna makes tables and indexes one by one: whichever came last, the study is one and has them all."""

    def definitions(path: Path) -> list[str]:
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")
            return [definition for (definition,) in rows]

    optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/whole.db").engine.dispose()
    whole = definitions(tmp_path / "whole.db")
    ends = [number for number, definition in enumerate(whole, start=1) if "INDEX" not in definition]
    assert 1 in ends and len(ends) < len(whole)
    for made in (1, ends[len(ends) // 2], ends[-1]):
        path = tmp_path / f"{made}.db"
        with closing(sqlite3.connect(path)) as connection:
            for definition in whole[:made]:
                connection.execute(definition)
        for _ in range(2):
            study = open_study(sqlite_url(path), "one", seed=0, epochs=1)
        assert study.trials == [] and optuna.get_all_study_names(sqlite_url(path)) == ["one"]
        assert sorted(definitions(path)) == sorted(whole)


def test_a_file_that_is_no_database_any_more_is_told_how_to_do_without(tmp_path):
    path = tmp_path / "study.db"
    path.write_bytes(b"spoilt" * 1000)
    with pytest.raises(InputError, match=r"cannot be used: .*file is not a database; remove the file to begin anew$"):
        open_study(sqlite_url(path), "one", seed=0, epochs=1)
    path.write_bytes(b"")
    assert open_study(sqlite_url(path), "one", seed=0, epochs=1).trials == []


def test_studies_of_one_storage_are_told_apart_by_name(tmp_path):
    storage = f"sqlite:///{tmp_path}/shared.db"
    for model in ("mlp", "gcn"):
        recipe = QUICK.replace(out=str(tmp_path / model), models=(model,))
        run_search(plan_search(recipe, storage=storage), 2)
    assert sorted(optuna.get_all_study_names(storage)) == ["tree-gcn-grid", "tree-mlp-grid"]
    assert (tmp_path / "gcn" / "best.yaml").exists()
    assert not (tmp_path / "gcn" / "study.db").exists()


@pytest.mark.parametrize("name", ["trials", "jobs"])
def test_numbers_that_cannot_be(name, tmp_path):
    with pytest.raises(InputError, match=f"{name} must be a whole number of at least 1 and at most [0-9]+, got -3"):
        run_search(plan_search(QUICK.replace(out=str(tmp_path / "search"))), **{name: -3})
    with pytest.raises(InputError, match="a search is for one model, got mlp, gcn"):
        plan_search(QUICK.replace(models=("mlp", "gcn")))
    assert not (tmp_path / "search").exists()


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
        if all(recipe.flat()[name] == value for name, value in trial.params.items())
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
