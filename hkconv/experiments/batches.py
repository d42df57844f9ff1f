"""Batches of cells: trainings of one architecture on the nodes of one graph, whose networks are trained at once.

They differ in split, seed, learning rate, weight decay and dropout alone. How many are trained at once is no part of
what a training is; with dropout its noise depends on it.
"""

import warnings
from collections import defaultdict
from collections.abc import Hashable, Iterable

import torch

from hkconv.data.catalog import CATALOG
from hkconv.errors import InputError, is_out_of_memory
from hkconv.experiments.pool import SpoiledError
from hkconv.experiments.store import Record
from hkconv.experiments.tables import Execution, TableCell
from hkconv.experiments.training import CellTrainer, Outcome

# On a GPU, unless it is told otherwise: beyond, a small graph gains little.
NETWORKS_AT_ONCE = 60

Batch = tuple[TableCell, ...]


def networks_at_once(place: Execution, device: torch.device) -> int:
    """Return the most networks of a batch: as was asked for, or many on a GPU and one elsewhere."""
    if place.batch is not None:
        return place.batch
    return NETWORKS_AT_ONCE if device.type == "cuda" and not place.capture else 1


def may_spoil(captures: bool, networks: int, device: torch.device) -> bool:
    """Return whether trainings may leave their process of no use: a batch on a GPU is captured without being asked."""
    return captures or (networks > 1 and device.type == "cuda")


def group_cells(cells: Iterable[TableCell], most: int) -> list[Batch]:
    """Return every cell in one batch of at most so many, with cells whose networks can be trained at once."""
    groups: dict[Hashable, list[TableCell]] = defaultdict(list)
    for number, cell in enumerate(cells):
        groups[_architecture(cell) if most > 1 and _takes_all_nodes(cell) else number].append(cell)
    batches = []
    for group in groups.values():
        size = -(-len(group) // -(-len(group) // most))
        batches += [tuple(group[start : start + size]) for start in range(0, len(group), size)]
    return batches


def _takes_all_nodes(cell: TableCell) -> bool:
    data, optim = cell.recipe.data, cell.recipe.optim
    # The task of own data is known once they are loaded, see CellTrainer.train_together.
    task = data.task or (CATALOG[data.dataset].tasks[0] if data.dataset in CATALOG else "node")
    return task == "node" and optim.neighbors is None and optim.precision == "float32"


def _architecture(cell: TableCell) -> Hashable:
    """Equal for cells that differ only in what the networks of a batch may differ in."""
    return cell.recipe.replace(lr=1.0, weight_decay=0.0, dropout=0.0)


class BatchTrainer:
    """Trains batches one after another.

    Args:
        trainer: trains a cell by itself, and several together.
    """

    def __init__(self, trainer: CellTrainer):
        self.trainer = trainer

    def __call__(self, batch: Batch) -> list[Outcome]:
        """Train a batch; what it cannot take, or meets a number in it that is not finite, is trained by itself."""
        return [self.trainer(cell) if record is None else record for cell, record in zip(batch, self.together(batch))]

    def together(self, batch: Batch) -> list[Record | None]:
        """Return the record of each cell of a batch, trained at once; None for one that has to be trained by itself."""
        if len(batch) == 1:
            return [None]
        try:
            return self.trainer.train_together(batch)
        except SpoiledError:
            raise
        except InputError:  # of the data, which each of them will say
            return [None] * len(batch)
        # Whatever else it is, single trainings go without, or say what is wrong in a record of their own.
        except Exception as error:
            if not is_out_of_memory(error):
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                warnings.warn(f"{batch[0].variant}: {len(batch)} trainings go one by one, {reason}", stacklevel=3)
                return [None] * len(batch)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        middle = len(batch) // 2
        return self.together(batch[:middle]) + self.together(batch[middle:])
