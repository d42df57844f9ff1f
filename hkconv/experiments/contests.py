"""HKN against the baselines and the paper: who was chosen how, by how much they differ, and how sure that is."""

from collections.abc import Mapping
from typing import cast

from hkconv.experiments.cells import HKN, CellFigures
from hkconv.experiments.comparison import paired_test, rounded
from hkconv.experiments.grids import CLEAN, NOTHING, PUBLISHED, Grid, cell_text, count_text, signed, spread_text
from hkconv.experiments.pages import Block, Bold, Heading, Items, Table, Text

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
            rows[-1] += (*_test_texts(ours[mine], baselines[yours]), _highest(grid, dataset, complete))
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


def _highest(grid: Grid, dataset: str, complete: Mapping[str, CellFigures]) -> Bold:
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
