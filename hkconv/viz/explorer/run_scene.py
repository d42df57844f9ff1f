"""Scene of a training run: the points of every layer of its best hyperbolic network."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor
from torch_geometric.loader import DataLoader

from hkconv import models
from hkconv.data import GraphDataset, LinkDataset, LinkSplit, Split
from hkconv.data.options import ACCURACY
from hkconv.engine.checkpoint import load_checkpoint
from hkconv.errors import InputError
from hkconv.geometry.curvature import LearnedCurvature, curvature_value
from hkconv.geometry.hyperboloid import lift, rescale
from hkconv.models.hyperbolic_network import HyperbolicNetwork
from hkconv.models.readout import Readout
from hkconv.nn import HDistance, HKBlock
from hkconv.nn.centroid import pool_with_mass
from hkconv.nn.hk_conv import KernelConv
from hkconv.tasks.building import describe_dataset, load_dataset
from hkconv.tasks.evaluate import check_same_data
from hkconv.tasks.predict import choose_training
from hkconv.tasks.run import read_recipe, trained_cells
from hkconv.tasks.summary import CellResult
from hkconv.tasks.tasks import GRAPHS_AT_ONCE, Dataset, graph_inputs, moved
from hkconv.viz.explorer.scene import PARTS, Layer, Scene


def read_run_scene(folder: Path | str, data: str | None = None) -> Scene:
    """The scene of the training of a run that predicts too, see :func:`hkconv.tasks.predict.choose_training`.

    In a graph task a point is a whole graph, the centroid of its nodes, and there are no edges. In a link task the
    edges are those that messages pass over. Graphs that answer yes-or-no questions have no class.

    Predictions are the network's own. Every layer that it reads has the class centres of its readout; where there are
    several, the answer follows from their sum, the note says so, and the nearest centre of one layer may be another.

    Args:
        folder: a folder that :func:`~hkconv.tasks.run.train_run` made.
        data: folder of the datasets; by default the one the run used.

    Returns:
        The scene.
    """
    folder = Path(folder)
    recipe = read_recipe(folder)
    if data is not None:
        recipe = recipe.replace(data=data)
    choice = choose_training(folder)
    best = choice.result
    if not issubclass(models.find(best.model), HyperbolicNetwork):
        found = ", ".join(dict.fromkeys(cell.model for cell in trained_cells(folder, recipe)))
        able = ", ".join(name for name, kind in models.MODELS.items() if issubclass(kind, HyperbolicNetwork))
        raise InputError(f"run {folder} has no hyperbolic embeddings: it trained {found}; train one of {able}")
    model, info = load_checkpoint(choice.place, expected=best.model)
    dataset = load_dataset(recipe)
    check_same_data(info.dataset, describe_dataset(dataset), choice.place)
    return network_scene(cast(HyperbolicNetwork, model), dataset, best)


@torch.no_grad()
def network_scene(model: HyperbolicNetwork, dataset: Dataset, result: CellResult) -> Scene:
    """The scene of a trained network.

    Args:
        model: the network, on the CPU.
        dataset: what it was trained on.
        result: of its training: which split, and what it came to.
    """
    split = dataset.splits[result.split]
    seen = _look(model.eval(), dataset, split)
    note = f"split {result.split}, seed {result.seed}, validation {result.metric} {100 * result.val_metric:.1f}\u00a0%"
    if model.layers_read > 1:
        note += f"; answers are read off {model.layers_read} layers together"
    return Scene(
        title=f"{dataset.name} · {result.model}",
        note=note,
        layers=_layers(model, seen.points, with_centers=seen.labels is not None and dataset.task != "link"),
        labels=seen.labels,
        predictions=seen.predictions,
        parts=None if isinstance(split, LinkSplit) else _parts(split, seen.points[0].size(0)),
        edges=seen.edges,
        names=dataset.ids,
        class_names=() if isinstance(dataset, LinkDataset) or dataset.schema is None else dataset.schema.classes,
    )


@dataclass(frozen=True, eq=False)
class _Seen:
    """Points and outputs of a network on a dataset: points of each layer, and what belongs to each point."""

    points: list[Tensor]
    labels: Tensor | None
    predictions: Tensor | None
    edges: Tensor | None


def _look(model: HyperbolicNetwork, dataset: Dataset, split: Split | LinkSplit) -> _Seen:
    if isinstance(dataset, GraphDataset):
        return _look_at_graphs(model, dataset, split)
    graph = moved(dataset.graph, next(model.parameters()), split.scaling)
    if isinstance(dataset, LinkDataset):
        edges = cast(LinkSplit, split).message_edges
        return _Seen(model.layer_points(graph.x, edges), dataset.graph.y, None, edges)
    points = model.layer_points(**graph_inputs(model, graph, (None, None), graph.x.dtype))
    if dataset.metric != ACCURACY:
        return _Seen(points, None, None, dataset.graph.edge_index)
    predictions = model.read_layers(points, None, None, None).argmax(1)
    return _Seen(points, dataset.labels, predictions, dataset.graph.edge_index)


def _look_at_graphs(model: HyperbolicNetwork, dataset: GraphDataset, split: Split | LinkSplit) -> _Seen:
    reference = next(model.parameters())
    readouts, curvatures = _readouts(model), _curvatures(model)
    pooled, predictions = [], []
    for batch in DataLoader(dataset.graphs, GRAPHS_AT_ONCE):
        columns = dataset.num_columns, dataset.num_edge_columns
        batch.x = batch.x if split.scaling is None else split.scaling(batch.x)
        points = model.layer_points(**graph_inputs(model, batch, columns, reference.dtype))
        pooled.append(
            [
                _pool(readout, found, batch.batch, batch.num_graphs, curvature)
                for readout, found, curvature in zip(readouts, points, curvatures)
            ]
        )
        predictions.append(model.read_layers(points, batch.batch, batch.num_graphs, None).argmax(1))
    points = [torch.cat(parts) for parts in zip(*pooled)]
    if dataset.metric != ACCURACY:
        return _Seen(points, None, None, None)
    return _Seen(points, dataset.labels, torch.cat(predictions), None)


def _pool(readout: Readout | None, points: Tensor, batch: Tensor, size: int, curvature: float) -> Tensor:
    """One point a graph: what the readout of the layer compares with its centres, on the layer's hyperboloid."""
    if readout is None or readout.pool_mass is None:
        return pool_with_mass(points, batch, size, curvature=curvature)[0]
    own = curvature_value(readout.read_curvature)
    pooled, mass = pool_with_mass(rescale(points, curvature, own), batch, size, curvature=own)
    return rescale(readout.pool_mass(pooled, mass, own), own, curvature)


