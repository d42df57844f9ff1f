"""Every table of the paper with our figures beside it, from the records of the results store and nothing else.

The same records give the same bytes: no date, machine or order of reading enters the report but what records say.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hkconv.engine.files import make_folder, write_bytes
from hkconv.errors import InputError
from hkconv.experiments.store import Record as StoredRecord
from hkconv.report.collect import CellFigures, CellKey, Collected, Grid, PaperTable, Record, collect_cells
from hkconv.report.contest import CAUTION, Contest, against_baselines, find_contests, summary
from hkconv.report.figures import KERNEL_TABLES, draw_svg, kernel_panels
from hkconv.report.render import Block, Heading, Items, Links, Plot, Text, as_html, as_markdown
from hkconv.report.tables import against_paper, count_trials, figures_table, tuning_section, validation_of_parts

TITLES = {
    "node": "Node classification",
    "graph": "Graph classification",
    "molecules": "Molecules",
    "links": "Link prediction",
    "ablations": "Ablations",
    "kernels-node": "Number of kernel points, node classification",
    "kernels-graph": "Number of kernel points, graph classification",
    "runtime": "Runtime",
}
ABLATIONS = "ablations"
# Tables in which HKN meets baselines.
CONTESTS = ("node", "graph", "molecules", "links")
# Tables that the paper does not have: left out until there is a record of one.
OWN_TABLES = ("links",)
KERNEL_PLOT = (
    "Test score in percent against the number of kernel points K, bands of one deviation; "
    "a hollow mark is a cell that is not complete."
)
#: Folder of explorer pages, beside the report.
EXPLORER = "explorer"

NOTES = {
    "node": "The paper calls its metric F1; with one label a node its micro average is the accuracy.",
    "links": "Links are divided 85/5/10, and all systems meet the same negatives. Scores are ROC-AUC; the rows 'AP' "
    "are the average precision of the same test parts, which nothing is chosen by. The rows 'paper' are what HGCN "
    "(Chami et al. 2019) and HyboNet (Chen et al. 2022) print of themselves, with divisions and perhaps features of "
    "their own: they stand beside ours for scale.",
    "runtime": "Milliseconds a training epoch, the median of many. 'Captured' is a step replayed as a CUDA graph. The "
    "paper's are from an RTX 3090: times of different machines are no comparison, and the lowest is in bold only where "
    "all of ours are of one machine and kind.",
}
READING = (
    "Each system has up to three rows. The first is what the paper prints. The row 'published' is ours under a "
    "re-creation of what the paper's released code does, whose training, validation and test sets overlap (the last "
    "rows of a table say by how much): it shows what that procedure yields and is no measure of quality. The row "
    "'clean' is ours on disjoint splits, with every choice made on validation data: it is the one that counts.",
    "Our figures are mean ± sample deviation over splits, in parentheses the number of splits (or splits x seeds: the "
    "seeds of a split are averaged first, and where there is one split the deviation is over its seeds). '7 of 10' is "
    "a cell that is not complete: trainings with a score, of those planned. Bold is the highest clean mean test score "
    "of a dataset, complete cells only. Scores are percentages.",
)

FAILED = "Trainings that gave no score; they count in no mean."
OUTDATED = "Cells that were trained with another recipe than the recipe files have now, and not yet again."
RETIRED = "Systems of earlier versions that the recipe files do not have any more; their rows are of the records."
DAMAGED = "Kept in their files and left out of every table."


def build_report(
    records: Iterable[Record],
    problems: Iterable[object] = (),
    paper: Mapping[str, PaperTable] | None = None,
    plan: Iterable[Record] = (),
    trials: Iterable[StoredRecord] = (),
    explorer_pages: Sequence[str] = (),
) -> list[Block]:
    """The report as a list of blocks.

    Args:
        records: those of the store, full and quick, successes and failures, in any order.
        problems: damaged lines, each with a text that names file and line.
        paper: published mean and deviation by table, dataset and system, in percent (the runtime table: seconds an
            epoch). Its order is that of columns and rows.
        plan: the trainings that make the tables complete, see :func:`hkconv.report.collect.collect_cells`.
        trials: what was tried to choose the settings.
        explorer_pages: pages of the best networks, named by their datasets, in :data:`EXPLORER` beside the report.

    Returns:
        Blocks for :func:`hkconv.report.render.as_markdown` and its neighbour.
    """
    records, trials, paper = list(records), list(trials), paper or {}
    if not records:
        raise InputError("no results to report: there is no record of a training")
    for record in records:
        check_table(record["table"], "in a record")
    collected = collect_cells(records, plan)
    counts = {table: count_trials(table, trials) for table in TITLES}
    contests = {
        table: find_contests(Grid(table, False, collected.cells, paper.get(table, {})), collected) for table in CONTESTS
    }
    blocks: list[Block] = [Heading("Results", 1), *map(Text, (*READING, CAUTION)), *summary(contests, TITLES, counts)]
    shown = {table for table in TITLES if table not in OWN_TABLES} | {record["table"] for record in records}
    for table in (table for table in TITLES if table in shown):
        blocks += _section(table, collected.cells, paper.get(table, {}), contests.get(table, []))
        blocks += tuning_section(counts[table])
    return [
        *blocks,
        *_explorer(explorer_pages),
        *_notes("Failures", FAILED, _failures(collected)),
        *_notes("Other recipes", OUTDATED, map(_where, collected.outdated)),
        *_notes("No longer trained", RETIRED, _retired(collected)),
        *_notes("Damaged lines", DAMAGED, map(str, problems)),
        *_provenance(records, collected),
    ]


def check_table(name: str, where: str) -> None:
    """Refuse the name of a table that the report does not have."""
    if name not in TITLES:
        raise InputError(f"unknown table {name!r} {where}; accepted: {', '.join(TITLES)}")


def draw_plots(blocks: Iterable[Block]) -> dict[str, str]:
    """SVG of the plots by their file names; where Matplotlib is missing, an :class:`InputError` says so."""
    return {block.file_name: draw_svg(block.panels) for block in blocks if isinstance(block, Plot)}


def write_report(folder: Path, blocks: Sequence[Block], drawings: Mapping[str, str] | None = None) -> list[Path]:
    """Write ``report.md``, ``report.html`` and each plot's file.

    Args:
        folder: where they go; made if it is not there.
        blocks: of :func:`build_report`.
        drawings: of :func:`draw_plots`; without them the page has no plots.

    Returns:
        The files written.
    """
    contents = {"report.md": as_markdown(blocks), "report.html": as_html(blocks, drawings), **(drawings or {})}
    make_folder(folder, "out")
    for name, content in contents.items():
        write_bytes(folder / name, content.encode())
    return [folder / name for name in contents]


def _section(
    table: str, cells: Mapping[CellKey, CellFigures], paper: PaperTable, contests: Sequence[Contest]
) -> list[Block]:
    full, quick = (Grid(table, is_quick, cells, paper) for is_quick in (False, True))
    blocks: list[Block] = [Heading(TITLES[table])]
    if table in NOTES:
        blocks.append(Text(NOTES[table]))
    blocks.append(figures_table(full) if full.variants else Text("No results yet."))
    if table in KERNEL_TABLES and full.variants:
        blocks.append(Plot(f"{table}.svg", kernel_panels(full), KERNEL_PLOT))
    if table == ABLATIONS:
        blocks += validation_of_parts(full)
    if table in CONTESTS:
        blocks += [*against_paper(full), *against_baselines(contests)]
    if quick.cells:
        blocks += [
            Heading("Quick runs", 3),
            Text("Fewer splits and epochs, to see that everything works. Not results, and in no other table."),
            figures_table(quick),
        ]
    return blocks


def _explorer(pages: Sequence[str]) -> list[Block]:
    if not pages:
        return []
    links = tuple((Path(page).stem, f"{EXPLORER}/{page}") for page in pages)
    return [
        Heading("To walk through"),
        Text("What the best HKN of a dataset, by validation, makes of it: open a page in a browser."),
        Links(links),
    ]


def _notes(heading: str, explanation: str, texts: Iterable[str]) -> list[Block]:
    """A section with a list; nothing where the list is empty."""
    items = Items(tuple(texts))
    return [Heading(heading), Text(explanation), items] if items.texts else []


def _failures(collected: Collected) -> list[str]:
    groups: dict[tuple[str, str], list[str]] = {}
    for record in collected.failures:
        where = _where(CellKey(**{name: record[name] for name in CellKey._fields}))
        groups.setdefault((where, str(record["error"])), []).append(f"{record['split']}/{record['seed']}")
    return [f"{where}: split/seed {', '.join(cells)}: {error}" for (where, error), cells in groups.items()]


def _retired(collected: Collected) -> list[str]:
    return [f"{table}: {', '.join(variants)}" for table, variants in collected.retired.items()]


def _where(place: CellKey) -> str:
    protocol = f"{place.protocol}, quick" if place.quick else place.protocol
    return ", ".join((place.table, place.dataset, protocol, place.variant))


def _provenance(records: list[Record], collected: Collected) -> list[Block]:
    quick = sum(record["quick"] for record in records)
    dates = sorted(record["when"] for record in records if record.get("when"))
    hours = math.fsum(record.get("seconds") or 0.0 for record in records) / 3600
    versions = (", ".join(f"{name} {number}" for name, number in _versions(record)) for record in records)
    texts = (
        f"records: {len(records)}, {quick} of them quick; {len(collected.failures)} trainings failed",
        f"left out: {collected.superseded} of earlier recipes under the same name, {collected.repeated} repeats",
        f"dates: {dates[0]} to {dates[-1]}" if dates else "dates: unknown",
        f"training time: {hours:.1f} hours",
        f"devices: {_counted(record.get('device') or '' for record in records)}",
        f"commits: {_counted(record.get('commit') or '' for record in records)}",
        f"versions: {_counted(versions)}",
    )
    return [Heading("Provenance"), Items(texts)]


def _versions(record: Record) -> list[tuple[str, str]]:
    return sorted((record.get("versions") or {}).items())


def _counted(names: Iterable[str]) -> str:
    counts = Counter(name or "unknown" for name in names)
    return "; ".join(f"{name} ({number})" for name, number in sorted(counts.items()))
