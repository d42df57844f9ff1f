"""Tables of the report: every figure of a table, HKN against its baselines and the paper, ablations, trials."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import cast

from hkconv.data.catalog import CATALOG
from hkconv.experiments import store
from hkconv.experiments.store import RUNTIME, TUNING
from hkconv.experiments.store import Record as StoredRecord
from hkconv.report.collect import CLEAN, HKN, HKN_LABEL, PUBLISHED, CellFigures, Grid, natural_order, scaled
from hkconv.report.render import Block, Bold, Heading, Items, Table, Text
from hkconv.report.statistics import paired_test, rounded
from hkconv.tasks.summary import Spread

NOTHING = "–"

CAUTION = (
    "HKN against the best baseline. Chosen by validation are HKN's variant and the baseline with the highest mean "
    "validation score under the clean protocol, complete cells only; test scores have no part in it. The difference "
    "is HKN's test score minus the baseline's, in percentage points, paired over the same splits. Splits of a "
    "dataset share members, so the paired t test and Wilcoxon's signed-rank test (exact, two-sided) are optimistic. "
    "The corrected p and the 95 % interval are those of the corrected resampled t test of Nadeau and Bengio (2003), "
    "with the sizes of test and training set; an interval marked 'plain' has no correction, because the records do "
    "not have these sizes or the pairs are seeds of one split. No p is adjusted for the number of datasets. In bold "
    "the highest mean test score, seen after the fact: nobody could have chosen it."
)
WHOLE = "HKN"
PARTS_EXPLANATION = (
    "Validation score of each variant minus that of HKN, in percentage points, the mean over their splits; "
    "complete cells only. Bold where all splits agree whether it is better or worse; the last two columns count those. "
    "With three splits, one dataset in eight is 'better on all' by chance alone, and one in eight worse."
)
DATASETS = ("cornell", "texas", "wisconsin", "chameleon", "squirrel", "actor")
OURS = ("HKN+", "HKN")
FOR_SCALE = ("MLP", "GCN")
TUNING_EXPLANATION = (
    "What `hkconv tune` tried, on splits whose test part is hidden: '16 x 3' is 16 settings on three splits each. The "
    "settings with the highest mean validation score are those of the tables. All trials on record count, those of "
    "earlier versions of a system too; a failed training is one that diverged or ran out of memory."
)


def figures_table(grid: Grid) -> Table:
    """All figures of a grid; rows that would be empty are left out. Bold is the best complete clean cell."""
    rows: list[tuple[str | Bold, ...]] = []
    best = {dataset: None if grid.quick else grid.best(dataset) for dataset in grid.datasets}
    # A protocol is a way to divide a dataset, and a time does not depend on it.
    clean_name = "ours" if grid.table == RUNTIME else CLEAN
    label = ", quick" if grid.quick else ""
    for variant in grid.variants:
        clean = [cell_text(grid.table, grid.cell(dataset, CLEAN, variant)) for dataset in grid.datasets]
        kinds: dict[str, Sequence[str | Bold]] = {
            "paper": [_paper_text(grid, dataset, variant) for dataset in grid.datasets],
            PUBLISHED: [cell_text(grid.table, grid.cell(dataset, PUBLISHED, variant)) for dataset in grid.datasets],
            CLEAN: [Bold(text) if best[name] == variant else text for name, text in zip(grid.datasets, clean)],
        }
        filled = [kind for kind, texts in kinds.items() if any(text != NOTHING for text in texts)]
        for kind in filled:
            shown = {"paper": "paper", PUBLISHED: PUBLISHED + label, CLEAN: clean_name + label}[kind]
            rows.append((variant if kind == filled[0] else "", shown, *kinds[kind]))
    head = ("system", "", *(_column_title(grid, dataset) for dataset in grid.datasets))
    return Table(head, (*rows, *_overlaps(grid)))


def cell_text(table: str, cell: CellFigures | None) -> str:
    """Mean, deviation and number of splits of a cell; a time is a median already and has no splits."""
    if cell is None:
        return NOTHING
    if not cell.tests:
        return f"failed ({cell.failures} of {cell.planned})"
    if table == RUNTIME:
        return spread_text(table, scaled(cell.test, 1000))
    return f"{spread_text(table, scaled(cell.test, 100))} ({count_text(cell)})"


def count_text(cell: CellFigures) -> str:
    """Number of splits of a complete cell, or trainings done and planned of one that is not."""
    if not cell.complete:
        return f"{cell.trainings} of {cell.planned}" + (f", {cell.failures} failed" if cell.failures else "")
    return str(cell.splits) if cell.trainings == cell.splits else f"{cell.splits} x {cell.seeds}"


def spread_text(table: str, spread: Spread) -> str:
    """Mean and deviation with the digits of their table."""

    def number(value: float) -> str:
        if table != RUNTIME:
            return f"{value:.2f}"
        return f"{value:.3g}" if value < 100 else f"{value:.0f}"

    return number(spread.mean) if spread.deviation is None else f"{number(spread.mean)} ± {number(spread.deviation)}"


def signed(value: float, digits: int) -> str:
    """A difference with its sign, which is + where it rounds to nothing."""
    # The sum turns -0.0 into 0.0.
    return f"{round(value, digits) + 0.0:+.{digits}f}"


def _paper_text(grid: Grid, dataset: str, variant: str) -> str:
    if grid.paper.get(dataset, {}).get(variant) is None:
        return NOTHING
    figure = grid.paper_figure(dataset, variant)
    if figure is None:
        return "NaN"
    return spread_text(grid.table, scaled(figure, 1000 if grid.table == RUNTIME else 1))


def _column_title(grid: Grid, dataset: str) -> str:
    metrics = {cell.metric for place, cell in grid.cells.items() if place.dataset == dataset}
    others = sorted(metrics - {"accuracy", ""})
    return f"{dataset} ({', '.join(others)})" if others and grid.table != RUNTIME else dataset


def _overlaps(grid: Grid) -> list[tuple[str, ...]]:
    """Overlap of the parts of the published splits, a row for each pair of parts."""
    found = {dataset: _mean_overlap(grid.column(dataset, PUBLISHED).values()) for dataset in grid.datasets}
    names = list(dict.fromkeys(name for overlap in found.values() for name in overlap))
    shares = {name: [found[dataset].get(name) for dataset in grid.datasets] for name in names}
    return [
        (
            "overlap of the published splits" if name == names[0] else "",
            name,
            *(NOTHING if share is None else f"{100 * share:.0f} %" for share in shares[name]),
        )
        for name in names
    ]


def _mean_overlap(cells: Iterable[CellFigures]) -> dict[str, float]:
    found = [cell.overlap for cell in cells if cell.overlap]
    return {name: sum(overlap[name] for overlap in found) / len(found) for name in (found[0] if found else ())}


def against_paper(grid: Grid) -> list[Block]:
    """HKN under the published protocol beside the paper's figures, in deviations of the paper."""
    rows = []
    for dataset in grid.datasets:
        for variant, cell in grid.column(dataset, PUBLISHED).items():
            figure = grid.paper_figure(dataset, variant)
            if cell.model != HKN or figure is None:
                continue
            distance = 100 * cell.test.mean - figure.mean
            deviations = signed(distance / figure.deviation, 1) if figure.deviation else NOTHING
            texts = (spread_text(grid.table, figure), cell_text(grid.table, cell), signed(distance, 2), deviations)
            rows.append((dataset, variant, *texts))
    if not rows:
        return []
    head = ("dataset", "system", "paper", "ours, published", "difference", "in the paper's deviations")
    return [Heading("The paper's HKN and ours under the published protocol", 3), Table(head, tuple(rows))]