def _readouts(model: HyperbolicNetwork) -> list[Readout | None]:
    """Readouts that compare each layer with class centers, the embedding first; None where nothing does."""
    found = [] if model.classifier is not None else [*getattr(model, "early_readouts", ()), model]
    return [None] * (len(model.convs) + 1 - len(found)) + found


def _curvatures(model: HyperbolicNetwork) -> list[float]:
    return [curvature_value(layer.curvature) for layer in (model.embedding, *model.convs)]


def _layers(model: HyperbolicNetwork, points: list[Tensor], with_centers: bool) -> tuple[Layer, ...]:
    curvatures = _curvatures(model)
    readouts = _readouts(model) if with_centers else [None] * len(points)
    names = ["embedding", *(f"layer {number}" for number in range(1, len(points)))]
    return tuple(
        Layer(name, found, curvature, _centers(readout, curvature), _kernel(conv, curvature))
        for name, found, curvature, readout, conv in zip(names, points, curvatures, readouts, [*model.convs, None])
    )


def _centers(readout: Readout | None, curvature: float) -> Tensor | None:
    if readout is None:
        return None
    distance = cast(HDistance, readout.distance)
    return _carried(distance.centers, distance.curvature, curvature)


def _kernel(conv: torch.nn.Module | None, curvature: float) -> Tensor | None:
    """The kernel points of the layer that reads a place, on the hyperboloid of that place."""
    if isinstance(conv, HKBlock):
        return _kernel(conv.conv, curvature)
    return _carried(conv.points, conv.curvature, curvature) if isinstance(conv, KernelConv) else None


def _carried(points: Tensor, own: float | Tensor | LearnedCurvature, curvature: float) -> Tensor:
    """Points of a layer's own hyperboloid on another. As in the layer, their time follows its curvature."""
    own = curvature_value(own)
    return rescale(lift(points.detach()[:, 1:].double(), own), own, curvature)


def _parts(split: Split, size: int) -> Tensor:
    """The number of each node's part in :data:`~hkconv.viz.explorer.scene.PARTS`, -1 for none."""
    parts = torch.full((size,), -1)
    for name, members in split.parts.items():
        parts[members] = PARTS.index(name)
    return parts
