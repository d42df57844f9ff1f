"""Optuna's sampler of the tuner: tree-structured Parzen estimators with pruning, in a study of any storage.

Trials are counted by what became of them, so that a search that was killed goes on where it stopped.
"""

import os
import platform
import random
import sqlite3
import time
import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from hkconv.engine.callbacks import Callback
from hkconv.engine.interrupts import Interrupt, held_back
from hkconv.engine.loop import Epoch
from hkconv.engine.reproducibility import stream_seed
from hkconv.errors import InputError, is_out_of_memory
from hkconv.experiments.batches import BatchTrainer, group_cells
from hkconv.experiments.spaces import Choices, Dimension
from hkconv.experiments.store import Record
from hkconv.experiments.tables import TableCell
from hkconv.experiments.training import CellTrainer, split_cells

try:
    import optuna
except ImportError as error:
    raise InputError(f"a search needs Optuna ({error}): install it with pip install 'hkconv[search]'") from None

from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import URL, Connection, create_engine, make_url
from sqlalchemy.exc import SQLAlchemyError

if TYPE_CHECKING:
    from hkconv.experiments.tuner import Search

# Seconds. A worker that has not been heard of for GRACE is dead; busy machines and slow disks take less.
HEARTBEAT, GRACE = 60, 300

# Seconds within which a worker marks a trial as its own: the first thing it does.
MARK_GRACE = 5

# Seconds that a worker waits for the others to let go of an SQLite file; SQLite's own 5 are too few for many workers.
LOCK_TIMEOUT = 120

# Trials that are compared with nothing, and the share of the first training's epochs in which none is cut short.
UNPRUNED_TRIALS = 5
WARM_UP = 0.25

# How often a storage is opened while other processes make the same tables, and how a database says that they do.
OPENINGS = 10
MADE_BY_OTHERS = ("already exists", "duplicate key", "unique constraint")

# How SQLite says that a file's content is not its own any more.
SPOILT = ("not a database", "malformed")

# How often the sampler may propose what was tried before.
REDRAWS = 10

# How often a training of the full length tells the study of its score: each time costs a transaction.
REPORTS = 10

DONE = (TrialState.COMPLETE, TrialState.PRUNED)

# Without a network card `getnode` is random: then a process takes itself for another machine, which is safe.
MACHINE = f"{platform.node()}-{uuid.getnode():x}"

optuna.logging.set_verbosity(optuna.logging.CRITICAL)


class TrialSampler(BaseSampler):
    """Tree-structured Parzen estimators, seeded anew for every trial.

    What is drawn depends on the seed, on the results so far and on how many trials before it did not fail. One
    generator for all would, after a kill, draw again what it drew first; this one goes on as if nothing had happened.

    Args:
        seed: of the search.
    """

    def __init__(self, seed: int):
        self.seed = seed
        self.current: BaseSampler = TPESampler(seed=seed)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        failed = study.get_trials(deepcopy=False, states=(TrialState.FAIL,))
        draw = trial.number - sum(other.number < trial.number for other in failed)
        self.draw_seed = stream_seed(self.seed, draw)
        self.current = TPESampler(seed=self.draw_seed)
        self.current.before_trial(study, trial)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, Any]:
        return self.current.infer_relative_search_space(study, trial)

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: dict[str, Any]) -> dict[str, Any]:
        known = [other.params for other in study.get_trials(deepcopy=False, states=(*DONE, TrialState.RUNNING))]
        for _ in range(REDRAWS):
            drawn = self.current.sample_relative(study, trial, search_space)
            if not drawn or drawn not in known:
                return drawn
        # On a grid the estimators soon insist on what they know to be good: anything else teaches more.
        self.current = RandomSampler(seed=self.draw_seed)
        return {}

    def sample_independent(self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: Any) -> Any:
        return self.current.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Any) -> None:
        self.current.after_trial(study, trial, state, values)


def sqlite_url(path: Path) -> str:
    """Return the storage URL of an SQLite file."""
    return URL.create("sqlite", database=str(path.absolute())).render_as_string()


def open_study(storage: str, name: str, seed: int, epochs: int) -> Study:
    """Open the study of that name; make it if there is none.

    Args:
        storage: SQLAlchemy URL of a database that outlives the process.
        name: name in the storage.
        seed: of what is drawn.
        epochs: the most epochs of a training.

    Returns:
        The study; its trials report ``epochs`` steps for each training.
    """
    shown = _checked_url(storage)
    is_sqlite = shown.startswith("sqlite")
    engine = {"connect_args": {"timeout": LOCK_TIMEOUT, "factory": _LoggedConnection}} if is_sqlite else {}
    try:
        if is_sqlite:
            _complete_tables(storage, engine)
        return optuna.create_study(
            storage=_open_storage(storage, engine),
            study_name=name,
            sampler=TrialSampler(seed),
            pruner=optuna.pruners.MedianPruner(UNPRUNED_TRIALS, n_warmup_steps=int(WARM_UP * epochs)),
            direction="maximize",
            load_if_exists=True,
        )
    # Optuna passes on what the driver raises: the file is none, the host is away, the driver is not installed.
    except (SQLAlchemyError, optuna.exceptions.OptunaError, ImportError, RuntimeError, ValueError) as error:
        reason = _reason(error)
        remedy = "; remove the file to begin anew" if any(words in reason for words in SPOILT) else ""
        raise InputError(f"storage {shown} cannot be used: {reason}{remedy}") from None