def against_baselines(grid: Grid) -> list[Block]:
    """HKN's best variant by validation against the best baseline by validation, where a dataset has both."""
    rows: list[tuple[str | Bold, ...]] = []
    verdicts, left_out = [], []
    for dataset in grid.datasets:
        column, complete = grid.column(dataset, CLEAN), grid.complete(dataset)
        if not _baselines(column):
            continue
        missing = [f"{variant} ({count_text(column[variant])})" for variant in column if variant not in complete]
        if missing:
            left_out.append(f"{dataset}: not complete and left out of the choice: {', '.join(missing)}")
        baselines = _baselines(complete)
        ours = {variant: cell for variant, cell in complete.items() if variant not in baselines}
        if ours and baselines:
            mine, yours = _best_by_validation(ours), _best_by_validation(baselines)
            rows.append((dataset, *_system(mine, ours), *_system(yours, baselines)))
            rows[-1] += (*_test_texts(ours[mine], baselines[yours]), _highest_text(grid, dataset, complete))
            verdicts.append(_verdict(dataset, mine, ours[mine], baselines))
    notes = [Items((*verdicts, *left_out))] if verdicts or left_out else []
    title = Heading("HKN against the best baseline under the clean protocol", 3)
    if not rows:
        return [title, Text("No dataset has a complete HKN and a complete baseline yet."), *notes] if notes else []
    head = (
        *("dataset", "HKN by validation", "validation", "test"),
        *("baseline by validation", "validation", "test"),
        *("difference", "95 % interval", "p corrected", "p paired t", "p Wilcoxon", "pairs", "highest mean test score"),
    )
    return [title, Table(head, tuple(rows)), *notes]


