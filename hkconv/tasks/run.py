"""A whole run: every model of a recipe on every split with every seed, each training kept in a folder of its own.

A run's folder holds ``recipe.json``, ``summary.json``, ``metrics.csv`` with every epoch, what
:mod:`hkconv.tasks.building` keeps of own data, and for each training ``MODEL/splitI-seedJ/`` with
``model.safetensors``, ``config.json`` and, written last, ``metrics.json``; while it lasts, what
:mod:`hkconv.engine.state` keeps of it.
"""

import os
import shlex
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_args

import torch

from hkconv import models
from hkconv.data import LinkDataset
from hkconv.data.own.loading import is_own
from hkconv.engine.callbacks import Callback, Callbacks, make_loggers
from hkconv.engine.checkpoint import CheckpointInfo, save_checkpoint
from hkconv.engine.devices import check_compiler, room_for_weights
from hkconv.engine.distributed import ALONE, Processes, joined
from hkconv.engine.files import hold_new, locked, read_json, remove_parts, write_json
from hkconv.engine.guard import DivergenceError
from hkconv.engine.interrupts import held_back
from hkconv.engine.loop import Epoch, FitResult
from hkconv.engine.reproducibility import deterministic_algorithms, seed_everything, stream_seed, versions
from hkconv.engine.settings import Settings
from hkconv.engine.state import Unfinished
from hkconv.engine.step import check_capture
from hkconv.errors import InputError, advised_on_memory
from hkconv.tasks.building import describe_dataset, find_schema, keep_own_data, load_dataset, model_config
from hkconv.tasks.fitting import fit
from hkconv.tasks.layerwise import check_sampled
from hkconv.tasks.recipe import BEFORE, Recipe, check_run, make_recipe, upgraded
from hkconv.tasks.scoring import make_scoring
from hkconv.tasks.summary import Cell, CellResult, RunSummary, summarize
from hkconv.tasks.tasks import Dataset, edge_dim_of, make_task

RECIPE_FILE = "recipe.json"
SUMMARY_FILE = "summary.json"
METRICS_FILE = "metrics.json"


def train_run(recipe: Recipe, reporter: Callback | None = None, *, resume: bool = False) -> RunSummary:
    """Train what a recipe asks for and keep every result.

    Nothing is written before data, models and folder are known to be usable, and nobody else writes to the folder until
    the run ends. Ctrl-C ends the run in order:
    the best weights of the current training are kept, and the summary says that the run was interrupted. So does the
    loss of one of several processes, and then an error tells of it.

    Args:
        recipe: what to train.
        reporter: told of every step.
        resume: continue the run in the folder ``out``; trainings that it finished are not repeated, and the one that
            was stopped goes on from where it was last kept.

    Returns:
        All results, as ``summary.json`` has them too.
    """
    with joined() as processes, ExitStack() as held:
        summary = _train_all(recipe, reporter if processes.is_first else None, resume, processes, held)
        processes.check()
    return summary


def _train_all(
    recipe: Recipe, reporter: Callback | None, resume: bool, processes: Processes, held: ExitStack
) -> RunSummary:
    started = time.perf_counter()
    device = processes.find_device(recipe.runtime.device)
    if is_own(recipe.data.dataset):
        # A run is resumed and evaluated from other folders too.
        recipe = recipe.replace(dataset=str(Path(os.path.expanduser(recipe.data.dataset)).absolute()))
    dataset = processes.in_turn(lambda: load_dataset(recipe))
    # OGB publishes one split a dataset, and that is what there is however many were asked for.
    recipe = recipe.replace(num_splits=min(recipe.data.num_splits, len(dataset.splits)))
    _check_settings(recipe, dataset, device, processes)
    folder, results = processes.first(lambda: _begin(recipe, dataset, resume, held))
    processes.goes_on = f"hkconv train --resume {folder}"
    loggers = make_loggers(recipe.runtime.log, folder) if processes.is_first else []
    # An interrupt may come from the reporter, and the epoch before it counts.
    reporter = Callbacks([*loggers, reporter or Callback()])
    cells = list_cells(recipe)
    open_cells = [cell for cell in cells if cell not in results or results[cell].interrupted]
    if processes.is_first:
        for cell in set(results) - set(open_cells):
            Unfinished(folder / cell.folder).remove()
    reporter.run_started(recipe, open_cells)
    interrupted = False
    try:
        with deterministic_algorithms(recipe.optim.deterministic), advised_on_memory(_advice(folder)):
            for cell in open_cells:
                reporter.cell_started(cell)
                results[cell] = _train_and_keep(cell, recipe, dataset, device, folder, reporter, processes)
                reporter.cell_ended(results[cell])
                if results[cell].interrupted:
                    raise KeyboardInterrupt
    except KeyboardInterrupt:
        interrupted = True
        processes.leave()
        # One may have been kept just before.
        results |= {cell: read_result(folder, cell) for cell in trained_cells(folder, recipe)}
    finally:
        reporter.run_ended()
    place, seconds = processes.describe(device), time.perf_counter() - started
    found = [results[cell] for cell in cells if cell in results]
    summary = summarize(recipe, dataset, folder, found, place, seconds, interrupted)
    if processes.is_first:
        write_json(folder / SUMMARY_FILE, summary.as_dict())
    return summary