@contextmanager
def storage_trouble() -> Iterator[None]:
    """Turn a full disk, a lost connection and whatever else befalls the storage into one line for a person.

    Optuna raises errors of its own in place of the driver's, and in one place fails an assertion.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        found: BaseException | None = error
        while found is not None and not isinstance(found, SQLAlchemyError):
            found = found.__cause__ or found.__context__
        if found is None:
            raise
        reason = str(getattr(found, "orig", None) or found).splitlines()[0]
        raise InputError(f"the storage of the search failed: {reason}; the same command goes on") from None


def check_same_search(study: Study, description: dict[str, Any], advice: str) -> None:
    """Keep what a new study searches; raise if an older one searches something else.

    Args:
        study: new or old.
        description: what is searched, as JSON can hold it, by subject and key.
        advice: what to do if it is something else.
    """
    stored = study.user_attrs.get("search")
    if stored is None:
        study.set_user_attr("search", description)
        return
    for subject, values in description.items():
        before = stored.get(subject, {})
        for key in sorted({*before, *values}):
            if before.get(key) != values.get(key):
                raise InputError(
                    f"{subject} of this search has {key} {values.get(key)!r}, but the one that is stored as "
                    f"{study.study_name!r} has {before.get(key)!r}: {advice}"
                )


def mark_worker(trial: optuna.Trial) -> None:
    """Note which process runs a trial, for :func:`fail_dead_trials`."""
    trial.set_user_attr("worker", {"machine": MACHINE, "pid": os.getpid()})


def await_marks(study: Study) -> None:
    """Wait, a few seconds at most, until every trial that runs is marked or was begun by a process that is dead."""
    deadline = time.monotonic() + MARK_GRACE
    while time.monotonic() < deadline and any(
        "worker" not in trial.user_attrs for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    ):
        time.sleep(MARK_GRACE / 50)


def fail_dead_trials(study: Study) -> None:
    """Mark trials as failed whose process is gone: at once on this machine, elsewhere by their missing heartbeat.

    A process that was killed before it could leave its mark is taken for dead soon after.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        optuna.storages.fail_stale_trials(study)
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        worker = trial.user_attrs.get("worker", {})
        is_dead = worker.get("machine") == MACHINE and not _is_alive(worker["pid"])
        age = (datetime.now() - trial.datetime_start).total_seconds()
        if is_dead or (not worker and age > MARK_GRACE):
            study.tell(trial.number, state=TrialState.FAIL)


def count_open(study: Study, trials: int) -> int:
    """Return how many trials a study lacks of so many, those that run now counted as done."""
    return max(0, trials - len(study.get_trials(deepcopy=False, states=(*DONE, TrialState.RUNNING))))