def _baselines(cells: Mapping[str, CellFigures]) -> dict[str, CellFigures]:
    return {variant: cell for variant, cell in cells.items() if cell.model != HKN}


def _best_by_validation(cells: Mapping[str, CellFigures]) -> str:
    return max(cells, key=lambda variant: cells[variant].val.mean)


def _system(variant: str, cells: Mapping[str, CellFigures]) -> tuple[str, str, str]:
    cell = cells[variant]
    return variant, f"{100 * cell.val.mean:.2f}", f"{100 * cell.test.mean:.2f}"


def _highest_text(grid: Grid, dataset: str, complete: Mapping[str, CellFigures]) -> Bold:
    # There are complete cells, or there were no contest.
    best = cast(str, grid.best(dataset))
    return Bold(f"{best} {100 * complete[best].test.mean:.2f}")


def _test_texts(ours: CellFigures, theirs: CellFigures) -> tuple[str, ...]:
    """Difference, interval, the three p and the number of pairs."""
    over_seeds = ours.splits == 1
    shared = sorted(ours.tests.keys() & theirs.tests.keys())
    if len(shared) < 2 or over_seeds != (theirs.splits == 1):
        return (signed(100 * (ours.test.mean - theirs.test.mean), 2), *[NOTHING] * 4, "too few")
    # Seeds of one split are no resampling of the data, so there is nothing to correct.
    ratio = None if over_seeds else ours.test_to_train
    found = paired_test([ours.tests[unit] for unit in shared], [theirs.tests[unit] for unit in shared], ratio)
    correction = ", plain" if found.p_corrected is None else ""
    return (
        signed(100 * found.difference, 2),
        f"{signed(100 * found.low, 2)} to {signed(100 * found.high, 2)}{correction}",
        NOTHING if found.p_corrected is None else _p(found.p_corrected),
        _p(found.p_plain),
        _p(found.p_ranks),
        f"{found.pairs} {'seeds' if over_seeds else 'splits'}",
    )


def _verdict(dataset: str, mine: str, ours: CellFigures, baselines: Mapping[str, CellFigures]) -> str:
    ahead = {variant: rounded(cell.test.mean - ours.test.mean) for variant, cell in baselines.items()}
    ahead = {variant: distance for variant, distance in ahead.items() if distance > 0}
    if not ahead:
        return f"{dataset}: {mine} is at or above every baseline in mean test score ({len(baselines)} compared)"
    ordered = sorted(ahead.items(), key=lambda item: -item[1])
    listed = ", ".join(f"{variant} by {100 * distance:.2f}" for variant, distance in ordered)
    return f"{dataset}: {mine} is below {len(ahead)} of {len(baselines)} baselines in mean test score: {listed}"


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"


def validation_of_parts(grid: Grid) -> list[Block]:
    """A table of ablations as differences to :data:`WHOLE`; nothing where no dataset has that and a variant of it."""
    differences = {
        dataset: {
            variant: [cell.vals[split] - complete[WHOLE].vals[split] for split in sorted(cell.vals)]
            for variant, cell in complete.items()
            if variant != WHOLE and cell.vals.keys() == complete[WHOLE].vals.keys()
        }
        for dataset in grid.datasets
        if WHOLE in (complete := grid.complete(dataset))
    }
    variants = [variant for variant in grid.variants if any(variant in column for column in differences.values())]
    if not variants:
        return []
    rows = tuple(
        _parts_row(variant, [column.get(variant, []) for column in differences.values()]) for variant in variants
    )
    head = ("variant", *differences, "better on all splits", "worse on all splits")
    return [Heading("What validation data says of each part", 3), Text(PARTS_EXPLANATION), Table(head, rows)]


