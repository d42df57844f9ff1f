"""A run that can be asked, loaded once: its graph, what it says of the nodes of that, and its model for what is new."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from hkconv.data.own.graphs import OwnGraphs
from hkconv.data.own.loading import read_like
from hkconv.data.own.schema import Schema
from hkconv.data.own.smiles_tables import KIND as MOLECULES
from hkconv.data.own.smiles_tables import molecule_graph
from hkconv.errors import InputError
from hkconv.serving.limits import Limits
from hkconv.serving.posted import graphs_of, with_new_nodes
from hkconv.serving.refusals import RefusalError
from hkconv.tasks.predict import Predictions, Predictor, load_predictor
from hkconv.tasks.run import read_recipe


@dataclass(frozen=True, eq=False)
class Service:
    """A run that can be asked. Of its methods only :meth:`NodeService.nodes` may be called by two threads at a time.

    Args:
        predictor: the training that is asked.
    """

    predictor: Predictor

    @property
    def schema(self) -> Schema:
        """How data become numbers."""
        return self.predictor.schema


@dataclass(frozen=True, eq=False)
class NodeService(Service):
    """A run for the node task.

    Args:
        own: the graph.
        predictions: what the run says of its nodes.
        numbers: of the nodes, by name.
    """

    own: OwnGraphs
    predictions: Predictions
    numbers: dict[str, int]

    @property
    def takes_new_nodes(self) -> bool:
        """Whether the model can be asked about a graph that has changed."""
        return not self.predictor.is_of_one_graph

    def nodes(self, ids: Sequence[str]) -> Predictions:
        """What the run says of nodes of its graph, in the order of ``ids``."""
        unknown = [name for name in ids if name not in self.numbers]
        if unknown:
            raise RefusalError(404, f"the graph has no node {unknown[0]!r}")
        return _taken(self.predictions, [self.numbers[name] for name in ids])

    def new_nodes(self, nodes: Sequence[dict[str, Any]], edges: Sequence[dict[str, Any]] = ()) -> Predictions:
        """What the run says of new nodes, in the graph that they and their edges are added to for this answer alone.

        Args:
            nodes, edges: see :func:`~hkconv.serving.posted.with_new_nodes`.
        """
        grown = with_new_nodes(self.own, self.numbers, nodes, edges)
        first = len(self.own.ids)
        return _taken(self.predictor.predict(grown), range(first, first + len(nodes)))


class GraphService(Service):
    """A run for the graph task."""

    def graphs(self, graphs: Sequence[dict[str, Any]], limits: Limits) -> Predictions:
        """What the run says of graphs, see :func:`~hkconv.serving.posted.graphs_of`."""
        return self.predictor.predict(graphs_of(graphs, self.schema, limits))


def load_service(
    folder: Path | str, *, data: str | None = None, model: str | None = None, device: str = "auto"
) -> NodeService | GraphService:
    """Load a run on own data and ask it once, which compiles what must be compiled.

    Args:
        folder: a folder that :func:`~hkconv.tasks.run.train_run` made.
        data: the graph whose nodes are asked for, a file or folder; by default what was trained on.
        model: the only one whose trainings are considered.
        device: where to compute.

    Returns:
        The run, ready to be asked.
    """
    predictor = load_predictor(folder, model=model, device=device)
    if predictor.schema.task == "node":
        recipe = read_recipe(folder)
        own = read_like(data or recipe.data or recipe.dataset, predictor.schema)
        numbers = {name: number for number, name in enumerate(own.ids)}
        return NodeService(predictor, own, predictor.predict(own), numbers)
    if data is not None:
        raise InputError(f"data is the graph of a node task, but run {folder} is for the graph task: leave it out")
    predictor.predict(_smallest_graphs(predictor.schema))
    return GraphService(predictor)


def _smallest_graphs(schema: Schema) -> OwnGraphs:
    """Something to ask before a client does: two nodes and their link."""
    if schema.kind == MOLECULES:
        graph, num_columns = molecule_graph("CC", "ethane")[0], schema.num_features
    else:
        graph, num_columns = (
            Data(x=torch.zeros(2, schema.num_features), edge_index=torch.tensor([[0, 1], [1, 0]])),
            None,
        )
        if schema.is_weighted:
            graph.edge_weight = torch.ones(2)
    return OwnGraphs("two nodes", schema.kind, "graph", [graph], ["0"], [""], num_columns=num_columns)


def _taken(predictions: Predictions, rows: Sequence[int]) -> Predictions:
    chosen = [predictions.ids[row] for row in rows]
    return replace(predictions, ids=chosen, probabilities=predictions.probabilities[torch.as_tensor(rows)])
