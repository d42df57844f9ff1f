"""A search for good settings of one model on one dataset, by validation alone.

Every trial trains on splits whose test part is hidden (:func:`hkconv.data.hide_test`): no code below could measure it.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import yaml

from hkconv import models
from hkconv.data import hide_test
from hkconv.engine.callbacks import Callback
from hkconv.engine.capture import check_capture
from hkconv.engine.devices import find_device
from hkconv.engine.files import make_folder, write_bytes
from hkconv.engine.interrupts import Interrupt, held_back
from hkconv.engine.loop import Epoch
from hkconv.engine.seeds import deterministic_algorithms
from hkconv.errors import InputError
from hkconv.experiments.search_workers import run_workers
from hkconv.experiments.spaces import Choices, Dimension, Space, describe_space, make_space
from hkconv.experiments.studies import (
    DONE,
    FrozenTrial,
    Study,
    TrialState,
    await_marks,
    check_same_search,
    count_trials,
    fail_dead_trials,
    mark_worker,
    open_study,
    optuna,
    sqlite_url,
    storage_trouble,
)
from hkconv.models.options import OPTIONS_OF_PAPER
from hkconv.tasks.building import load_dataset, model_config
from hkconv.tasks.recipe import Recipe
from hkconv.tasks.run import train_cell
from hkconv.tasks.summary import Cell
from hkconv.tasks.tasks import Dataset

STUDY_FILE = "study.db"
BEST_FILE = "best.yaml"

# How often a training of the full length tells the study of its score: each time costs a transaction.
REPORTS = 10


@dataclass(frozen=True)
class Search:
    """What is searched and where it is kept.

    Args:
        recipe: everything that is not searched; its one model is the one to tune.
        space_name: name of the space.
        space: what is searched.
        folder: for the best recipe and, by default, the study.
        storage: URL of the study's database; None for a file in the folder.
        study: name of the study.
    """

    recipe: Recipe
    space_name: str
    space: Space
    folder: Path
    storage: str | None
    study: str

    @property
    def model(self) -> str:
        """The model to tune."""
        return self.recipe.model.models[0]

    def open(self) -> Study:
        """The study."""
        storage = self.storage or sqlite_url(make_folder(self.folder, "out") / STUDY_FILE)
        return open_study(storage, self.study, self.recipe.optim.seed, self.recipe.optim.epochs)

    def best_recipe(self, trial: FrozenTrial) -> Recipe:
        """The recipe of a trial."""
        return self.recipe.replace(**trial.params)


@dataclass(frozen=True)
class Progress:
    """Where a search stands after a trial: the trial, how many are done of how many, and the best so far."""

    trial: FrozenTrial
    done: int
    wanted: int
    best: FrozenTrial | None


@dataclass(frozen=True)
class SearchResult:
    """What a search came to.

    Args:
        search: what was searched.
        metric: name of the metric.
        best: finished trials with different settings, best first.
        counts: how many trials are ``complete``, ``pruned``, ``failed`` (their process died) and ``running``.
        interrupted: whether Ctrl-C ended it.
    """

    search: Search
    metric: str
    best: list[FrozenTrial]
    counts: dict[str, int]
    interrupted: bool


def plan_search(
    recipe: Recipe,
    space: str = "grid",
    *,
    fixed: tuple[str, ...] = (),
    storage: str | None = None,
    study: str | None = None,
) -> Search:
    """Check that everything a search needs can be used. Writes nothing.

    Args:
        recipe: what is not searched. It has one model; ``num_splits`` is how many splits a trial trains on, once each.
        space: ``"grid"`` or ``"wide"``, see :mod:`hkconv.experiments.spaces`.
        fixed: fields of the space that keep the recipe's value.
        storage: SQLAlchemy URL of a database that several machines share; by default a file in the search's folder.
        study: name of the study in the storage; by default one of dataset, model and space.

    Returns:
        The search.
    """
    if len(recipe.model.models) != 1:
        raise InputError(f"a search is for one model, got {', '.join(recipe.model.models)}")
    (model,) = recipe.model.models
    device = find_device(recipe.runtime.device)
    as_it_comes = load_dataset(recipe.replace(undirected=False))
    # OGB publishes one split a dataset, and that is what there is however many were asked for.
    recipe = recipe.replace(seeds=1, num_splits=min(recipe.data.num_splits, len(as_it_comes.splits)))
    if recipe.runtime.capture:
        check_capture(device, as_it_comes.task, recipe.optim.groupings)
    models.create(model, **model_config(recipe, model, as_it_comes))
    name = f"{as_it_comes.name}-{model}-{space}"
    folder = Path(recipe.runtime.out or Path("searches", name))
    of_other_form = OPTIONS_OF_PAPER if recipe.model.hkn.form == "views" else ()
    return Search(
        recipe=recipe,
        space_name=space,
        space=make_space(space, model, as_it_comes, (*fixed, *of_other_form)),
        folder=folder,
        storage=storage,
        study=study or name,
    )


@storage_trouble()
def run_search(
    search: Search, trials: int = 50, jobs: int = 1, on_trial: Callable[[Progress], None] | None = None
) -> SearchResult:
    """Search until so many trials are done, those of earlier runs and of other machines included.

    The value of a trial is the mean of its best validation scores, one a split. A trial that does worse than the
    median of the others at the same epoch is cut short. With one job the trials are the same every time.

    Args:
        search: from :func:`plan_search`.
        trials: how many trials the study shall have; machines that share it may exceed it by one a worker.
        jobs: how many processes train at the same time.
        on_trial: called after every trial.

    Returns:
        The best trials; the best recipe is in ``best.yaml`` in the search's folder.
    """
    for name, number in (("trials", trials), ("jobs", jobs)):
        if number < 1:
            raise InputError(f"{name} must be a whole number of at least 1, got {number}")
    study = search.open()
    check_same_search(study, _description(search), "name another folder with --out, or another study with --study")
    make_folder(search.folder, "out")
    await_marks(study)
    fail_dead_trials(study)
    listener = _Listener(search, study, trials, on_trial)
    interrupted = False
    try:
        # A trial that seemed to run may turn out to be dead by the end, and is then replaced.
        while (open_trials := trials - count_trials(study, (*DONE, TrialState.RUNNING))) > 0:
            if jobs == 1:
                work_on(search, trials, listener.trial_ended)
            else:
                run_workers(work_on, search, trials, open_trials, jobs, listener.trial_ended)
            fail_dead_trials(study)
    except KeyboardInterrupt:
        interrupted = True
    fail_dead_trials(study)
    return _result(search, study, interrupted)


@storage_trouble()
def work_on(
    search: Search, trials: int, on_trial: Callable[[int], None], may_start: Callable[[], bool] = lambda: True
) -> None:
    """Run trials of a search in this process until there are enough.

    Args:
        search: what to search.
        trials: how many trials the study shall have.
        on_trial: called with the number of every trial that ended.
        may_start: asked before every trial.
    """
    study = search.open()
    # Ctrl-C ends a training, but does not come between the study and its storage.
    with deterministic_algorithms(search.recipe.optim.deterministic), held_back() as interrupt:
        objective = Objective(search, interrupt)
        while count_trials(study, (*DONE, TrialState.RUNNING)) < trials and may_start():
            study.optimize(objective, n_trials=1, callbacks=[lambda _, trial: on_trial(trial.number)])
            interrupt.deliver()


class Objective:
    """The value of a trial: the mean over splits of the best validation metric.

    Args:
        search: what is searched.
        interrupt: of the block in which trials run; a training can be interrupted.
    """

    def __init__(self, search: Search, interrupt: Interrupt):
        self.search, self.interrupt = search, interrupt
        self.device = find_device(search.recipe.runtime.device)
        self.datasets: dict[bool, Dataset] = {}

    def __call__(self, trial: optuna.Trial) -> float:
        """Train on every split."""
        mark_worker(trial)
        chosen = {name: _suggest(trial, name, values) for name, values in self.search.space.items()}
        twin = _finished_twin(trial)
        if twin is not None:
            trial.set_user_attr("repeats", twin.number)
            trial.set_user_attr("metric", twin.user_attrs["metric"])
            return twin.value
        try:
            return self._train(trial, self.search.recipe.replace(**chosen))
        # Settings that diverge, do not go together or do not fit into memory are bad, and the sampler shall know it.
        except (InputError, torch.OutOfMemoryError) as error:
            trial.set_user_attr("reason", str(error).splitlines()[0])
            raise optuna.TrialPruned from None

    def _train(self, trial: optuna.Trial, recipe: Recipe) -> float:
        dataset = self._dataset(recipe)
        reporter = _Pruning(trial, recipe.optim.epochs, recipe.data.num_splits)
        for split in range(recipe.data.num_splits):
            cell = Cell(self.search.model, split, recipe.optim.seed)
            with self.interrupt.let_through():
                result = train_cell(cell, recipe, dataset, self.device, reporter)
            if result.result.interrupted:
                raise KeyboardInterrupt
            trial.set_user_attr("metric", result.result.metric)
            reporter.split_ended(result.result.val_metric)
        return fmean(reporter.scores)

    def _dataset(self, recipe: Recipe) -> Dataset:
        if recipe.data.undirected not in self.datasets:
            self.datasets[recipe.data.undirected] = hide_test(load_dataset(recipe))
        return self.datasets[recipe.data.undirected]


class _Pruning(Callback):
    r"""Tells a trial how it does, and ends it where the others did better.

    At epoch e of split s the trial's value is :math:`\frac{1}{S}(\sum_{r<s} v_r + \max_{e' \le e} v_s(e'))`, what it
    would come to if the rest came to nothing. It never falls, as the pruner, which compares best values, assumes.
    """

    def __init__(self, trial: optuna.Trial, epochs: int, num_splits: int):
        self.trial, self.epochs, self.num_splits = trial, epochs, num_splits
        self.every = max(1, epochs // REPORTS)
        self.scores: list[float] = []
        self.best = 0.0

    def epoch_ended(self, epoch: Epoch) -> None:
        self.best = max(self.best, epoch.val_metric)
        # The last epoch is the end of the split.
        if epoch.number % self.every == 0 and epoch.number < self.epochs:
            self._report(len(self.scores) * self.epochs + epoch.number, self.best)

    def split_ended(self, score: float) -> None:
        """Keep a split's score; the next begins."""
        self.scores.append(score)
        self.best = 0.0
        if len(self.scores) < self.num_splits:
            self._report(len(self.scores) * self.epochs, 0.0)

    def _report(self, step: int, unfinished: float) -> None:
        with held_back():
            self.trial.report((sum(self.scores) + unfinished) / self.num_splits, step)
            is_worse = self.trial.should_prune()
        if is_worse:
            raise optuna.TrialPruned


class _Listener:
    """Hears of every trial that ended, keeps ``best.yaml`` up to date and passes the news on."""

    def __init__(self, search: Search, study: Study, wanted: int, on_trial: Callable[[Progress], None] | None):
        self.search, self.study, self.wanted, self.on_trial = search, study, wanted, on_trial

    def trial_ended(self, number: int) -> None:
        trials = self.study.get_trials(deepcopy=False)
        ranked = _ranked(trials)
        if ranked:
            write_best(self.search, ranked[0], trials)
        if self.on_trial is not None:
            done = sum(trial.state in DONE for trial in trials)
            self.on_trial(Progress(trials[number], done, self.wanted, ranked[0] if ranked else None))


def write_best(search: Search, best: FrozenTrial, trials: list[FrozenTrial]) -> None:
    """Write the recipe of the best trial, for ``hkconv train --recipe``.

    Args:
        search: what was searched.
        best: the best trial.
        trials: all of them.
    """
    recipe = search.best_recipe(best)
    values = {key: value for key, value in recipe.identity().items() if value is not None}
    done = sum(trial.state in DONE for trial in trials)
    header = (
        f"# Trial {best.number}, the best of {done} of a search over the space {search.space_name!r}:\n"
        f"# validation {best.user_attrs['metric']} {best.value:.4f}, the mean of {recipe.data.num_splits} splits.\n"
    )
    write_bytes(search.folder / BEST_FILE, (header + yaml.safe_dump(values, sort_keys=False)).encode())


def _description(search: Search) -> dict[str, Any]:
    """What must be the same for trials to be comparable."""
    fixed = {key: value for key, value in search.recipe.identity().items() if key not in search.space}
    return {"recipe": fixed, "space": describe_space(search.space)}


def _result(search: Search, study: Study, interrupted: bool) -> SearchResult:
    trials = study.get_trials(deepcopy=False)
    ranked = _ranked(trials)
    if not ranked and not interrupted:
        reasons = [trial.user_attrs["reason"] for trial in trials if "reason" in trial.user_attrs]
        raise InputError(f"no trial finished: {reasons[-1] if reasons else 'other processes still run them'}")
    if ranked:
        write_best(search, ranked[0], trials)
    states: dict[str, int] = defaultdict(int)
    for trial in trials:
        states["failed" if trial.state is TrialState.FAIL else trial.state.name.lower()] += 1
    metric = ranked[0].user_attrs["metric"] if ranked else ""
    return SearchResult(search, metric, ranked, dict(states), interrupted)


def _ranked(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """Finished trials with different settings, the best first, the earliest first among equals."""
    finished = [trial for trial in trials if trial.state is TrialState.COMPLETE and "repeats" not in trial.user_attrs]
    return sorted(finished, key=lambda trial: (-trial.value, trial.number))


def _suggest(trial: optuna.Trial, name: str, values: Dimension) -> Any:
    if isinstance(values, Choices):
        return trial.suggest_categorical(name, values.values)
    if isinstance(values.low, int):
        return trial.suggest_int(name, values.low, values.high, log=values.log)
    return trial.suggest_float(name, values.low, values.high, log=values.log)


def _finished_twin(trial: optuna.Trial) -> FrozenTrial | None:
    """An earlier trial with the same settings: the same seeds would train the same models again."""
    finished = trial.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return next((other for other in finished if other.params == trial.params), None)