def _advice(folder: Path) -> str:
    return (
        f"what was kept is safe, and hkconv train --resume {shlex.quote(str(folder))} goes on when there is more; "
        "a new run with smaller hidden_dim, num_layers, batch_size or neighbors needs less"
    )


def _check_settings(recipe: Recipe, dataset: Dataset, device: torch.device, processes: Processes) -> None:
    """Refuse settings that do not go together before anything is written."""
    settings = recipe.settings(recipe.optim.seed)
    if settings.capture:
        check_capture(device, dataset.task, settings.groupings)
    if settings.compile:
        check_compiler()
    # A package that is missing is named here, before there is a folder.
    make_loggers(settings.log, Path())
    if processes.count > 1:
        if settings.precision != "float32":
            raise InputError(f"precision must be float32 with {processes.count} processes, got {settings.precision}")
        make_task(dataset, dataset.splits[0], torch.empty(0), neighbors=settings.neighbors).divide_among(processes)
    for name in recipe.model.models:
        with room_for_weights(device):
            model = models.create(name, **model_config(recipe, name, dataset))
        check_sampled(model, dataset.task, settings, edge_dim_of(dataset))
    if not isinstance(dataset, LinkDataset):
        for split in dataset.splits:
            make_scoring(dataset, split)


def _begin(recipe: Recipe, dataset: Dataset, resume: bool, held: ExitStack) -> tuple[Path, dict[Cell, CellResult]]:
    """The folder of the run, this process's while ``held`` is open, and the results that it has."""
    folder = _continued_folder(recipe, held) if resume else hold_new(held, recipe.runtime.out, dataset.name)
    # The recipe makes the folder a run, which goes on wherever it is killed after that.
    write_json(folder / RECIPE_FILE, recipe.flat())
    if is_own(recipe.data.dataset) and find_schema(folder) is None:
        keep_own_data(folder, dataset)
    return folder, {cell: read_result(folder, cell) for cell in trained_cells(folder, recipe)}


def list_cells(recipe: Recipe) -> list[Cell]:
    """Every training of a recipe, model by model."""
    splits = range(recipe.data.num_splits)
    seeds = range(recipe.optim.seed, recipe.optim.seed + recipe.optim.seeds)
    return [Cell(name, split, seed) for name in recipe.model.models for split in splits for seed in seeds]


def trained_cells(folder: Path, recipe: Recipe) -> list[Cell]:
    """The trainings of a recipe that the run in ``folder`` has a result of."""
    return [cell for cell in list_cells(recipe) if (folder / cell.folder / METRICS_FILE).exists()]


def read_recipe(folder: Path | str) -> Recipe:
    """The recipe of the run in ``folder``, with that folder as its ``out``."""
    folder = check_run(folder)
    stored = upgraded(read_json(folder / RECIPE_FILE, "the run's recipe"))
    return make_recipe({**BEFORE, **stored}, out=str(folder))


def read_result(folder: Path, cell: Cell) -> CellResult:
    """The result of a training of the run in ``folder``."""
    path = folder / cell.folder / METRICS_FILE
    stored = read_json(path, "the training's metrics")
    # Runs from before there were these have nothing of them.
    stored = {"guard": None, "test_ap": None, **stored}
    for entry in fields(CellResult):
        if entry.name not in stored:
            raise InputError(f"the training's metrics are damaged: {path} lacks {entry.name!r}")
        if not _is_of(entry.type, stored[entry.name]):
            raise InputError(f"the training's metrics are damaged: {entry.name!r} of {path} must be {entry.type}")
    return CellResult(**{entry.name: stored[entry.name] for entry in fields(CellResult)})


def read_history(folder: Path, cell: Cell) -> list[Epoch]:
    """Every epoch of a training of the run in ``folder``."""
    path = folder / cell.folder / METRICS_FILE
    stored = read_json(path, "the training's metrics")
    try:
        history = [Epoch(**epoch) for epoch in stored["history"]]
        is_sound = all(_is_of(entry.type, getattr(epoch, entry.name)) for epoch in history for entry in fields(Epoch))
    except (KeyError, TypeError):
        is_sound = False
    if not is_sound:
        raise InputError(f"the training's metrics are damaged: {path} has no history of epochs")
    return history


def _is_of(kind: Any, value: Any) -> bool:
    """Tell whether a value that came through JSON is of a field's type; a float may come without a fraction."""
    accepted = get_args(kind) or (kind,)
    is_whole = type(value) is int and float in accepted and abs(value) <= sys.float_info.max
    return type(value) in accepted or is_whole


