"""HKN against its baselines under the clean protocol: both chosen by validation, compared on the same splits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from hkconv.data.options import CLEAN
from hkconv.experiments.store import read
from hkconv.report.collect import (
    HKN,
    HKN_LABEL,
    CellFigures,
    CellKey,
    Collected,
    Grid,
    collect_cells,
    natural_order,
    read_plan,
)
from hkconv.report.render import Block, Bold, Heading, Items, Table, Text
from hkconv.report.statistics import CHANCE, PairedTest, paired_test, rounded
from hkconv.report.tables import NOTHING, TrialCounts, column_title, count_text, signed, spread_text

LINKS = "links"
VERDICTS = ("ahead beyond chance", "within chance", "behind beyond chance")
CAUTION = (
    "HKN against the best baseline. Chosen by validation are HKN's form and the baseline with the highest mean "
    "validation score under the clean protocol, complete cells only; test scores have no part in it. Systems that are "
    "no longer trained have no part in it either, and HKN (flat), the control in Euclidean space, is a baseline. The "
    "difference is HKN's test score minus the baseline's, in percentage points, paired over the same splits. Splits of "
    "a dataset share members, so the paired t test and Wilcoxon's signed-rank test (exact, two-sided) are optimistic. "
    "The corrected p and the 95 % interval are those of the corrected resampled t test of Nadeau and Bengio (2003), "
    "with the sizes of test and training set; an interval or p marked 'plain' has no correction, because the records "
    "do not have these sizes. Where the pairs are seeds of one split, as of molecules, there is nothing to correct, "
    "and the test says nothing of other splits. No p is adjusted for the number of datasets. The highest mean test "
    "score is seen after the fact: nobody could have chosen it."
)
SUMMARY = "HKN against its baselines"
SUMMARY_EXPLANATION = (
    "Mean test scores under the clean protocol in percent; in bold the form of HKN that validation chooses. 'Above' "
    "counts the baselines whose mean test score is higher than that form's. The next column compares it with the "
    "baseline that validation chooses: difference, 95 % interval and corrected p. 'Trials' are the settings tried for "
    "each system times the splits of one; where systems differ, all counts are given. 'Complete' counts the planned "
    "systems that have all trainings of their recipe; what the others lack is named below the table. Cells with "
    "trainings missing take no part in a choice."
)
LINKS_EXPLANATION = (
    "ROC-AUC, in parentheses the average precision of the test part. The figures of HGCN and HyboNet after the slash "
    "are the ROC-AUC that their authors print, with divisions of the links of their own."
)


@dataclass(frozen=True)
class Contest:
    """HKN and its baselines on one dataset.

    Args:
        grid: the table.
        dataset: its dataset.
        ours, baselines: complete cells by variant, without the systems that are no longer trained.
        partial: cells that are not complete.
        missing: planned systems without a record.
        outdated: systems whose records are of another recipe than the planned one; they take part.
    """

    grid: Grid
    dataset: str
    ours: Mapping[str, CellFigures]
    baselines: Mapping[str, CellFigures]
    partial: Mapping[str, CellFigures]
    missing: Sequence[str]
    outdated: Sequence[str]

    @property
    def cells(self) -> dict[str, CellFigures]:
        """All cells by variant."""
        return {**self.ours, **self.baselines, **self.partial}

    @property
    def decided(self) -> bool:
        """True if there is something to compare."""
        return bool(self.ours and self.baselines)

    @property
    def complete(self) -> bool:
        """True if every planned system has all its trainings, with the planned recipe."""
        return self.decided and not (self.partial or self.missing or self.outdated)

    @property
    def mine(self) -> str:
        """The form of HKN that validation chooses."""
        return _best_by_validation(self.ours)

    @property
    def yours(self) -> str:
        """The baseline that validation chooses."""
        return _best_by_validation(self.baselines)

    @property
    def ahead(self) -> dict[str, float]:
        """The baselines above HKN in mean test score and by how much, the highest first."""
        own = self.ours[self.mine].test.mean
        found = {variant: rounded(cell.test.mean - own) for variant, cell in self.baselines.items()}
        return dict(sorted(((name, gap) for name, gap in found.items() if gap > 0), key=lambda item: -item[1]))

    @property
    def over_seeds(self) -> bool:
        """True if pairs are seeds of one split."""
        return self.ours[self.mine].splits == 1

    def difference(self, rival: str) -> float:
        """Mean test score of :attr:`mine` minus that of a baseline, whether or not they can be paired."""
        return self.ours[self.mine].test.mean - self.baselines[rival].test.mean

    def test(self, rival: str) -> PairedTest | None:
        """Compare :attr:`mine` with a baseline; None where they have fewer than two pairs."""
        ours, theirs = self.ours[self.mine], self.baselines[rival]
        shared = sorted(ours.tests.keys() & theirs.tests.keys())
        if len(shared) < 2 or self.over_seeds != (theirs.splits == 1):
            return None
        # Seeds of one split are no resampling of the data, so there is nothing to correct.
        ratio = 0.0 if self.over_seeds else ours.test_to_train
        return paired_test([ours.tests[unit] for unit in shared], [theirs.tests[unit] for unit in shared], ratio)


def find_contests(grid: Grid, collected: Collected) -> list[Contest]:
    """The contests of a table, one for every dataset that is planned or has a record under the clean protocol.

    Args:
        grid: the table's cells.
        collected: what is planned and not there, and what is there and no longer planned.
    """
    retired = collected.retired.get(grid.table, ())

    def variants(places: Sequence[CellKey], dataset: str) -> list[str]:
        return [place.variant for place in places if place[:4] == (grid.table, dataset, CLEAN, grid.quick)]

    contests = []
    for dataset in grid.datasets:
        found = {variant: grid.cell(dataset, CLEAN, variant) for variant in grid.variants if variant not in retired}
        cells = {variant: cell for variant, cell in found.items() if cell is not None}
        complete = {variant: cell for variant, cell in cells.items() if cell.complete}
        contest = Contest(
            grid=grid,
            dataset=dataset,
            ours={variant: cell for variant, cell in complete.items() if cell.model == HKN},
            baselines={variant: cell for variant, cell in complete.items() if cell.model != HKN},
            partial={variant: cell for variant, cell in cells.items() if not cell.complete},
            missing=variants(collected.missing, dataset),
            outdated=variants(collected.outdated, dataset),
        )
        if cells or contest.missing:
            contests.append(contest)
    return contests


def against_baselines(contests: Sequence[Contest]) -> list[Block]:
    """The contests of one table with their validation scores and all tests; nothing where none is decided."""
    decided = [contest for contest in contests if contest.decided]
    if not decided:
        return []
    head = (
        *("dataset", "HKN by validation", "validation", "test"),
        *("baseline by validation", "validation", "test"),
        *("difference", "95 % interval", "p corrected", "p paired t", "p Wilcoxon", "pairs", "highest mean test score"),
    )
    return [
        Heading("HKN against the best baseline under the clean protocol", 3),
        Table(head, tuple(map(_details, decided))),
        Items(tuple(map(_verdict, decided))),
    ]


def summary(
    contests: Mapping[str, Sequence[Contest]], titles: Mapping[str, str], trials: Mapping[str, TrialCounts]
) -> list[Block]:
    """All contests, a row a dataset, and what they come to.

    Args:
        contests: by table.
        titles: of the tables.
        trials: how many trials each system had, by table.

    Returns:
        Blocks; none where nothing is on record.
    """
    everything = [contest for found in contests.values() for contest in found]
    on_record = {table: [contest for contest in found if contest.cells] for table, found in contests.items()}
    if not any(on_record.values()):
        return []
    blocks: list[Block] = [Heading(SUMMARY), Text(SUMMARY_EXPLANATION), Items(tuple(_tally(everything)))]
    for table, found in on_record.items():
        if found:
            blocks += [Heading(titles[table], 3), *([Text(LINKS_EXPLANATION)] if table == LINKS else [])]
            blocks += [_summary_table(found, trials.get(table, {}))]
            blocks += [Items(notes)] if (notes := _not_complete(found)) else []
    return blocks


def read_contests(folder: Path, tables: Sequence[str]) -> list[Contest]:
    """The contests of some tables from the results store, held against the plan.

    Args:
        folder: of the results.
        tables: their names; one without a record has none.
    """
    plan = read_plan(tables)
    collected = collect_cells(read(folder, tables)[0], plan.trainings)
    grids = [Grid(table, False, collected.cells, plan.paper.get(table, {})) for table in tables]
    return [contest for grid in grids for contest in find_contests(grid, collected)]


def standing(contests: Sequence[Contest], beside: Sequence[str]) -> Table:
    """Standing of HKN beside some systems and beside the baseline that validation chooses; decided contests only.

    Args:
        contests: of any tables.
        beside: systems that a reader knows.

    Returns:
        Datasets with their differences in percentage points, a row a verdict.
    """
    columns = []
    for name in (*beside, None):
        column: dict[str, list[str]] = {verdict: [] for verdict in VERDICTS}
        for contest in contests:
            rival = contest.yours if name is None and contest.decided else name
            if contest.ours and rival is not None and rival in contest.baselines:
                test, difference = contest.test(rival), contest.difference(rival)
                sign = (difference > 0) - (difference < 0) if test is not None and test.beyond_chance else 0
                dataset = f"links of {contest.dataset}" if contest.grid.table == LINKS else contest.dataset
                column[VERDICTS[1 - sign]].append(f"{dataset} {signed(100 * difference, 1)}")
        columns.append(column)
    head = ("HKN is", *(f"beside {name}" for name in beside), "beside the baseline that validation chooses")
    return Table(head, tuple((row, *(", ".join(column[row]) or NOTHING for column in columns)) for row in VERDICTS))


def _best_by_validation(cells: Mapping[str, CellFigures]) -> str:
    return max(cells, key=lambda variant: cells[variant].val.mean)


def _details(contest: Contest) -> tuple[str | Bold, ...]:
    """Row of :func:`against_baselines`."""
    sides = ((contest.mine, contest.ours), (contest.yours, contest.baselines))
    systems = [
        text
        for name, cells in sides
        for text in (name, _percent(cells[name].val.mean), _percent(cells[name].test.mean))
    ]
    everyone = {**contest.baselines, **contest.ours}
    best = max(everyone, key=lambda variant: everyone[variant].test.mean)
    highest = Bold(f"{best} {_percent(everyone[best].test.mean)}")
    test = contest.test(contest.yours)
    if test is None:
        return (
            contest.dataset,
            *systems,
            signed(100 * contest.difference(contest.yours), 2),
            *[NOTHING] * 4,
            "too few",
            highest,
        )
    return (
        contest.dataset,
        *systems,
        signed(100 * test.difference, 2),
        _interval(test) + (", plain" if test.p_corrected is None else ""),
        NOTHING if test.p_corrected is None else _p(test.p_corrected),
        _p(test.p_plain),
        _p(test.p_ranks),
        f"{test.pairs} {'seeds' if contest.over_seeds else 'splits'}",
        highest,
    )


def _verdict(contest: Contest) -> str:
    ahead, count = contest.ahead, len(contest.baselines)
    if not ahead:
        return f"{contest.dataset}: {contest.mine} is at or above every baseline in mean test score ({count} compared)"
    listed = ", ".join(f"{variant} by {100 * distance:.2f}" for variant, distance in ahead.items())
    return f"{contest.dataset}: {contest.mine} is below {len(ahead)} of {count} baselines in mean test score: {listed}"


def _not_complete(contests: Sequence[Contest]) -> tuple[str, ...]:
    """Name what each dataset lacks, those that lack the same together."""
    groups: dict[str, list[str]] = {}
    for contest in contests:
        partial = [f"{variant} ({count_text(cell)})" for variant, cell in contest.partial.items()]
        for label, names in (
            ("not complete and left out of the choice", partial),
            ("no record", contest.missing),
            ("of another recipe than planned", contest.outdated),
        ):
            if names:
                groups.setdefault(f"{label}: {', '.join(names)}", []).append(contest.dataset)
    return tuple(f"{', '.join(datasets)}: {text}" for text, datasets in groups.items())


def _tally(contests: Sequence[Contest]) -> list[str]:
    """Count the datasets where HKN is at the top or behind; those that are not complete apart."""
    kinds = {
        "with every planned system complete": [contest for contest in contests if contest.complete],
        "that lack planned systems": [contest for contest in contests if contest.decided and not contest.complete],
    }
    lines = []
    for kind, found in kinds.items():
        tests = [(contest, contest.test(contest.yours)) for contest in found]
        sure = [(contest, test.difference) for contest, test in tests if test and test.beyond_chance]
        lines.append(
            f"Datasets {kind}: {len(found)}. HKN, in the form that validation chooses, is at or above every "
            f"baseline on {_listed([contest for contest in found if not contest.ahead])}. Against the baseline that "
            f"validation chooses it is behind beyond chance (corrected p below {CHANCE}) on "
            f"{_listed([contest for contest, difference in sure if difference < 0])} and ahead beyond chance on "
            f"{_listed([contest for contest, difference in sure if difference > 0])}."
        )
    undecided = [contest for contest in contests if not contest.decided]
    return [*lines, f"Datasets without a complete HKN and a complete baseline: {_listed(undecided)}."]


def _listed(contests: Sequence[Contest]) -> str:
    names = ", ".join(f"{contest.grid.table} {contest.dataset}" for contest in contests)
    return f"{len(contests)} ({names})" if names else "none"


def _summary_table(contests: Sequence[Contest], trials: TrialCounts) -> Table:
    grid = contests[0].grid
    names = [name for contest in contests for name in (*contest.ours, *contest.partial, *contest.missing)]
    forms = [name for name in dict.fromkeys(names) if HKN_LABEL.match(name)]
    # Elsewhere the paper's figures are of other splits and procedures.
    printed = list(dict.fromkeys(name for systems in grid.paper.values() for name in systems))
    printed = printed if grid.table == LINKS else []
    against = "against the baseline that validation chooses"
    head = ("dataset", "trials", *forms, *printed, "highest baseline", "above", against, "complete")
    return Table(head, tuple(_summary_row(contest, forms, printed, trials) for contest in contests))


def _summary_row(
    contest: Contest, forms: Sequence[str], printed: Sequence[str], trials: TrialCounts
) -> tuple[str | Bold, ...]:
    def text(name: str) -> str:
        cell = contest.cells.get(name)
        if cell is None or not cell.tests:
            return NOTHING
        return _score(cell) if cell.complete else f"{_score(cell)}, {count_text(cell)}"

    def beside(name: str) -> str:
        figure = contest.grid.paper_figure(contest.dataset, name)
        return f"{text(name)} / {spread_text(contest.grid.table, figure) if figure else NOTHING}"

    whole = (*contest.ours, *contest.baselines)
    counts = {trials.get((contest.dataset, name), "none").partition(",")[0] for name in whole}
    best = max(contest.baselines, key=lambda name: contest.baselines[name].test.mean, default=None)
    return (
        column_title(contest.grid, contest.dataset),
        " or ".join(sorted(counts, key=natural_order)) or NOTHING,
        *(Bold(text(name)) if contest.ours and name == contest.mine else text(name) for name in forms),
        *map(beside, printed),
        NOTHING if best is None else f"{best} {_score(contest.baselines[best])}",
        f"{len(contest.ahead)} of {len(contest.baselines)}" if contest.decided else NOTHING,
        _against(contest) if contest.decided else NOTHING,
        f"{sum(name not in contest.outdated for name in whole)} of {len(contest.cells) + len(contest.missing)}",
    )


def _against(contest: Contest) -> str:
    test = contest.test(contest.yours)
    if test is None:
        return f"{contest.yours}: {signed(100 * contest.difference(contest.yours), 2)}, too few pairs"
    p = f"{_p(test.p_plain)}, plain" if test.p_corrected is None else _p(test.p_corrected)
    return f"{contest.yours}: {signed(100 * test.difference, 2)} ({_interval(test)}), p {p}"


def _score(cell: CellFigures) -> str:
    """Mean test score, of links with the average precision."""
    precision = f" ({_percent(fmean(cell.precisions.values()))})" if cell.precisions else ""
    return _percent(cell.test.mean) + precision


def _interval(test: PairedTest) -> str:
    return f"{signed(100 * test.low, 2)} to {signed(100 * test.high, 2)}"


def _percent(value: float) -> str:
    return f"{100 * value:.2f}"


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"