def _parts_row(variant: str, columns: list[list[float]]) -> tuple[str | Bold, ...]:
    agreed = [_agreed(column) for column in columns if column]
    return (variant, *map(_parts_difference, columns), str(agreed.count("better")), str(agreed.count("worse")))


def _parts_difference(column: list[float]) -> str | Bold:
    if not column:
        return NOTHING
    text = signed(100 * fmean(column), 1)
    return Bold(text) if _agreed(column) else text


def _agreed(column: list[float]) -> str | None:
    """Sign that all splits agree on; None where they do not agree."""
    return "better" if min(column) > 0 else "worse" if max(column) < 0 else None


def short_table(grid: Grid, datasets: Sequence[str] = DATASETS) -> Table:
    """Clean test scores of complete cells; a cell that is not complete is left out.

    Beside HKN there are the baselines that lead the others in mean test score on one of the datasets at least, and two
    plain ones. The last row counts how many baselines a lead is over. Bold is the highest of all systems, and only
    where every baseline is complete: one that is missing might be higher.

    Args:
        grid: the node table.
        datasets: its columns.

    Returns:
        Systems down, datasets across.
    """
    baselines = [variant for variant in grid.variants if not HKN_LABEL.match(variant)]
    complete = {dataset: grid.complete(dataset) for dataset in datasets}
    leaders = {_leader(cells, baselines) for cells in complete.values()}
    counts = {dataset: sum(variant in cells for variant in baselines) for dataset, cells in complete.items()}
    best = {dataset: grid.best(dataset) if counts[dataset] == len(baselines) else None for dataset in datasets}

    def cell(dataset: str, variant: str) -> str | Bold:
        figures = complete[dataset].get(variant)
        if figures is None:
            return NOTHING
        text = spread_text(grid.table, scaled(figures.test, 100))
        return Bold(text) if best[dataset] == variant else text

    shown = [*OURS, *(variant for variant in baselines if variant in leaders or variant in FOR_SCALE)]
    rows = [(variant, *(cell(dataset, variant) for dataset in datasets)) for variant in shown]
    totals = ("complete baselines", *(f"{counts[dataset]} of {len(baselines)}" for dataset in datasets))
    return Table(("", *datasets), (*rows, totals))


def _leader(cells: dict[str, CellFigures], baselines: Iterable[str]) -> str | None:
    present = [variant for variant in baselines if variant in cells]
    return max(present, key=lambda variant: cells[variant].test.mean, default=None)


def tuning_section(table: str, records: Iterable[StoredRecord]) -> list[Block]:
    """Describe how the systems of a table were tuned; nothing where none was.

    Args:
        table: name of the table.
        records: trials, of this table and others.
    """
    groups: dict[tuple[str, str], list[StoredRecord]] = {}
    for record in records:
        if record["table"] == TUNING + table:
            groups.setdefault((_trials_column(record), record["variant"]), []).append(record)
    if not groups:
        return []
    order = list(CATALOG)
    columns = sorted({column for column, _ in groups}, key=lambda name: (order.index(name.partition(",")[0]), name))
    systems = sorted(
        {system for _, system in groups}, key=lambda label: (label.startswith("HKN"), natural_order(label))
    )
    rows = tuple(
        (system, *(_count_trials(groups.get((column, system), [])) for column in columns)) for system in systems
    )
    return [Heading("Trials of each system", 3), Text(TUNING_EXPLANATION), Table(("system", *columns), rows)]


def _trials_column(record: StoredRecord) -> str:
    return record["dataset"] if record["protocol"] == "clean" else f"{record['dataset']}, {record['protocol']}"


def _count_trials(records: list[StoredRecord]) -> str:
    if not records:
        return NOTHING
    trials = {store.training_identity({**record, "split": 0}) for record in records}
    splits = {record["split"] for record in records}
    failed = len(store.failed(records))
    return f"{len(trials)} x {len(splits)}" + (f", {failed} failed" if failed else "")
