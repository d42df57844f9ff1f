"""Many trainings of one architecture on the nodes of one graph, as one batch of networks."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from hkconv.data import NodeDataset, Split
from hkconv.data.options import ACCURACY
from hkconv.engine.many import ManyTask, train_many
from hkconv.engine.reproducibility import seed_everything
from hkconv.tasks.building import model_config
from hkconv.tasks.layerwise import node_inputs
from hkconv.tasks.recipe import Recipe
from hkconv.tasks.run import build_cell, cell_result
from hkconv.tasks.summary import Cell, CellResult
from hkconv.tasks.tasks import moved


class ManyNodeTask(ManyTask):
    """Node classification by several networks: :class:`~hkconv.tasks.tasks.NodeTask` of one graph and many splits.

    Args:
        dataset: graph and labels.
        splits: one for each network, all with the same scaling.
        reference: a tensor with the device and the floating-point type that the features are brought to.
    """

    metric = ACCURACY

    def __init__(self, dataset: NodeDataset, splits: Sequence[Split], reference: Tensor):
        graph = moved(dataset.graph, reference, splits[0].scaling)
        self.inputs, self.y = node_inputs(graph), graph.y
        self.has_test = all(split.test is not None for split in splits)
        parts = {name: [split.parts[name] for split in splits] for name in splits[0].parts}
        # Short parts are filled up with node 0, which does not count.
        self.nodes = {name: pad_sequence(nodes, batch_first=True).to(reference.device) for name, nodes in parts.items()}
        self.counts = {name: torch.tensor([*map(len, nodes)]).to(reference.device) for name, nodes in parts.items()}

    def answers(self, network: Callable[..., Tensor]) -> Tensor:
        return network(*self.inputs)

    def losses(self, outputs: Tensor, part: str, networks: Tensor) -> Tensor:
        logits, labels, counted = self._of_part(outputs, part, networks)
        losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)
        return torch.where(counted, losses, 0).sum(1) / self.counts[part][networks]

    def metrics(self, outputs: Tensor, part: str, networks: Tensor) -> Tensor:
        logits, labels, counted = self._of_part(outputs, part, networks)
        return ((logits.argmax(-1) == labels) & counted).sum(1).double() / self.counts[part][networks]

    def _of_part(self, outputs: Tensor, part: str, networks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits and labels of a part of each network's nodes, and which of them count."""
        nodes = self.nodes[part][networks]
        logits = outputs.gather(1, nodes.unsqueeze(-1).expand(-1, -1, outputs.size(-1)))
        place = torch.arange(nodes.size(1), device=nodes.device)
        return logits, self.y[nodes], place < self.counts[part][networks].unsqueeze(1)


def train_cells(
    cells: Sequence[Cell], recipes: Sequence[Recipe], dataset: NodeDataset, device: torch.device
) -> list[CellResult | None]:
    """Train cells together, by :func:`~hkconv.engine.many.train_many`, each as one alone would be.

    Args:
        cells: which trainings, of one model.
        recipes: how to train each; they differ in ``lr``, ``weight_decay`` and ``dropout`` alone. ``deterministic`` is
            the caller's to heed.
        dataset: of all of them; its nodes have classes.
        device: where to train.

    Returns:
        The scores of each; None for one that has to be trained by itself.
    """
    configs = [model_config(recipe, cell.model, dataset) for cell, recipe in zip(cells, recipes)]
    built = [build_cell(cell, recipe, config, device) for cell, recipe, config in zip(cells, recipes, configs)]
    networks, settings = [network for network, _ in built], [own for _, own in built]
    splits = [dataset.splits[cell.split] for cell in cells]
    task = ManyNodeTask(dataset, splits, next(networks[0].parameters()))
    seed_everything(settings[0].seed)
    outcomes = train_many(networks, task, settings, [recipe.model.dropout for recipe in recipes])
    return [
        None if outcome is None else cell_result(cell, outcome, network)
        for cell, outcome, network in zip(cells, outcomes, networks)
    ]
