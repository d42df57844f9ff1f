"""Report of probing: every figure as JSON, a table as Markdown, some trees as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hkconv.engine.files import make_folder, write_bytes, write_json
from hkconv.language.probe_data import TokenizedTrees
from hkconv.language.probing import ProbeResult, Scores
from hkconv.language.tree_picture import TreePicture, draw_trees

HEADINGS = ("encoder", "layer", "probe", "UUAS", "DSpr.", "Root %", "NSpr.")
NOTES = (
    "UUAS and Root % (both in percent) leave out punctuation; DSpr. and NSpr. are averaged by sentence length, 5 to 50 "
    "words, as in Hewitt and Manning (2019).",
    "Scores are those of the test part. In bold: the layer of an encoder whose UUAS on the dev part is highest. Layer "
    "0 is the embedding.",
    "Both kinds of probe predict a word's depth by the same formula, because the exponential map keeps distances to "
    "the origin: one depth probe stands in both rows.",
)


def best_layers(results: Sequence[ProbeResult]) -> list[ProbeResult]:
    """For each encoder and kind of probe the result of the layer with the highest UUAS on dev, the first of equals."""
    best: dict[tuple[str, str | None], ProbeResult] = {}
    for result in results:
        key = (result.encoder, result.probe)
        if key not in best or result.dev.uuas > best[key].dev.uuas:
            best[key] = result
    return list(best.values())


def score_cells(scores: Scores) -> list[str]:
    """The four scores as a table shows them: two in percent, two as correlations."""
    return [f"{100 * scores.uuas:.1f}", f"{scores.dspr:.2f}", f"{100 * scores.root:.1f}", f"{scores.nspr:.2f}"]


def result_cells(result: ProbeResult) -> list[str]:
    """A result as a row under :data:`HEADINGS`, its test scores."""
    layer = "-" if result.layer is None else str(result.layer)
    return [result.encoder, layer, result.probe or "-", *score_cells(result.test)]


def as_markdown(title: str, results: Sequence[ProbeResult]) -> str:
    """All results as a table in Markdown."""
    best = best_layers(results)
    lines = [f"# {title}", "", _row(HEADINGS), _row(["---", "---:", "---", *["---:"] * 4])]
    for result in results:
        cells = result_cells(result)
        lines.append(_row([f"**{cell}**" for cell in cells] if result in best and result.probe else cells))
    return "\n".join([*lines, "", *(f"* {note}" for note in NOTES), ""])


def write_probe_report(
    folder: Path,
    title: str,
    facts: Mapping[str, Any],
    results: Sequence[ProbeResult],
    test: TokenizedTrees,
) -> list[Path]:
    """Write ``probe.json``, ``probe.md`` and, where sentences were drawn, ``trees.svg``.

    Args:
        folder: where they go; made if it is not there.
        title: over the table.
        facts: what the results depend on, for the JSON file.
        results: all of them.
        test: the test sentences.

    Returns:
        The files written.
    """
    make_folder(folder, "out")
    written = [folder / "probe.json", folder / "probe.md"]
    records = [
        {"encoder": entry.encoder, "layer": entry.layer, "probe": entry.probe, "epochs": entry.epochs}
        | {part: getattr(entry, part)._asdict() for part in ("dev", "test")}
        for entry in results
    ]
    write_json(written[0], {**facts, "results": records})
    write_bytes(written[1], as_markdown(title, results).encode())
    pictures = tree_pictures(results, test)
    if pictures:
        written.append(folder / "trees.svg")
        write_bytes(written[2], (draw_trees(pictures) + "\n").encode())
    return written


def tree_pictures(results: Sequence[ProbeResult], test: TokenizedTrees) -> list[TreePicture]:
    """The sentences to draw, each as the best layer of every encoder and kind of probe sees it."""
    best = best_layers(results)
    return [
        TreePicture(f"{_who(result)}: test sentence {test.numbers[place]}", test.trees[place], result.edges[place])
        for place in sorted(best[0].edges)
        for result in best
    ]


def _who(result: ProbeResult) -> str:
    return result.encoder if result.layer is None else f"{result.encoder}, layer {result.layer}, {result.probe} probe"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
