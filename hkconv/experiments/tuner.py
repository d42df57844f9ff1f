"""Tuner: chooses settings on validation data, of one model by a search or of all systems of a table.

A trial trains a model with settings that a sampler drew, on splits whose test part is hidden
(:func:`hkconv.data.hide_test`): no code below could measure it. There are two samplers.

:class:`~hkconv.experiments.spaces.SharedDraws` is for tables: every system gets as many trials as the others and meets
the same draws of the settings they share. Trials are records of the results store; what does best goes to ``tuned/``,
where the recipes find it.

A split's validation part may hold members of another's test part. One setting for all splits is what is usual; with a
choice for every split by itself there would be no such meeting, and five times as many trainings.

:mod:`hkconv.experiments.studies` is for a search: Optuna's estimators learn from the trials so far and prune bad ones.
Trials are in a study, which workers on many machines may share; what does best goes to ``best.yaml``.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
import yaml

from hkconv import models
from hkconv.data.catalog import CATALOG
from hkconv.data.dataset import CLEAN, NodeDataset
from hkconv.data.options import BOTH, IN
from hkconv.engine.devices import find_device, room_for_weights
from hkconv.engine.files import make_folder, write_bytes
from hkconv.engine.interrupts import held_back
from hkconv.engine.step import check_capture
from hkconv.errors import InputError
from hkconv.experiments import store
from hkconv.experiments.batches import may_spoil, networks_at_once
from hkconv.experiments.pool import Lost, results_of
from hkconv.experiments.recipe_files import (
    RECIPES,
    Settings,
    TableRecipe,
    Tuned,
    read_table,
    read_tuned,
    save_tuned,
)
from hkconv.experiments.reproduce import Order, Summary, Watcher, fill_store
from hkconv.experiments.spaces import Space, Tuning, describe_space, make_space
from hkconv.experiments.store import TUNING, Record
from hkconv.experiments.tables import Choice, Execution, TableCell, wanted_systems
from hkconv.experiments.training import CellTrainer, split_cells
from hkconv.models.options import OPTIONS_OF_PAPER
from hkconv.options import COUNT, JOBS
from hkconv.tasks.building import load_dataset, model_config
from hkconv.tasks.recipe import Recipe

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

STUDY_FILE = "study.db"
BEST_FILE = "best.yaml"


@dataclass(frozen=True)
class Trial:
    """A trial of a system: what was drawn, and a training for each split."""

    number: int
    drawn: Settings
    cells: tuple[TableCell, ...]


@dataclass(frozen=True)
class Finding:
    """Result of tuning a system on a dataset under a protocol.

    Args:
        dataset, protocol, label: which system.
        best: the trial with the highest mean validation score; the lowest mean loss among equals.
        score: its mean validation score.
        first: that of the recipe's own settings; None if they failed.
        finished: trials with a score on every split.
        trials: how many there are.
    """

    dataset: str
    protocol: str
    label: str
    best: Trial
    score: float
    first: float | None
    finished: int
    trials: int


def list_trials(
    tuning: Tuning, recipes: Iterable[TableRecipe], choice: Choice | None = None, place: Execution | None = None
) -> dict[tuple[str, str, str], list[Trial]]:
    """Return every trial by dataset, protocol and system.

    Args:
        tuning: how the table is tuned.
        recipes: the table's.
        choice: what of them is wanted; without protocols, ``clean`` alone.
        place: where they will be trained.
    """
    recipes, choice, place = list(recipes), choice or Choice(), place or Execution()
    wanted = wanted_systems(recipes, replace(choice, protocols=choice.protocols or (CLEAN,)))
    for name in choice.protocols:
        if not any(name in recipe.protocols for recipe in recipes):
            raise InputError(f"no recipe of table {tuning.table!r} has protocol {name!r}")
    return {
        (recipe.dataset, protocol, label): _trials(tuning, recipe, protocol, label, place)
        for recipe, protocol, label in wanted
    }


def tune(tuning: Tuning, order: Order, watcher: Watcher | None = None) -> Summary:
    """Train every trial that the store does not have. See :func:`hkconv.experiments.reproduce.reproduce`.

    Args:
        tuning: how the table is tuned.
        order: choice, place and folders.
        watcher: told of every step.
    """
    cells = [cell for trials in _ordered(tuning, order).values() for trial in trials for cell in trial.cells]
    # Two trials may have drawn the same.
    distinct = list({cell.identity: cell for cell in cells}.values())
    return fill_store(order, distinct, [], (TUNING + tuning.table,), CellTrainer(test_is_hidden=True), watcher)


def find_best(tuning: Tuning, order: Order) -> list[Finding]:
    """Return the best trial of every system whose trials are all in the store, failures included.

    Args:
        tuning, order: as :func:`tune` takes them.
    """
    records, _ = store.read(order.results, [TUNING + tuning.table])
    known, failures = store.finished(records), store.failed(records)
    return [
        finding
        for place, trials in _ordered(tuning, order).items()
        if all(cell.identity in known or cell.identity in failures for trial in trials for cell in trial.cells)
        for finding in _finding(place, trials, known)
    ]


def write_tuned(table: str, findings: Iterable[Finding], folder: Path = RECIPES) -> list[Path]:
    """Write the best settings to where the recipes find them; what is there of other systems stays.

    Args:
        table: name of the table.
        findings: from :func:`find_best`.
        folder: of the recipes.

    Returns:
        The files written.
    """
    tuned: dict[str, Tuned] = {}
    for finding in findings:
        if finding.dataset not in tuned:
            tuned[finding.dataset] = read_tuned(table, finding.dataset, folder)
        tuned[finding.dataset].setdefault(finding.protocol, {})[finding.label] = finding.best.drawn
    return [save_tuned(table, tuned, folder)] if tuned else []


def _ordered(tuning: Tuning, order: Order) -> dict[tuple[str, str, str], list[Trial]]:
    return list_trials(tuning, read_table(tuning.table, order.recipes), order.choice, order.place)


def _trials(tuning: Tuning, recipe: TableRecipe, protocol: str, label: str, place: Execution) -> list[Trial]:
    system, repeats = recipe.systems[label], recipe.protocols[protocol]
    budget = tuning.budget_of(protocol, recipe.dataset)
    # Graphs whose edges all go both ways have but one reading.
    fixed = {**repeats.settings, **({} if CATALOG[recipe.dataset].one_way else {"direction": BOTH})}
    given = {**recipe.settings, **system.settings, **repeats.settings}
    given["num_splits"] = min(budget.num_splits, repeats.num_splits)

    def trial(number: int) -> Trial:
        drawn = tuning.sampler.draw(label, number, fixed)
        trained = place.recipe_for(recipe, protocol, system.model, {**given, **drawn})
        return Trial(number, drawn, split_cells(TUNING + recipe.table, label, trained, seed=0))

    return [trial(number) for number in range(budget.trials)]


def _finding(place: tuple[str, str, str], trials: list[Trial], known: Mapping[str, Record]) -> list[Finding]:
    scored = []
    for trial in trials:
        records = [known.get(cell.identity) for cell in trial.cells]
        found = [record for record in records if record is not None]
        if len(found) == len(records):
            score, loss = (fmean(record[name] for record in found) for name in ("val", "val_loss"))
            scored.append((score, -loss, -trial.number, trial))
    if not scored:
        return []
    score, _, _, best = max(scored, key=lambda entry: entry[:3])
    first = next((value for value, _, number, _ in scored if number == 0), None)
    return [Finding(*place, best, score, first, len(scored), len(trials))]


@dataclass(frozen=True)
class Search:
    """Plan of a search for good settings of one model, and where it is kept.

    Args:
        recipe: everything that is not searched; its one model is the one to tune.
        space_name: name of the space.
        space: what is searched.
        folder: for the best recipe and, by default, the study.
        storage: URL of the study's database; None for a file in the folder.
        study: name of the study.
        batch: the most networks of a trial that are trained at once, see :mod:`hkconv.experiments.batches`.
    """

    recipe: Recipe
    space_name: str
    space: Space
    folder: Path
    storage: str | None
    study: str
    batch: int = 1

    @property
    def model(self) -> str:
        """Name of the model to tune."""
        return self.recipe.model.models[0]

    def open(self) -> "Study":
        """Open the study."""
        from hkconv.experiments.studies import open_study, sqlite_url

        storage = self.storage or sqlite_url(make_folder(self.folder, "out") / STUDY_FILE)
        return open_study(storage, self.study, self.recipe.optim.seed, self.recipe.optim.epochs)


@dataclass(frozen=True)
class SearchStep:
    """State of a search after a trial: the trial, how many are done of how many, and the best so far."""

    trial: "FrozenTrial"
    done: int
    wanted: int
    best: "FrozenTrial | None"


@dataclass(frozen=True)
class SearchResult:
    """Result of a search.

    Args:
        search: what was searched.
        metric: name of the metric.
        best: finished trials with different settings, best first.
        counts: how many trials are ``complete``, ``pruned``, ``failed`` (their process died) and ``running``.
        interrupted: True if Ctrl-C ended it.
    """

    search: Search
    metric: str
    best: "list[FrozenTrial]"
    counts: dict[str, int]
    interrupted: bool


def plan_search(
    recipe: Recipe,
    space: str = "grid",
    *,
    fixed: tuple[str, ...] = (),
    storage: str | None = None,
    study: str | None = None,
    batch: int | None = None,
) -> Search:
    """Check that everything a search needs can be used. Writes nothing.

    Args:
        recipe: what is not searched. It has one model; ``num_splits`` is how many splits a trial trains on, once each.
        space: ``"grid"`` or ``"wide"``, see :mod:`hkconv.experiments.spaces`.
        fixed: fields of the space that keep the recipe's value.
        storage: SQLAlchemy URL of a database that several machines share; by default a file in the search's folder.
        study: name of the study in the storage; by default one of dataset, model and space.
        batch: as in :class:`~hkconv.experiments.tables.Execution`.

    Returns:
        The search.
    """
    # Raises if Optuna is not installed.
    import hkconv.experiments.studies  # noqa: F401

    if len(recipe.model.models) != 1:
        raise InputError(f"a search is for one model, got {', '.join(recipe.model.models)}")
    (model,) = recipe.model.models
    runtime, device = recipe.runtime, find_device(recipe.runtime.device)
    most = networks_at_once(Execution(runtime.device, runtime.data, runtime.capture, batch), device)
    as_it_comes = load_dataset(recipe)
    if isinstance(as_it_comes, NodeDataset):
        as_it_comes = load_dataset(recipe.replace(direction=IN))
    # OGB publishes one split a dataset, and that is what there is however many were asked for.
    recipe = recipe.replace(seeds=1, num_splits=min(recipe.data.num_splits, len(as_it_comes.splits)))
    if runtime.capture:
        check_capture(device, as_it_comes.task, recipe.optim.groupings)
    with room_for_weights(device):
        models.create(model, **model_config(recipe, model, as_it_comes))
    name = f"{as_it_comes.name}-{model}-{space}"
    of_other_form = OPTIONS_OF_PAPER if recipe.model.hkn.form == "views" else ()
    return Search(
        recipe=recipe,
        space_name=space,
        space=make_space(space, model, as_it_comes, (*fixed, *of_other_form)),
        folder=Path(runtime.out or Path("searches", name)),
        storage=storage,
        study=study or name,
        batch=most,
    )


def run_search(
    search: Search, trials: int = 50, jobs: int = 1, on_trial: Callable[[SearchStep], None] | None = None
) -> SearchResult:
    """Search until so many trials are done, those of earlier runs and of other machines included.

    The value of a trial is the mean of its best validation scores, one a split. A trial that does worse than the
    median of the others at the same epoch is cut short; while its splits are trained at once, it is not. With one job
    the trials are the same every time.

    Args:
        search: from :func:`plan_search`.
        trials: how many trials the study shall have; machines that share it may exceed it by one a worker.
        jobs: how many processes train at the same time.
        on_trial: called after every trial.

    Returns:
        The best trials; the best recipe is in ``best.yaml`` in the search's folder.
    """
    from hkconv.experiments import studies

    COUNT.check("trials", trials)
    JOBS.check("jobs", jobs)
    with studies.storage_trouble():
        study = search.open()
        advice = "name another folder with --out, or another study with --study"
        studies.check_same_search(study, _description(search), advice)
        make_folder(search.folder, "out")
        studies.await_marks(study)
        studies.fail_dead_trials(study)
        interrupted = False
        try:
            # A trial that seemed to run may turn out to be dead by the end, and is then replaced.
            while studies.count_open(study, trials):
                _run_trials(search, study, trials, jobs, on_trial or (lambda _: None))
                studies.fail_dead_trials(study)
        except KeyboardInterrupt:
            interrupted = True
        studies.fail_dead_trials(study)
        return _search_result(search, study, interrupted)


def _run_trials(search: Search, study: "Study", trials: int, jobs: int, on_trial: Callable[[SearchStep], None]) -> None:
    from hkconv.experiments.studies import TrialRunner, count_open

    def open_trials() -> Iterator[int]:
        # Other machines may take some of them in the meantime.
        for number in range(count_open(study, trials)):
            if count_open(study, trials):
                yield number

    runner, runtime = TrialRunner(search, threads=max(1, torch.get_num_threads() // jobs)), search.recipe.runtime
    networks = min(search.batch, search.recipe.data.num_splits)
    risk = may_spoil(runtime.capture, networks, find_device(runtime.device))
    with closing(results_of(runner, open_trials(), jobs, may_spoil=risk)) as results:
        for _, number in results:
            if isinstance(number, Lost):
                plainly = "without capture" if runtime.capture else "with --batch 1"
                remedy = plainly if number.is_spoiled else "with fewer jobs"
                raise InputError(
                    f"a worker process of the search died (exit code {number.exit_code}), perhaps for want of "
                    f"memory: the same command {remedy} goes on"
                )
            with held_back():
                step = _keep_best(search, study, number, trials)
            on_trial(step)


def _keep_best(search: Search, study: "Study", number: int, wanted: int) -> SearchStep:
    """Bring ``best.yaml`` up to date after a trial."""
    from hkconv.experiments.studies import DONE, ranked

    trials = study.get_trials(deepcopy=False)
    best = next(iter(ranked(trials)), None)
    done = sum(trial.state in DONE for trial in trials)
    if best is not None:
        _write_best(search, best, done)
    return SearchStep(trials[number], done, wanted, best)


def _write_best(search: Search, best: "FrozenTrial", done: int) -> None:
    """Write the recipe of the best trial, for ``hkconv train --recipe``."""
    recipe = search.recipe.replace(**best.params)
    values = {key: value for key, value in recipe.identity().items() if value is not None}
    header = (
        f"# Trial {best.number}, the best of {done} of a search over the space {search.space_name!r}:\n"
        f"# validation {best.user_attrs['metric']} {best.value:.4f}, the mean of {recipe.data.num_splits} splits.\n"
    )
    write_bytes(search.folder / BEST_FILE, (header + yaml.safe_dump(values, sort_keys=False)).encode())


def _description(search: Search) -> dict[str, Any]:
    """Return what must be the same for trials to be comparable."""
    fixed = {key: value for key, value in search.recipe.identity().items() if key not in search.space}
    return {"recipe": fixed, "space": describe_space(search.space)}


def _search_result(search: Search, study: "Study", interrupted: bool) -> SearchResult:
    from hkconv.experiments.studies import DONE, TrialState, ranked

    trials = study.get_trials(deepcopy=False)
    best = ranked(trials)
    if not best and not interrupted:
        reasons = [trial.user_attrs["reason"] for trial in trials if "reason" in trial.user_attrs]
        raise InputError(f"no trial finished: {reasons[-1] if reasons else 'other processes still run them'}")
    if best:
        _write_best(search, best[0], sum(trial.state in DONE for trial in trials))
    states = Counter("failed" if trial.state is TrialState.FAIL else trial.state.name.lower() for trial in trials)
    return SearchResult(search, best[0].user_attrs["metric"] if best else "", best, dict(states), interrupted)
