"""``hkconv translate``: trains a translator, scores it on a test set, and translates standard input.

The options of ``train`` are the fields of :class:`~hkconv.language.recipe.TranslationRecipe`, read from there.
"""

import inspect
import shlex
import sys
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hkconv.cli.exit_codes import INTERRUPTED
from hkconv.cli.recipe_options import Device, one_of, option, ranged, recipe_option
from hkconv.errors import InputError
from hkconv.language.recipe import TranslationRecipe, make_translation_recipe
from hkconv.options import BEAM, PENALTY

if TYPE_CHECKING:
    from hkconv.language.scores import TextScore
    from hkconv.language.train import TrainedTranslator

translate = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@translate.callback()
def _translate() -> None:
    """Train a translator, score it, and translate with it.

    Example: hkconv translate train --train multi30k/train --valid multi30k/valid
    """


WeightsOption = Annotated[str, one_of(("best", "last", "average"), help="Weights of the run to use.")]
BeamOption = Annotated[int, ranged(BEAM, help="Hypotheses to follow at once; 1 is greedy.")]
PenaltyOption = Annotated[float, ranged(PENALTY, help="Length penalty; 0 prefers short translations.")]

# Lines of a pipe that are translated together.
CHUNK = 1024


def train(resume: str | None, **options: Any) -> None:
    """Train a translator on parallel text.

    Stopped in any way, it goes on by --resume as if nothing had happened.

    Example: hkconv translate train --train multi30k/train --valid multi30k/valid
    """
    given = {name: value for name, value in options.items() if value is not None}
    recipe = make_translation_recipe(given) if resume is None else _resumed_recipe(Path(resume), given)

    from hkconv.cli.progress import TranslationProgress
    from hkconv.engine.distributed import find_place
    from hkconv.language.train import train_translator

    with TranslationProgress() as progress:
        training = train_translator(recipe, progress, resume=resume is not None)
    if find_place().rank == 0:
        _print_training(training)
    if training.interrupted:
        raise typer.Exit(INTERRUPTED)


def _resumed_recipe(folder: Path, given: dict[str, Any]) -> TranslationRecipe:
    if "out" in given:
        raise InputError("out cannot be given with resume: the run goes on in its own folder")
    from hkconv.language.runs import read_recipe

    # A limit of time was for that part of the run.
    stored = {**read_recipe(folder).flat(), "minutes": None}
    return make_translation_recipe({**stored, **given, "out": str(folder)})


def _train_signature() -> inspect.Signature:
    resume = option("resume", str, typer.Option(help="Folder of an unfinished run to go on with.", show_default=False))
    return inspect.Signature([*map(recipe_option, TranslationRecipe.options().values()), resume])


train.__signature__ = _train_signature()  # type: ignore[attr-defined]  # inspect looks for it, and typer asks inspect
translate.command()(train)


def _print_training(training: "TrainedTranslator") -> None:
    folder = shlex.quote(str(training.folder))
    typer.echo(f"step {training.step}, {training.parameters:,} parameters, device {training.device}")
    if training.best is not None:
        typer.echo(f"best validation loss {training.best.validation_loss:.4f} at step {training.best.step}")
    if training.guard is not None:
        typer.echo(f"guard: {training.guard}")
    typer.echo(f"files: {training.folder}")
    if training.is_finished:
        typer.echo(f"score: hkconv translate score {folder} --test PREFIX")
    else:
        reason = "interrupted" if training.interrupted else "time is up"
        typer.echo(f"{reason}; go on: hkconv translate train --resume {folder}")


