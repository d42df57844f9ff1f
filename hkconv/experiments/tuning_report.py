"""The part of the report that says how settings were chosen: how many trials each system had, and how many failed."""

from collections.abc import Iterable

from hkconv.data.catalog import CATALOG
from hkconv.experiments import store
from hkconv.experiments.grids import NOTHING, natural_order
from hkconv.experiments.pages import Block, Heading, Table, Text
from hkconv.experiments.store import TUNING, Record

EXPLANATION = (
    "What `hkconv tune` tried, on splits whose test part is hidden: '16 x 3' is 16 settings on three splits each. The "
    "settings with the highest mean validation score are those of the tables. All trials on record count, those of "
    "earlier versions of a system too; a failed training is one that diverged or ran out of memory."
)


def tuning_section(table: str, records: Iterable[Record]) -> list[Block]:
    """How the systems of a table were tuned; nothing where none was.

    Args:
        table: name of the table.
        records: trials, of this table and others.
    """
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record["table"] == TUNING + table:
            groups.setdefault((_column(record), record["variant"]), []).append(record)
    if not groups:
        return []
    order = list(CATALOG)
    columns = sorted({column for column, _ in groups}, key=lambda name: (order.index(name.partition(",")[0]), name))
    systems = sorted(
        {system for _, system in groups}, key=lambda label: (label.startswith("HKN"), natural_order(label))
    )
    rows = tuple((system, *(_cell(groups.get((column, system), [])) for column in columns)) for system in systems)
    return [Heading("Trials of each system", 3), Text(EXPLANATION), Table(("system", *columns), rows)]


def _column(record: Record) -> str:
    return record["dataset"] if record["protocol"] == "clean" else f"{record['dataset']}, {record['protocol']}"


def _cell(records: list[Record]) -> str:
    if not records:
        return NOTHING
    trials = {store.training_identity({**record, "split": 0}) for record in records}
    splits = {record["split"] for record in records}
    failed = len(store.failed(records))
    return f"{len(trials)} x {len(splits)}" + (f", {failed} failed" if failed else "")
