"""Translations of a test set: made by a run and kept, so that they can be scored here or elsewhere; or read again."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hkconv.data.parallel_text import find_parallel_text, read_lines
from hkconv.engine.devices import describe_device, find_device
from hkconv.engine.files import make_folder, write_bytes
from hkconv.errors import InputError
from hkconv.language.beam import BeamSettings
from hkconv.language.runs import HYPOTHESES_FOLDER, load_run, read_recipe
from hkconv.language.translate import Translator

# Sentences between two reports of progress.
_CHUNK = 1024


@dataclass(frozen=True)
class TranslatedTest:
    """Translations of a test set.

    Args:
        hypotheses: one for each sentence.
        references: what they should be.
        facts: where they come from, for the record of their scores.
    """

    hypotheses: list[str]
    references: list[str]
    facts: dict[str, Any]


def translate_test(
    folder: Path,
    test: str,
    weights: str = "best",
    settings: BeamSettings | None = None,
    device: str = "auto",
    on_progress: Callable[[int, int], None] | None = None,
) -> TranslatedTest:
    """Translate a test set and write the translations into the run's folder.

    A sentence above the run's limit has an empty translation; ``facts`` counts them as ``too_long``.

    Args:
        folder: of the run.
        test: the beginning that the paths of sentences and references have in common.
        weights: which of the run's, see :func:`~hkconv.language.runs.load_run`.
        settings: how to search.
        device: where.
        on_progress: called with the sentences done and their number in all.
    """
    settings, place = settings or BeamSettings(), find_device(device)
    recipe = read_recipe(folder)
    sources, references = map(list, zip(*find_parallel_text(test, recipe.source, recipe.target)))
    run = load_run(folder, weights, place)
    translator = Translator(run, settings)
    started = time.perf_counter()
    hypotheses: list[str] = []
    while len(hypotheses) < len(sources):
        hypotheses += translator(sources[len(hypotheses) : len(hypotheses) + _CHUNK])
        if on_progress is not None:
            on_progress(len(hypotheses), len(sources))
    seconds = time.perf_counter() - started
    name = f"{'-'.join(Path(test).parts[-2:])}-{weights}-beam{settings.beam}.{recipe.target}"
    path = make_folder(folder / HYPOTHESES_FOLDER, "run") / name
    write_bytes(path, "".join(f"{line}\n" for line in hypotheses).encode())
    facts = {
        "test": test,
        "hypotheses": str(path.relative_to(folder)),
        "too_long": sum(count > translator.limit for count in translator.token_counts(sources)),
        "model": recipe.model,
        "dim": recipe.dim,
        "weights": weights,
        "steps": run.steps,
        **asdict(settings),
        "device": describe_device(place),
        "seconds": seconds,
    }
    return TranslatedTest(hypotheses, references, facts)


def read_test(hypotheses: Path, references: Path) -> TranslatedTest:
    """Translations that were written before.

    Args:
        hypotheses: one a line; a line may be empty.
        references: one a line.
    """
    expected = list(read_lines(references))
    found = list(read_lines(hypotheses, empty=True))
    if len(found) != len(expected):
        raise InputError(f"{hypotheses} has {len(found)} lines, but {references} has {len(expected)}")
    return TranslatedTest(found, expected, {"hypotheses": str(hypotheses), "references": str(references)})