def ranked(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """Return finished trials with different settings, the best first, the earliest first among equals."""
    finished = [trial for trial in trials if trial.state is TrialState.COMPLETE and "repeats" not in trial.user_attrs]
    return sorted(finished, key=lambda trial: (-trial.value, trial.number))


class TrialRunner:
    """Runs one more trial of a search at each call; the study and the data stay open between calls.

    Args:
        search: what is searched.
        threads: of PyTorch.
    """

    def __init__(self, search: "Search", threads: int):
        self.search, self.trainer = search, CellTrainer(test_is_hidden=True, threads=threads)
        self.study: Study | None = None

    def __call__(self, _job: object) -> int:
        """Return the number of the trial, once it has ended."""
        ended: list[int] = []
        with storage_trouble():
            self.study = self.study or self.search.open()
            # Ctrl-C ends a training, but does not come between the study and its storage.
            with held_back() as interrupt:
                objective = _Objective(self.search, self.trainer, interrupt)
                self.study.optimize(objective, n_trials=1, callbacks=[lambda _, trial: ended.append(trial.number)])
        return ended[0]


class _Objective:
    """Value of a trial: the mean over splits of the best validation metric."""

    def __init__(self, search: "Search", trainer: CellTrainer, interrupt: Interrupt):
        self.search, self.trainer, self.interrupt = search, trainer, interrupt

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
            return self._train(trial, chosen)
        # Settings that diverge, do not go together or do not fit into memory are bad, and the sampler shall know it.
        except Exception as error:
            if not isinstance(error, InputError) and not is_out_of_memory(error):
                raise
            trial.set_user_attr("reason", (str(error).splitlines() or [type(error).__name__])[0])
            raise optuna.TrialPruned from None

    def _train(self, trial: optuna.Trial, chosen: dict[str, Any]) -> float:
        recipe = self.search.recipe.replace(**chosen)
        cells = split_cells(self.search.study, self.search.model, recipe, recipe.optim.seed)
        reporter = _Pruning(trial, recipe.optim.epochs, len(cells))
        for records in self._records(cells, reporter):
            trial.set_user_attr("metric", records[0]["metric"])
            reporter.splits_ended([record["val"] for record in records])
        return fmean(reporter.scores)

    def _records(self, cells: Sequence[TableCell], reporter: Callback) -> Iterator[list[Record]]:
        """Yield the records of a trial as they come: together those of a batch, and one by one what it left."""
        for batch in group_cells(cells, self.search.batch):
            with self.interrupt.let_through():
                together = BatchTrainer(self.trainer).together(batch)
            if found := [record for record in together if record is not None]:
                yield found
            for cell in (cell for cell, record in zip(batch, together) if record is None):
                with self.interrupt.let_through():
                    record = self.trainer.train(cell, reporter)
                yield [record]


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

    def splits_ended(self, scores: Sequence[float]) -> None:
        """Keep the scores of one split or several; the next begins."""
        self.scores += scores
        self.best = 0.0
        if len(self.scores) < self.num_splits:
            self._report(len(self.scores) * self.epochs, 0.0)

    def _report(self, step: int, unfinished: float) -> None:
        with held_back():
            self.trial.report((sum(self.scores) + unfinished) / self.num_splits, step)
            is_worse = self.trial.should_prune()
        if is_worse:
            raise optuna.TrialPruned


def _suggest(trial: optuna.Trial, name: str, values: Dimension) -> Any:
    if isinstance(values, Choices):
        return trial.suggest_categorical(name, values.values)
    if isinstance(values.low, int):
        return trial.suggest_int(name, values.low, values.high, log=values.log)
    return trial.suggest_float(name, values.low, values.high, log=values.log)


def _finished_twin(trial: optuna.Trial) -> FrozenTrial | None:
    """Return an earlier trial with the same settings: the same seeds would train the same models again."""
    finished = trial.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return next((other for other in finished if other.params == trial.params), None)


def _complete_tables(storage: str, engine: dict[str, Any]) -> None:
    """Make the tables and indexes of an SQLite file, all or none; those that a full disk once left out too.

    Optuna makes them one by one, and takes a table for whole that has not got its index. It notes its version last.
    """
    file = create_engine(storage, **engine)
    try:
        with file.connect() as connection:
            known = _names(connection)
            if "version_info" in known and connection.exec_driver_sql("SELECT 1 FROM version_info").first():
                return
            made = optuna.storages.RDBStorage("sqlite://")
            with made.engine.connect() as example:
                wanted = _names(example)
            # Others who begin at the same time wait here.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            known = _names(connection)
            for name, definition in wanted.items():
                if name not in known:
                    connection.exec_driver_sql(definition)
            connection.commit()
    finally:
        file.dispose()


def _names(connection: Connection) -> dict[str, str]:
    """The tables and indexes of an SQLite file with their definitions, tables before their indexes."""
    query = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"
    return dict(connection.exec_driver_sql(query).tuples().all())


def _open_storage(storage: str, engine: dict[str, Any]) -> optuna.storages.RDBStorage:
    """The storage, with its tables. Where others make them at the same time, it is tried again and finds them."""
    attempts = 0
    while True:
        attempts += 1
        try:
            with warnings.catch_warnings():
                # Heartbeats are marked as experimental.
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                return _Storage(storage, engine, heartbeat_interval=HEARTBEAT, grace_period=GRACE)
        except (SQLAlchemyError, optuna.exceptions.OptunaError) as error:
            if attempts == OPENINGS or not any(words in _reason(error).lower() for words in MADE_BY_OTHERS):
                raise
            # Two that always waited equally long would meet again.
            time.sleep(random.uniform(0.1, 0.5))  # nosec B311


def _reason(error: BaseException) -> str:
    return (str(error.__cause__ or error).splitlines() or [type(error).__name__])[0]


class _Storage(optuna.storages.RDBStorage):
    """Optuna's, whose thread does not die of a heartbeat that it could not note: the next one may succeed."""

    def record_heartbeat(self, trial_id: int) -> None:
        with suppress(SQLAlchemyError, optuna.exceptions.StorageInternalError):
            super().record_heartbeat(trial_id)


class _LoggedConnection(sqlite3.Connection):
    """An SQLite file with a write-ahead log: readers and a writer do not wait for each other, and a commit not for the
    disk. A killed process loses nothing; a power cut may lose the last trials, but not the file."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.execute("PRAGMA journal_mode = WAL")
        self.execute("PRAGMA synchronous = NORMAL")


def _checked_url(storage: str) -> str:
    """The URL as it may be shown: without its password."""
    try:
        url = make_url(storage)
    except (SQLAlchemyError, ValueError):
        raise InputError(
            "storage must be a URL such as sqlite:///study.db or postgresql+psycopg://user@host/base"
        ) from None
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise InputError("storage must be a database that outlives the process, got one in memory")
    return url.render_as_string(hide_password=True)


def _is_alive(pid: int) -> bool:
    if os.name != "posix":
        # Signal 0 is no question there; the heartbeat decides.
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
