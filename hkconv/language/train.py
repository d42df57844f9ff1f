"""Training a translator from parallel text: a new run, or one that goes on after a kill as if nothing had happened."""

import math
import shlex
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from hkconv.data.parallel_text import find_parallel_text
from hkconv.engine.callbacks import Callback
from hkconv.engine.devices import find_device, room_for_weights
from hkconv.engine.distributed import Processes, joined
from hkconv.engine.files import hold_new, locked, remove_parts
from hkconv.engine.reproducibility import deterministic_algorithms
from hkconv.engine.steps import StepCourse, StepSettings
from hkconv.errors import InputError, advised_on_memory
from hkconv.language import runs
from hkconv.language.batches import Buckets
from hkconv.language.corpus import Corpus, encode_corpus
from hkconv.language.recipe import TranslationRecipe, check_resumed
from hkconv.language.task import TranslationTask, make_step
from hkconv.language.tokenizer import learn_tokenizer, load_tokenizer, save_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class TrainedTranslator:
    """Outcome of a training.

    Args:
        folder: of the run.
        step: the last step.
        is_finished: whether that was the last of all; else the time was up, or it was interrupted.
        interrupted: whether Ctrl-C ended it.
        best: weights with the lowest validation loss so far, None before the first validation.
        parameters: how many numbers the model learns.
        device: in words.
        guard: what the guard did when something was not finite, in words; None if it had nothing to do.
    """

    folder: Path
    step: int
    is_finished: bool
    interrupted: bool
    best: runs.Weights | None
    parameters: int
    device: str
    guard: str | None = None


def train_translator(
    recipe: TranslationRecipe, callback: Callback | None = None, *, resume: bool = False
) -> TrainedTranslator:
    """Train a translator, or go on with its training.

    A new run reads all of its text before it writes anything. Ctrl-C ends it in order, its last step kept. If a number
    is not finite, some steps are taken again with half the learning rate, once; see :mod:`hkconv.engine.guard`.

    Args:
        recipe: what to train.
        callback: told of every stage.
        resume: go on with the run in ``recipe.out``.
    """
    with joined() as processes, ExitStack() as held:
        return _train(recipe, callback if processes.is_first else None, resume, processes, held)


def _train(
    recipe: TranslationRecipe, callback: Callback | None, resume: bool, processes: Processes, held: ExitStack
) -> TrainedTranslator:
    callback = callback or Callback()
    deadline = math.inf if recipe.minutes is None else time.perf_counter() + 60 * recipe.minutes
    device = processes.find_device(recipe.device)
    if recipe.capture and device.type != "cuda":
        raise InputError(f"capture needs a CUDA device, got {device.type}")
    prepare = _continued_folder if resume else _begin
    folder = processes.first(lambda: prepare(recipe, callback, held))
    processes.goes_on = f"hkconv translate train --resume {folder}"
    callback.told(f"run {folder}")
    with advised_on_memory(_advice(folder)):
        return _take_steps(recipe, callback, folder, device, deadline, processes)


def _take_steps(
    recipe: TranslationRecipe,
    callback: Callback,
    folder: Path,
    device: torch.device,
    deadline: float,
    processes: Processes,
) -> TrainedTranslator:
    tokenizer = load_tokenizer(folder / runs.TOKENIZER_FILE)
    train, valid = (
        processes.in_turn(partial(_load_buckets, recipe, part, folder, tokenizer, callback, processes))
        for part in ("train", "valid")
    )
    interrupted = False
    with deterministic_algorithms(recipe.deterministic):
        task = TranslationTask(recipe, folder, tokenizer, train, valid, device)
        settings = StepSettings(recipe.steps, recipe.accumulate, recipe.log_every, recipe.validate_every)
        files = folder / runs.STATE_FILE, folder / runs.LOG_FILE
        steps = StepCourse(task, make_step(task, processes), settings, *files, callback)
        try:
            steps.run(deadline)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            callback.run_ended()
    step, guard = steps.progress.step, steps.recovery
    parameters = sum(parameter.numel() for parameter in steps.model.parameters())
    best = runs.best_of(runs.list_weights(folder))
    where = processes.describe(device)
    return TrainedTranslator(folder, step, step >= recipe.steps, interrupted, best, parameters, where, guard)


def _advice(folder: Path) -> str:
    return (
        f"what was kept is safe, and hkconv translate train --resume {shlex.quote(str(folder))} goes on when there is "
        "more; a new run with smaller batch_tokens, and as much larger accumulate, or smaller dim needs less"
    )


def _begin(recipe: TranslationRecipe, callback: Callback, held: ExitStack) -> Path:
    """A new folder with the configuration that makes it a run and goes on wherever it is killed, and a tokenizer."""
    folder = hold_new(held, recipe.out, f"{recipe.model}-{recipe.source}-{recipe.target}")
    tokenizer = _first_tokenizer(recipe, callback)
    with room_for_weights(find_device(recipe.device)):
        runs.build_model(recipe, tokenizer)
    runs.write_config(folder, recipe)
    save_tokenizer(tokenizer, folder / runs.TOKENIZER_FILE)
    return folder


def _first_tokenizer(recipe: TranslationRecipe, callback: Callback) -> "Tokenizer":
    train, valid = (find_parallel_text(text, recipe.source, recipe.target) for text in (recipe.train, recipe.valid))
    # Read to their ends, so that whatever is wrong with them is known before a folder is made.
    for text in (train, valid):
        deque(text, maxlen=0)
    if recipe.bert is None:
        tokenizer, origin = learn_tokenizer(train, recipe.merges), f"{train.source} and {train.target}"
    else:
        tokenizer, origin = load_tokenizer(Path(recipe.bert) / runs.TOKENIZER_FILE), recipe.bert
    callback.told(f"vocabulary of {tokenizer.get_vocab_size():,} tokens from {origin}")
    return tokenizer


def _continued_folder(recipe: TranslationRecipe, callback: Callback, held: ExitStack) -> Path:
    if recipe.out is None:
        raise InputError("out must name the folder of the run to resume")
    folder = Path(recipe.out)
    check_resumed(runs.read_recipe(folder), recipe)
    held.enter_context(locked(folder, "out"))
    # What the run may change, such as the number of its steps, is kept for the next time.
    runs.write_config(folder, recipe)
    remove_parts(folder)
    if not (folder / runs.TOKENIZER_FILE).exists():
        save_tokenizer(_first_tokenizer(recipe, callback), folder / runs.TOKENIZER_FILE)
    return folder


def _load_buckets(
    recipe: TranslationRecipe,
    part: str,
    folder: Path,
    tokenizer: "Tokenizer",
    callback: Callback,
    processes: Processes,
) -> Buckets:
    """The training or validation data, encoded where the run does not have it yet."""
    corpora = folder / runs.CORPUS_FOLDER
    if not (corpora / f"{part}.json").exists():
        text = find_parallel_text(getattr(recipe, part), recipe.source, recipe.target)
        encode_corpus(text, tokenizer, recipe.max_length, corpora, part)
    corpus = Corpus(corpora, part)
    info = corpus.info
    callback.told(f"{part}: {info.pairs:,} pairs, {info.tokens:,} tokens")
    if info.report is not None:
        callback.told(f"{part}: {info.report}")
    # Validation is not captured, and need not pay for rows that count for nothing.
    is_filled = recipe.capture and part == "train"
    return Buckets(corpus, recipe.batch_tokens, fill=is_filled, processes=processes)
