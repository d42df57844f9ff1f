"""How long the rest of a table will take, judged by what has been trained."""

from collections import defaultdict
from collections.abc import Iterable

from hkconv.data.catalog import CATALOG
from hkconv.experiments.store import Record
from hkconv.experiments.tables import TableCell


class TimeLeft:
    """Learns from every record how long trainings take.

    A training is taken to last as long as others of its model on its dataset; where there are none, of its dataset;
    where there are none of these, in proportion to the nodes and edges of its dataset.

    Args:
        records: of earlier trainings; those that failed are passed over.
    """

    def __init__(self, records: Iterable[Record] = ()):
        self.sums: dict[tuple[str, ...], list[float]] = defaultdict(lambda: [0.0, 0])
        for record in records:
            self.learn(record)

    def learn(self, record: Record) -> None:
        """Take one more training into account."""
        if "error" in record:
            return
        dataset, seconds, quick = record["dataset"], record["seconds"], str(record["quick"])
        for key in ((dataset, record["model"], quick), (dataset, quick)):
            self._add(key, seconds)
        self._add((quick,), seconds / _size(dataset))

    def estimate(self, cells: Iterable[TableCell], processes: int) -> float | None:
        """Seconds until some cells are trained by some processes; None as long as nothing is known."""
        expected = [self._expected(cell) for cell in cells]
        known = [seconds for seconds in expected if seconds is not None]
        return sum(known) / processes if len(known) == len(expected) else None

    def _add(self, key: tuple[str, ...], value: float) -> None:
        self.sums[key][0] += value
        self.sums[key][1] += 1

    def _mean(self, key: tuple[str, ...]) -> float | None:
        if key not in self.sums:
            return None
        total, count = self.sums[key]
        return total / count

    def _expected(self, cell: TableCell) -> float | None:
        dataset, quick = cell.recipe.data.dataset, str(cell.quick)
        for key in ((dataset, cell.training.model, quick), (dataset, quick)):
            if key in self.sums:
                return self._mean(key)
        rate = self._mean((quick,))
        return None if rate is None else rate * _size(dataset)


def _size(dataset: str) -> int:
    facts = CATALOG[dataset].facts
    return facts.nodes + facts.edges
