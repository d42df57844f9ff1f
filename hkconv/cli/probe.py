"""``hkconv probe``: how much syntax the encoder of a translation run knows, beside an untrained one and a chain."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from hkconv.cli.output import count, make_table, print_table
from hkconv.cli.recipe_options import Device, one_of, ranged
from hkconv.errors import InputError
from hkconv.options import SEED

if TYPE_CHECKING:
    from hkconv.language.probe_run import ProbedRun
    from hkconv.language.probing import ProbeResult


def probe(
    run: Annotated[str, typer.Argument(help="Folder of a run of `hkconv translate train`.", show_default=False)],
    treebank: Annotated[
        str, typer.Option(metavar="FOLDER", help="CoNLL-U files *train, *dev and *test.", show_default=False)
    ],
    layers: Annotated[str, typer.Option(metavar="all|0,3,...", help="Layers to probe; 0 is the embedding.")] = "all",
    sentences: Annotated[
        str | None, typer.Option(metavar="4,17,...", help="Test sentences to draw, from 1.", show_default="a few")
    ] = None,
    weights: Annotated[str, one_of(("best", "last", "average"), help="Weights of the run to use.")] = "best",
    device: Device = "auto",
    seed: Annotated[int, ranged(SEED, help="Seed of the probes and of the untrained encoder.")] = 0,
    out: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Where the report goes.", show_default="probe in the run's")
    ] = None,
) -> None:
    """Probe the layers of a translator for syntax trees.

    Trains structural probes on its frozen encoder and scores them. Distances
    and depths of words against the trees of a treebank, by a Euclidean and by a
    hyperbolic probe. Writes probe.json, probe.md and trees.svg.

    Example: hkconv probe runs/iwslt --treebank ud/en_ewt
    """
    wanted = None if layers == "all" else _numbers(layers, "layers", "'all' or numbers such as 0,3,6")
    drawn = None if sentences is None else _numbers(sentences, "sentences", "numbers such as 4,17")

    from hkconv.language.probe_run import probe_run

    found = probe_run(
        run,
        treebank,
        layers=wanted,
        sentences=drawn,
        weights=weights,
        device=device,
        seed=seed,
        out=out,
        report=_print_progress,
    )
    _print_found(found)


def _numbers(text: str, option: str, right: str) -> list[int]:
    """The whole numbers of a list with commas, each once."""
    try:
        return list(dict.fromkeys(int(number) for number in text.split(",")))
    except ValueError:
        raise InputError(f"{option} must be {right}, got {text!r}") from None


def _print_progress(result: "ProbeResult") -> None:
    """A line on standard error, so that standard output holds the result alone."""
    from hkconv.language.probe_report import result_cells

    encoder, layer, kind, uuas, dspr, root, nspr = result_cells(result)
    scores = f"UUAS {uuas} %, DSpr. {dspr}, Root {root} %, NSpr. {nspr}"
    print(f"{encoder}, layer {layer}, {kind}: {scores}", file=sys.stderr, flush=True)


def _print_found(found: "ProbedRun") -> None:
    from hkconv.language.probe_report import HEADINGS, best_layers, result_cells

    table = make_table(*HEADINGS)
    table.columns[2].justify = "left"
    for result in best_layers(found.results):
        table.add_row(*result_cells(result))
    print_table(table)
    typer.echo("best layer by UUAS on dev; scores on test")
    typer.echo(f"words written as the encoder's text: {found.form}")
    for part, sentences in found.parts.items():
        facts = sentences.summary()
        left_out = facts["too_long"] + facts["unreadable"]
        unknown = f"{100 * facts['unknown_share']:.2f} % of the subwords unknown"
        typer.echo(f"{part}: {count(int(facts['sentences']), 'sentence')}, {left_out} left out, {unknown}")
    for path in found.files:
        typer.echo(f"written: {path}")
