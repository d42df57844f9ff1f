"""The folder of a translation run: what is in it, and how to have its translator back.

====================================  ===================================================================
``config.json``                       the recipe, and what made the run
``tokenizer.json``                    the subwords
``corpus/``                           the text as ids; made anew from the text where it is missing
``state.safetensors``                 all that training goes on from: weights, optimizer, generators, place
``weights/step-000500.safetensors``   weights alone: the latest few, and those with the best validation loss
``log.jsonl``                         the loss curve, one line each few steps
``hypotheses/``                       translations of test sets
``scores.jsonl``                      one line each evaluation
====================================  ===================================================================

To go on with a run elsewhere, the first two, the state and the text (or the corpus) are enough; to translate, the first
two and weights.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from hkconv import __version__
from hkconv.engine.files import append_json, make_folder, read_json, write_json
from hkconv.engine.reproducibility import source_commit, versions
from hkconv.engine.state import (
    check_shapes,
    count_numbers,
    read_facts,
    read_tensors,
    write_tensors,
)
from hkconv.errors import InputError
from hkconv.language.averaging import load_average
from hkconv.language.recipe import TranslationRecipe, make_translation_recipe
from hkconv.language.tokenizer import load_tokenizer
from hkconv.models.checkpoint_files import bounded_by, check_sizes
from hkconv.models.translation import create_translator
from hkconv.models.translation.seq2seq import Seq2Seq

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FORMAT_VERSION = 1
CONFIG_FILE = "config.json"
TOKENIZER_FILE = "tokenizer.json"
STATE_FILE = "state.safetensors"
LOG_FILE = "log.jsonl"
SCORES_FILE = "scores.jsonl"
WEIGHTS_FOLDER = "weights"
CORPUS_FOLDER = "corpus"
HYPOTHESES_FOLDER = "hypotheses"
WEIGHTS_CHOICES = ("best", "last", "average")


@dataclass(frozen=True)
class TranslationRun:
    """A trained translator.

    Args:
        folder: of its run.
        recipe: how it was trained.
        model: in evaluation mode.
        tokenizer: of source and target.
        steps: the steps whose weights it has; several if they were averaged.
    """

    folder: Path
    recipe: TranslationRecipe
    model: Seq2Seq
    tokenizer: "Tokenizer"
    steps: list[int]


@dataclass(frozen=True)
class Weights:
    """A file of weights: where it is, after which step it was written, and how good it is."""

    path: Path
    step: int
    validation_loss: float


def load_run(folder: Path | str, weights: str = "best", device: torch.device | str = "cpu") -> TranslationRun:
    """The translator of a run. Nothing from the files is executed.

    Args:
        folder: of the run.
        weights: ``"best"`` by validation loss, ``"last"``, or ``"average"`` of the latest that are kept.
        device: where the model goes.
    """
    folder = Path(folder)
    recipe = read_recipe(folder)
    if weights not in WEIGHTS_CHOICES:
        raise InputError(f"weights must be one of {', '.join(WEIGHTS_CHOICES)}, got {weights!r}")
    tokenizer = load_tokenizer(folder / TOKENIZER_FILE)
    chosen = _choose(list_weights(folder), weights, recipe.keep, folder)
    widths = {name: getattr(recipe, name) for name in ("dim", "feedforward_dim", "num_layers", "num_heads")}
    count = count_numbers(chosen[0].path)
    check_sizes(widths, count, chosen[0].path)
    with bounded_by(count):
        model = build_model(recipe, tokenizer)
    states = [read_weights(entry.path, model, tokenizer) for entry in chosen]
    load_average(model, states)
    return TranslationRun(folder, recipe, model.to(device).eval(), tokenizer, [entry.step for entry in chosen])


def build_model(recipe: TranslationRecipe, tokenizer: "Tokenizer") -> Seq2Seq:
    """The translator of a recipe, untrained."""
    own: dict[str, dict[str, Any]] = {
        "hkn": {"kernel_size": recipe.kernel_size, "form": recipe.form, "output": recipe.output},
        "hybonet": {"output": recipe.output},
        "bibert": {"folder": recipe.bert},
    }
    return create_translator(
        recipe.model,
        tokenizer.get_vocab_size(),
        dim=recipe.dim,
        num_heads=recipe.num_heads,
        feedforward_dim=recipe.feedforward_dim,
        num_layers=recipe.num_layers,
        dropout=recipe.dropout,
        max_length=recipe.max_length,
        **own.get(recipe.model, {}),
    )


def write_config(folder: Path, recipe: TranslationRecipe) -> None:
    """Begin a run: with this file a folder is one."""
    made_by = {"versions": versions(), "commit": source_commit()}
    content = {"format_version": FORMAT_VERSION, "recipe": recipe.flat(), **made_by}
    write_json(make_folder(folder, "out") / CONFIG_FILE, content)


def read_recipe(folder: Path) -> TranslationRecipe:
    """The recipe of a run."""
    if not os.path.exists(folder / CONFIG_FILE):
        raise InputError(f"run must be a folder that `hkconv translate train` made, got {folder}")
    config = read_json(folder / CONFIG_FILE, "the run's configuration")
    if config.get("format_version") != FORMAT_VERSION or not isinstance(config.get("recipe"), dict):
        found = config.get("format_version")
        raise InputError(f"run {folder} has format version {found!r}; this hkconv reads {FORMAT_VERSION}")
    return make_translation_recipe(config["recipe"])


def append_score(folder: Path, record: dict[str, Any]) -> None:
    """Add an evaluation to those of a run, with what made it."""
    made_by = {"hkconv": __version__, "commit": source_commit()}
    append_json(folder / SCORES_FILE, {**record, **made_by}, "the run's scores")


def tokenizer_digest(tokenizer: "Tokenizer") -> str:
    """Return a digest of the vocabulary; weights are of use with one only.

    Not of the file: other versions of the package write the same tokenizer in other ways.
    """
    tokens = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return hashlib.sha256(json.dumps(tokens).encode()).hexdigest()


def write_weights(
    folder: Path, model: torch.nn.Module, tokenizer: "Tokenizer", step: int, validation_loss: float
) -> None:
    """Keep the weights of a step."""
    path = make_folder(folder / WEIGHTS_FOLDER, "out") / f"step-{step:06d}.safetensors"
    facts = {"step": step, "validation_loss": validation_loss, **vocabulary_facts(tokenizer)}
    write_tensors(path, model.state_dict(), facts)


def vocabulary_facts(tokenizer: "Tokenizer") -> dict[str, Any]:
    """Return what weights remember of their tokenizer."""
    return {"vocabulary": tokenizer.get_vocab_size(), "tokenizer": tokenizer_digest(tokenizer)}


def list_weights(folder: Path) -> list[Weights]:
    """The weights of a run that are kept, the latest last."""
    found = []
    for path in sorted((folder / WEIGHTS_FOLDER).glob("step-*.safetensors")):
        facts = read_facts(path)
        step, loss = facts.get("step"), facts.get("validation_loss")
        if type(step) is not int or type(loss) not in (int, float):
            raise InputError(f"checkpoint {path} is damaged: it does not say of which step it is and how good")
        found.append(Weights(path, step, cast(float, loss)))
    return sorted(found, key=lambda entry: entry.step)


def best_of(found: list[Weights]) -> Weights | None:
    """Those with the lowest validation loss, the earliest among equals."""
    return min(found, key=lambda entry: entry.validation_loss, default=None)


def prune_weights(folder: Path, keep: int) -> None:
    """Remove all weights but the latest ``keep`` and the best."""
    found = list_weights(folder)
    best = best_of(found)
    for entry in found[:-keep]:
        if entry is not best:
            entry.path.unlink(missing_ok=True)


def read_weights(path: Path, model: Seq2Seq, tokenizer: "Tokenizer") -> dict[str, Tensor]:
    """Weights for a model, refused where they are of another vocabulary or another shape."""
    tensors, facts = read_tensors(path)
    check_vocabulary(facts, tokenizer, path)
    check_shapes(model.state_dict(), tensors, path)
    return tensors


def check_vocabulary(facts: dict[str, Any], tokenizer: "Tokenizer", path: Path) -> None:
    """Refuse weights that were trained with another tokenizer."""
    size = tokenizer.get_vocab_size()
    if facts.get("vocabulary") != size:
        raise InputError(f"{TOKENIZER_FILE} has {size} tokens, but checkpoint {path} has {facts.get('vocabulary')}")
    if facts.get("tokenizer") != tokenizer_digest(tokenizer):
        raise InputError(f"{TOKENIZER_FILE} is not the tokenizer that checkpoint {path} was trained with")


def _choose(found: list[Weights], weights: str, keep: int, folder: Path) -> list[Weights]:
    best = best_of(found)
    if best is None:
        raise InputError(f"run {folder} has no weights yet: they are written at the first validation")
    return {"best": [best], "last": found[-1:], "average": found[-keep:]}[weights]
