"""Probing the encoder of a finished translation run, with an untrained one of the same shape beside it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from hkconv.data.treebanks import read_treebank, treebank_files
from hkconv.engine.devices import describe_device, find_device
from hkconv.engine.files import locked
from hkconv.engine.reproducibility import source_commit, versions
from hkconv.errors import InputError
from hkconv.language.probe_data import TextForm, TokenizedTrees, find_text_form, tokenize_trees
from hkconv.language.probe_report import write_probe_report
from hkconv.language.probing import ProbeResult, probe_encoders
from hkconv.language.runs import TranslationRun, build_model, load_run
from hkconv.models.translation import Seq2Seq

TRAINED, UNTRAINED = "trained", "untrained"
# Without a choice, the first few test sentences of these lengths are drawn: long enough to be a tree, short enough for
# a page.
DRAWN, DRAWN_LENGTHS = 3, range(8, 15)


@dataclass(frozen=True)
class ProbedRun:
    """Findings of probing a run.

    Args:
        results: of :func:`hkconv.language.probing.probe_encoders`.
        parts: the sentences of each part of the treebank.
        form: how the words were written for the encoder.
        files: the report.
    """

    results: list[ProbeResult]
    parts: dict[str, TokenizedTrees]
    form: TextForm
    files: list[Path]


def probe_run(
    folder: str | Path,
    treebank: str | Path,
    *,
    layers: Sequence[int] | None = None,
    sentences: Sequence[int] | None = None,
    weights: str = "best",
    device: str = "auto",
    seed: int = 0,
    out: str | Path | None = None,
    report: Callable[[ProbeResult], None] = lambda result: None,
) -> ProbedRun:
    """Probe the encoder of a run and write the report.

    Args:
        folder: of the run.
        treebank: folder with the train, dev and test parts of a treebank in the run's source language.
        layers: which layers, the embedding being 0; all if not given.
        sentences: numbers, from 1, of test sentences to draw; a few of middling length if not given.
        weights: those of :func:`hkconv.language.runs.load_run`.
        device: where to compute.
        seed: of the probes and of the untrained encoder.
        out: folder of the report; ``probe`` in the run's if not given.
        report: called with each result once it is there.
    """
    where = find_device(device)
    run = load_run(folder, weights, where)
    files = treebank_files(treebank)
    max_length = run.model.sizes.max_length
    parts = {part: tokenize_trees(read_treebank(path), run.tokenizer, max_length) for part, path in files.items()}
    drawn = _places_to_draw(parts["test"], sentences)
    # Now, not after minutes of computing.
    with locked(Path(folder) / "probe" if out is None else Path(out), "out") as target:
        encoders = {TRAINED: run.model, UNTRAINED: untrained_model(run, seed, where)}
        results = probe_encoders(encoders, parts, layers=layers, drawn=drawn, device=where, seed=seed, report=report)
        form = find_text_form(run.tokenizer)
        facts = {
            "run": str(folder),
            "recipe": run.recipe.flat(),
            "steps": run.steps,
            "treebank": {part: path.name for part, path in files.items()},
            "text_form": str(form),
            "parts": {part: sentences.summary() for part, sentences in parts.items()},
            "seed": seed,
            "device": describe_device(where),
            "versions": versions(),
            "commit": source_commit(),
        }
        title = f"Syntax in the encoder of {run.recipe.model}, dimension {run.recipe.dim}"
        return ProbedRun(results, parts, form, write_probe_report(target, title, facts, results, parts["test"]))


def untrained_model(run: TranslationRun, seed: int, device: torch.device) -> Seq2Seq:
    """The run's model as it would begin from a seed; PyTorch's own generators are left as they were."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_model(run.recipe, run.tokenizer).to(device).eval()


def _places_to_draw(test: TokenizedTrees, sentences: Sequence[int] | None) -> list[int]:
    if sentences is None:
        fitting = [place for place, tree in enumerate(test.trees) if len(tree) in DRAWN_LENGTHS]
        return fitting[:DRAWN]
    for number in sentences:
        if number not in test.numbers:
            last = test.numbers[-1]
            raise InputError(
                f"sentences must be numbers of test sentences that the encoder reads, 1 to {last}, got {number}"
            )
    return [test.numbers.index(number) for number in sentences]
