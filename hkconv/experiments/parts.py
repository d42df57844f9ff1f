"""What validation data says of each part of HKN: the ablations as differences of the scores a choice may look at."""

from statistics import fmean

from hkconv.experiments.grids import NOTHING, Grid, signed
from hkconv.experiments.pages import Block, Bold, Heading, Table, Text

WHOLE = "HKN"
EXPLANATION = (
    "Validation score of each variant minus that of HKN, in percentage points, the mean over their splits; "
    "complete cells only. Bold where all splits agree whether it is better or worse; the last two columns count those. "
    "With three splits, one dataset in eight is 'better on all' by chance alone, and one in eight worse."
)


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
    rows = tuple(_row(variant, [column.get(variant, []) for column in differences.values()]) for variant in variants)
    head = ("variant", *differences, "better on all splits", "worse on all splits")
    return [Heading("What validation data says of each part", 3), Text(EXPLANATION), Table(head, rows)]


def _row(variant: str, columns: list[list[float]]) -> tuple[str | Bold, ...]:
    agreed = [_agreed(column) for column in columns if column]
    return (variant, *map(_difference, columns), str(agreed.count("better")), str(agreed.count("worse")))


def _difference(column: list[float]) -> str | Bold:
    if not column:
        return NOTHING
    text = signed(100 * fmean(column), 1)
    return Bold(text) if _agreed(column) else text


def _agreed(column: list[float]) -> str | None:
    """What all splits say; None where they do not agree."""
    return "better" if min(column) > 0 else "worse" if max(column) < 0 else None