@dataclass(frozen=True)
class Training:
    """One training: the model with the weights of its best epoch, how it was made, and what it came to.

    Args:
        model: on the device it was trained on.
        config: arguments of the model's constructor.
        settings: how it was trained.
        result: its scores.
        history: every epoch.
    """

    model: torch.nn.Module
    config: dict[str, Any]
    settings: Settings
    result: CellResult
    history: list[Epoch]


def train_cell(
    cell: Cell,
    recipe: Recipe,
    dataset: Dataset,
    device: torch.device,
    reporter: Callback | None = None,
    processes: Processes = ALONE,
    unfinished: Unfinished | None = None,
) -> Training:
    """Train one model on one split with one seed. Writes nothing but what it is given a place for.

    Args:
        cell: which training of the recipe.
        recipe: how to train. ``deterministic`` is the caller's to heed, around all of its trainings.
        dataset: the recipe's, with its splits.
        device: where to train.
        reporter: told of every epoch.
        processes: which train it together.
        unfinished: where the training is kept while it lasts.

    Returns:
        The model and its scores; Ctrl-C leaves the best so far, and the result says ``interrupted``. A
        :class:`~hkconv.engine.guard.DivergenceError` has the best so far too.
    """
    config = model_config(recipe, cell.model, dataset)
    model, settings = build_cell(cell, recipe, config, device)
    processes.seed_dropout(settings.seed)
    on_epoch = (reporter or Callback()).epoch_ended

    def training(outcome: FitResult) -> Training:
        return Training(model, config, settings, cell_result(cell, outcome, model), outcome.history)

    try:
        return training(fit(model, dataset, dataset.splits[cell.split], settings, on_epoch, processes, unfinished))
    except DivergenceError as error:
        error.best = None if error.best is None else training(error.best)
        raise


def build_cell(
    cell: Cell, recipe: Recipe, config: dict[str, Any], device: torch.device
) -> tuple[torch.nn.Module, Settings]:
    """Seed all generators for a training; return its model before the first epoch, and its settings.

    Args:
        cell, recipe, device: as for :func:`train_cell`.
        config: arguments of the model's constructor.
    """
    seed = stream_seed(cell.seed, cell.split)
    seed_everything(seed)
    return models.create(cell.model, **config).to(device), recipe.settings(seed)


def cell_result(cell: Cell, outcome: FitResult, model: torch.nn.Module) -> CellResult:
    """Return the scores of a training with the size of its model."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return CellResult(**asdict(cell), **{entry: getattr(outcome, entry) for entry in _SCORES}, parameters=parameters)


def _train_and_keep(
    cell: Cell,
    recipe: Recipe,
    dataset: Dataset,
    device: torch.device,
    folder: Path,
    reporter: Callback,
    processes: Processes,
) -> CellResult:
    unfinished = Unfinished(folder / cell.folder, recipe.runtime.keep_every, _about(dataset))

    def keep(done: Training) -> CellResult:
        place = {"device": processes.describe(device), "versions": versions()}
        training = {"split": cell.split, **recipe.optim.flat(), "seed": done.settings.seed, **place}
        info = CheckpointInfo(cell.model, done.config, describe_dataset(dataset), training)
        return processes.first(lambda: _keep(cell, done, info, folder, unfinished))

    try:
        return keep(train_cell(cell, recipe, dataset, device, reporter, processes, unfinished))
    except DivergenceError as error:
        if error.best is not None:
            keep(error.best)
            raise DivergenceError(f"{cell}: {error}; its best epoch is kept in {folder / cell.folder}") from None
        raise DivergenceError(f"{cell}: {error}") from None


def _keep(cell: Cell, done: Training, info: CheckpointInfo, folder: Path, unfinished: Unfinished) -> CellResult:
    history = [asdict(epoch) for epoch in done.history]
    with held_back():
        # While the files of an interrupted training are replaced, there is no result.
        (folder / cell.folder / METRICS_FILE).unlink(missing_ok=True)
        save_checkpoint(folder / cell.folder, done.model, info)
        write_json(folder / cell.folder / METRICS_FILE, {**asdict(done.result), "history": history})
        if not done.result.interrupted:
            unfinished.remove()
    return done.result


def _about(dataset: Dataset) -> dict[str, Any]:
    """Return what must be the same for a training to go on. The same data may be read from another place."""
    return {name: value for name, value in describe_dataset(dataset).items() if name != "source"}


_SCORES = (
    "metric",
    "test_metric",
    "test_loss",
    "val_metric",
    "val_loss",
    "best_epoch",
    "epochs",
    "seconds",
    "interrupted",
    "guard",
    "test_ap",
)


def _continued_folder(recipe: Recipe, held: ExitStack) -> Path:
    out = recipe.runtime.out
    if out is None:
        raise InputError("out must name the folder of the run to resume")
    before, now = read_recipe(out).identity(), recipe.identity()
    for name in now:
        if before[name] != now[name]:
            raise InputError(
                f"{name} cannot change when a run is resumed: {out} has {before[name]!r}, got {now[name]!r}"
            )
    folder = held.enter_context(locked(Path(out), "out"))
    remove_parts(folder)
    return folder
