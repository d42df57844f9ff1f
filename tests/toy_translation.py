"""A small language pair to train translators on in a test: each word has one translation, and their order is turned."""

import random
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import torch

from hkconv.language import runs
from hkconv.language.recipe import TranslationRecipe

WORDS = {
    "one": "eins",
    "two": "zwei",
    "three": "drei",
    "big": "groß",
    "small": "klein",
    "tree": "Baum",
    "dog": "Hund",
    "cat": "Katze",
}


# A training that takes a second or two.
SIZES = {"model": "transformer", "dim": 8, "num_heads": 2, "num_layers": 1, "merges": 30, "max_length": 32}
PACE = {"batch_tokens": 128, "warmup": 20, "steps": 12, "log_every": 2, "validate_every": 5, "device": "cpu"}
SMALL = {**SIZES, **PACE}


def make_pairs(count: int, seed: int = 0, longest: int = 9) -> list[tuple[str, str]]:
    """Sentences of one to ``longest`` words with their translations."""
    draw = random.Random(seed)
    sentences = [[draw.choice(list(WORDS)) for _ in range(draw.randint(1, longest))] for _ in range(count)]
    return [(" ".join(words) + ".", " ".join(WORDS[word] for word in words[::-1]) + ".") for words in sentences]


def write_pairs(prefix: Path, pairs: list[tuple[str, str]]) -> str:
    """Write pairs as ``PREFIX.en`` and ``PREFIX.de``; returns the prefix."""
    for language, lines in zip(("en", "de"), zip(*pairs)):
        Path(f"{prefix}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(prefix)


def write_toy(folder: Path) -> dict[str, str]:
    """Training and validation text in a folder, as options of a recipe."""
    return {
        "train": write_pairs(folder / "train", make_pairs(200)),
        "valid": write_pairs(folder / "valid", make_pairs(20, seed=1)),
    }


def toy_options(folder: Path, **changes) -> dict:
    """Options of a small training; its text is written to the folder."""
    return {**write_toy(folder), **SMALL, **changes}


def toy_recipe(folder: Path, **changes) -> TranslationRecipe:
    """The recipe of :func:`toy_options`, with its run in ``folder / "run"``."""
    return TranslationRecipe(**toy_options(folder, **{"out": str(folder / "run"), **changes}))


SPOILT = "encoder.0.feedforward"


@contextmanager
def prepared(prepare: Callable[[torch.nn.Module], object]) -> Iterator[None]:
    """Within this block, something is done to every new model of a training."""
    build_model = runs.build_model

    def build(*arguments):
        model = build_model(*arguments)
        prepare(model)
        return model

    with patch.object(runs, "build_model", build):
        yield


def spoils(
    calls: Container[int], spoil: Callable[[torch.Tensor], torch.Tensor] = lambda output: output * float("nan")
) -> Callable[[torch.nn.Module], object]:
    """Prepares a model so that one of its modules is spoilt in some of its calls in training, counted from 1."""

    def prepare(model: torch.nn.Module) -> None:
        made = []

        def act(module, inputs, output):
            if not module.training:
                return output
            made.append(1)
            return spoil(output) if len(made) in calls else output

        model.get_submodule(SPOILT).register_forward_hook(act)

    return prepare
