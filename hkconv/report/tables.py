"""Tables of the report: every figure of a table, HKN against the paper, ablations, trials."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from hkconv.data.catalog import CATALOG
from hkconv.data.options import CLEAN, PUBLISHED
from hkconv.experiments import store
from hkconv.experiments.store import RUNTIME, TUNING
from hkconv.experiments.store import Record as StoredRecord
from hkconv.report.collect import HKN, CellFigures, Grid, natural_order, scaled
from hkconv.report.render import Block, Bold, Heading, Table, Text
from hkconv.tasks.summary import Spread

NOTHING = "–"

TrialCounts = Mapping[tuple[str, str], str]

WHOLE = "HKN"
PARTS_EXPLANATION = (
    "Validation score of each variant minus that of HKN, in percentage points, the mean over their splits; "
    "complete cells only. Bold where all splits agree whether it is better or worse; the last two columns count those. "
    "With three splits, one dataset in eight is 'better on all' by chance alone, and one in eight worse."
)
TUNING_EXPLANATION = (
    "What `hkconv tune` tried, on splits whose test part is hidden: '16 x 3' is 16 settings on three splits each. The "
    "settings with the highest mean validation score are those of the tables. All trials on record count, those of "
    "earlier versions of a system too; a failed training is one that diverged or ran out of memory."
)


def figures_table(grid: Grid) -> Table:
    """All figures of a grid; rows that would be empty are left out. Bold is the best complete clean cell."""
    rows: list[tuple[str | Bold, ...]] = []
    best = {dataset: None if grid.quick else grid.best(dataset) for dataset in grid.datasets}
    quick = ", quick" if grid.quick else ""
    # A protocol is a way to divide a dataset, and a time does not depend on it.
    ours = ("ours" if grid.table == RUNTIME else CLEAN) + quick
    for variant in grid.variants:
        clean = [cell_text(grid.table, grid.cell(dataset, CLEAN, variant)) for dataset in grid.datasets]
        kinds: dict[str, Sequence[str | Bold]] = {
            "paper": [_paper_text(grid, dataset, variant) for dataset in grid.datasets],
            PUBLISHED + quick: [cell_text(grid.table, grid.cell(name, PUBLISHED, variant)) for name in grid.datasets],
            ours: [Bold(text) if best[name] == variant else text for name, text in zip(grid.datasets, clean)],
            f"{ours}, AP": [_precision_text(grid.cell(dataset, CLEAN, variant)) for dataset in grid.datasets],
        }
        filled = [kind for kind, texts in kinds.items() if any(text != NOTHING for text in texts)]
        rows += [(variant if kind == filled[0] else "", kind, *kinds[kind]) for kind in filled]
    head = ("system", "", *(column_title(grid, dataset) for dataset in grid.datasets))
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


def _precision_text(cell: CellFigures | None) -> str:
    if cell is None or not cell.precisions:
        return NOTHING
    return spread_text("", scaled(Spread.of(list(cell.precisions.values())), 100))


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


def column_title(grid: Grid, dataset: str) -> str:
    """Name of a dataset, with its metric where that is not the accuracy."""
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


def count_trials(table: str, records: Iterable[StoredRecord]) -> TrialCounts:
    """Count the trials of a table's systems.

    Args:
        table: name of the table.
        records: trials, of this table and others.

    Returns:
        Trials, splits and failures in words, by dataset (with its protocol where that is not the clean one) and system.
    """
    groups: dict[tuple[str, str], list[StoredRecord]] = {}
    for record in records:
        if record["table"] == TUNING + table:
            groups.setdefault((_trials_column(record), record["variant"]), []).append(record)
    return {key: _count_trials(found) for key, found in groups.items()}


def tuning_section(counts: TrialCounts) -> list[Block]:
    """Describe how the systems of a table were tuned; nothing where none was."""
    if not counts:
        return []
    order = list(CATALOG)
    columns = sorted({column for column, _ in counts}, key=lambda name: (order.index(name.partition(",")[0]), name))
    systems = sorted(
        {system for _, system in counts}, key=lambda label: (label.startswith("HKN"), natural_order(label))
    )
    rows = tuple((system, *(counts.get((column, system), NOTHING) for column in columns)) for system in systems)
    return [Heading("Trials of each system", 3), Text(TUNING_EXPLANATION), Table(("system", *columns), rows)]


def _trials_column(record: StoredRecord) -> str:
    return record["dataset"] if record["protocol"] == CLEAN else f"{record['dataset']}, {record['protocol']}"


def _count_trials(records: list[StoredRecord]) -> str:
    trials = {store.training_identity({**record, "split": 0}) for record in records}
    splits = {record["split"] for record in records}
    failed = len(store.failed(records))
    return f"{len(trials)} x {len(splits)}" + (f", {failed} failed" if failed else "")