@translate.command()
def score(
    run: Annotated[Path | None, typer.Argument(help="Folder of a run.", show_default=False)] = None,
    test: Annotated[str | None, typer.Option(help="Test text: files TEST.en and TEST.de.", show_default=False)] = None,
    hypotheses: Annotated[
        Path | None, typer.Option(help="Score this file instead of translating; a run is optional.", show_default=False)
    ] = None,
    references: Annotated[Path | None, typer.Option(help="References of --hypotheses.", show_default=False)] = None,
    raw_references: Annotated[
        Path | None, typer.Option(help="References as plain text, where the others are not.", show_default=False)
    ] = None,
    moses: Annotated[bool, typer.Option("--moses", help="The text is tokenised by Moses; detokenise it.")] = False,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case on detokenised text too.")] = False,
    language: Annotated[str, typer.Option(help="Language of --hypotheses, for Moses's rules.")] = "de",
    weights: WeightsOption = "best",
    beam: BeamOption = 5,
    length_penalty: PenaltyOption = 0.6,
    device: Device = "auto",
) -> None:
    """Score the translation of a test set.

    Prints BLEU and chrF with sacrebleu's signatures. The scores are added to scores.jsonl in the run's folder.

    Example: hkconv translate score runs/hkn-en-de --test multi30k/test
    """
    from hkconv.data.parallel_text import read_lines
    from hkconv.language.beam import BeamSettings
    from hkconv.language.evaluate import read_test, translate_test
    from hkconv.language.runs import append_score, read_recipe
    from hkconv.language.scores import all_scores, check_scoring

    check_scoring()
    settings = BeamSettings(beam, length_penalty)
    language = language if run is None else read_recipe(run).target
    raw = None if raw_references is None else list(read_lines(raw_references))
    if hypotheses is not None and references is not None:
        translated = read_test(hypotheses, references)
    elif run is not None and test is not None and hypotheses is None:
        translated = translate_test(run, test, weights, settings, device, _show_progress)
    else:
        raise InputError("score needs a run and --test, or else --hypotheses and --references")
    found = all_scores(
        translated.hypotheses, translated.references, language, moses=moses, raw_references=raw, lowercase=lowercase
    )
    if run is not None:
        record = {"moses": moses, "sentences": len(translated.hypotheses), "scores": [asdict(entry) for entry in found]}
        append_score(run, {**translated.facts, **record})
    _print_scores(found, translated.facts)


def _show_progress(done: int, total: int) -> None:
    typer.echo(f"{done}/{total} sentences", err=True)


def _print_scores(found: "list[TextScore]", facts: dict[str, Any]) -> None:
    for entry in found:
        typer.echo(f"{entry.name:26} {entry.value:6.2f}  {entry.signature}")
    if facts.get("too_long"):
        typer.echo(f"sentences longer than the run's limit, scored as empty: {facts['too_long']}")
    typer.echo(f"hypotheses: {facts['hypotheses']}")


@translate.command()
def run(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.", show_default=False)],
    weights: WeightsOption = "best",
    beam: BeamOption = 5,
    length_penalty: PenaltyOption = 0.6,
    device: Device = "auto",
) -> None:
    """Translate the lines of standard input.

    To standard output; an empty line stays empty.

    Example: echo "A man is running." | hkconv translate run runs/hkn-en-de
    """
    from hkconv.data.parallel_text import decode_lines
    from hkconv.engine.devices import find_device
    from hkconv.language.beam import BeamSettings
    from hkconv.language.runs import load_run
    from hkconv.language.translate import Translator

    settings = BeamSettings(beam, length_penalty)
    translator = Translator(load_run(folder, weights, find_device(device)), settings)
    lines = decode_lines(sys.stdin.buffer, "standard input", empty=True)
    # Somebody who types wants an answer to each line.
    size, done = 1 if sys.stdin.isatty() else CHUNK, 0
    while sentences := list(islice(lines, size)):
        for number, tokens in enumerate(translator.token_counts(sentences), start=done + 1):
            if tokens > translator.limit:
                raise InputError(
                    f"standard input, line {number} has {tokens} tokens; this run translates at most {translator.limit}"
                )
        for translation in translator(sentences):
            typer.echo(translation)
        done += len(sentences)
