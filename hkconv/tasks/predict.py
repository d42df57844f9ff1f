"""The best training of a run put to use: its predictions, and its network as a program.

Predictions are of the data that were trained on or, of a run on own data, of new ones of the same kind. A table of them
has ``id``, ``class`` and a column ``p_CLASS`` for the probability of each class; of yes-or-no questions ``id`` and a
column ``p_QUESTION`` for each; of numbers ``id`` and ``target``; of links ``source``, ``target`` and ``p`` of the
likeliest that are not there.
"""

import csv
import io
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.data import Data

from hkconv import models
from hkconv.data import GraphDataset, LinkDataset
from hkconv.data.checks import UNKNOWN
from hkconv.data.dataset import link_keys, pairs_of_keys
from hkconv.data.neighbor_sampling import InNeighbors
from hkconv.data.options import ACCURACY, R2, DataOptions
from hkconv.data.own.graphs import OwnGraphs
from hkconv.data.own.labels import TARGET
from hkconv.data.own.loading import prepared_graphs, read_like
from hkconv.data.own.schema import Schema
from hkconv.data.own.smiles_tables import KIND as MOLECULES
from hkconv.data.scaling import Scaling
from hkconv.data.smiles import bond_categories
from hkconv.data.splits import unlinked_pairs
from hkconv.engine.checkpoint import CheckpointInfo, load_checkpoint
from hkconv.engine.devices import find_device
from hkconv.engine.files import make_folder, write_bytes
from hkconv.errors import InputError
from hkconv.models.checkpoint_files import read_config
from hkconv.models.export import export_onnx, export_torch
from hkconv.models.hkn import HKN
from hkconv.models.hyperbolic_network import HyperbolicNetwork
from hkconv.tasks.building import describe_dataset, find_schema, input_sizes, load_dataset
from hkconv.tasks.evaluate import check_same_data
from hkconv.tasks.graph_batches import PackedGraphs
from hkconv.tasks.layerwise import all_neighbor_logits, node_inputs
from hkconv.tasks.recipe import Recipe
from hkconv.tasks.run import read_recipe, read_result, trained_cells
from hkconv.tasks.scoring import NumberScoring, yes_over_no
from hkconv.tasks.summary import CellResult
from hkconv.tasks.tasks import GRAPHS_AT_ONCE, graph_logits, moved, node_logits

SUFFIXES = (".csv", ".parquet")
# The folder of a run's model that was trained on all labels, and what says which training it repeats.
REFIT, REFIT_OF = "refit", "refit_of"
# Of links so many are named, out of so many pairs: those with the most common neighbours, where there are more.
MOST_LINKS = 1000
MOST_PAIRS = 500_000
EXPORTERS = {"torch": export_torch, "onnx": export_onnx}
FORMATS = {".pt2": "torch", ".onnx": "onnx"}


@dataclass(frozen=True)
class ChosenTraining:
    """The training of a run that speaks for it, why it is this one, and the folder of its checkpoint."""

    result: CellResult
    reason: str
    place: Path

    def __str__(self) -> str:
        score = f"validation {self.result.metric} {100 * self.result.val_metric:.1f} %"
        return f"{self.result.cell}, {score}: {self.reason}"


@dataclass(frozen=True, eq=False)
class Predictions:
    """A class and its probabilities, or answers or a number, for every node or graph, or the likeliest new links.

    Args:
        choice: the training that was asked.
        task: ``"node"``, ``"graph"`` or ``"link"``.
        ids: names of nodes or graphs; of the first ends of links.
        classes: the names of the classes, of yes-or-no questions, or of the number; none of links.
        probabilities: (N, C) float64 on the CPU, of questions that of a yes; of links (N, 1); or the numbers, (N, 1).
        metric: that the labels are scored by.
        targets: the second ends of links.
    """

    choice: ChosenTraining
    task: str
    ids: list[str]
    classes: tuple[str, ...]
    probabilities: Tensor
    metric: str = ACCURACY
    targets: tuple[str, ...] | None = None

    @property
    def predicted(self) -> list[str]:
        """The name of the most probable class of each."""
        return [self.classes[number] for number in self.probabilities.argmax(dim=1).tolist()]


@dataclass(frozen=True, eq=False)
class Predictor:
    """The best training of a run on own data, ready to be asked. Not to be asked by two threads at a time.

    Args:
        folder: of the run.
        schema: how data become numbers.
        preparation: what is done to graphs.
        choice: the training.
        info: of its checkpoint.
        network: its model, in evaluation mode.
        by_layer: whether its graph may be too large to be taken at once.
    """

    folder: Path
    schema: Schema
    preparation: DataOptions
    choice: ChosenTraining
    info: CheckpointInfo
    network: torch.nn.Module
    by_layer: bool

    @property
    def is_of_one_graph(self) -> bool:
        """True if what was learned belongs to the nodes of one graph: to rows of its adjacency, or to its embedding."""
        return "num_nodes" in self.info.config or getattr(models.find(self.info.model), "is_of_one_graph", False)

    @property
    def reads_attributes(self) -> bool:
        """True if edges have attributes beside those of bonds."""
        return self.preparation.edge_attributes and self.schema.num_edge_features is not None

    def predict(self, own: OwnGraphs) -> Predictions:
        """The predictions for data that were read by the schema, in their order."""
        if self.is_of_one_graph and own.graphs_digest() != self.schema.graphs_digest:
            raise InputError(
                f"model {self.info.model!r} of run {self.folder} knows the nodes of one graph alone and cannot predict "
                "on a changed one: train another model, or hkn without structure"
            )
        scalings = self.schema.scalings
        scaling = None if scalings is None else scalings[self.choice.result.split]
        targets = self.schema.targets
        target = None if targets is None else targets[self.choice.result.split]
        own = replace(own, metric=self.schema.metric, questions=self.schema.classes)
        graphs = prepared_graphs(own, self.preparation, self.schema.edge_scaling)
        return _predictions(self.choice, self.network, own, graphs, scaling, self.by_layer, target)


def predict_run(
    folder: Path | str, data: str | None = None, *, model: str | None = None, device: str = "auto"
) -> Predictions:
    """Ask the training of a run that :func:`choose_training` names.

    Args:
        folder: a folder that :func:`~hkconv.tasks.run.train_run` made.
        data: a file or folder of the kind that was trained on; labels and splits in it are not looked at. By default
            what was trained on.
        model: the only one whose trainings are considered.
        device: where to compute.

    Returns:
        The predictions, in the order of the data.
    """
    folder = Path(folder)
    recipe = read_recipe(folder)
    if find_schema(folder) is None:
        if data is not None:
            name = recipe.data.dataset
            raise InputError(f"run {folder} was trained on dataset {name!r} and predicts on it: leave the data out")
        return _predict_named(recipe, choose_training(folder, model), device)
    predictor = load_predictor(folder, model=model, device=device)
    place = data or recipe.runtime.data or recipe.data.dataset
    return predictor.predict(read_like(place, predictor.schema, predictor.preparation.missing))


def _predict_named(recipe: Recipe, choice: ChosenTraining, device: str) -> Predictions:
    """Predictions for a dataset of the catalog, whose members are called by their numbers."""
    dataset = load_dataset(recipe)
    network, info = load_checkpoint(choice.place, expected=choice.result.model)
    check_same_data(info.dataset, describe_dataset(dataset), choice.place)
    network.to(find_device(device))
    if isinstance(dataset, GraphDataset):
        graphs = [graph.clone() for graph in dataset.graphs]
        columns: dict[str, Any] = {"num_columns": dataset.num_columns, "num_edge_columns": dataset.num_edge_columns}
        count, classes = len(graphs), dataset.num_questions if dataset.metric != ACCURACY else dataset.num_classes
    else:
        graphs, columns, count = [dataset.graph], {}, dataset.graph.num_nodes
        classes = 0 if isinstance(dataset, LinkDataset) else dataset.num_classes
    ids = list(map(str, range(count)))
    columns["metric"] = ACCURACY if isinstance(dataset, LinkDataset) else dataset.metric
    columns["questions"] = tuple(map(str, range(classes)))
    own = OwnGraphs(dataset.name, "a dataset", dataset.task, graphs, ids, [""] * count, **columns)
    by_layer, scaling = recipe.optim.neighbors is not None, dataset.splits[choice.result.split].scaling
    return _predictions(choice, network, own, graphs, scaling, by_layer)


@torch.no_grad()
def _predictions(
    choice: ChosenTraining,
    network: torch.nn.Module,
    own: OwnGraphs,
    graphs: list[Data],
    scaling: Scaling | None,
    by_layer: bool,
    target: tuple[float, float] | None = None,
) -> Predictions:
    """The predictions of a network for graphs that are prepared but for their scaling; ``own.questions`` has the names
    of classes too."""
    if own.task == "link":
        pairs, logits = _likely_links(network, moved(graphs[0], next(network.parameters()), scaling))
        sources, targets = ([own.ids[number] for number in row] for row in pairs.tolist())
        return Predictions(choice, own.task, sources, (), logits.double().sigmoid()[:, None], targets=tuple(targets))
    logits = _logits(network, own, graphs, scaling, by_layer)
    if not logits.isfinite().all():
        row = int((~logits.isfinite()).any(dim=1).nonzero()[0])
        raise InputError(f"the model's answer for {own.ids[row]!r} is not finite: its features may be out of range")
    logits = logits.double().cpu()
    if target is not None:
        probabilities = NumberScoring(*target).values(logits)
    elif own.metric == ACCURACY:
        probabilities = logits.softmax(dim=1)
    else:
        probabilities = yes_over_no(logits).sigmoid()
    return Predictions(choice, own.task, own.ids, own.questions, probabilities, own.metric)


def _likely_links(network: torch.nn.Module, graph: Data) -> tuple[Tensor, Tensor]:
    """The likeliest links that are not there, the likeliest first, (2, P), and their logits, on the CPU."""
    links = pairs_of_keys(link_keys(graph.edge_index, graph.num_nodes), graph.num_nodes)
    pairs = unlinked_pairs(links.cpu(), graph.num_nodes, MOST_PAIRS)
    logits = network(graph.x, torch.cat([links, links.flip(0)], dim=1), pairs=pairs.to(graph.x.device)).cpu()
    best = logits.topk(min(MOST_LINKS, len(logits))).indices
    return pairs[:, best], logits[best]


def load_predictor(folder: Path | str, *, model: str | None = None, device: str = "auto") -> Predictor:
    """Load the best training of a run on own data, by its validation score.

    Args:
        folder: a folder that :func:`~hkconv.tasks.run.train_run` made.
        model: the only one whose trainings are considered.
        device: where to compute.

    Returns:
        The training, with its network on the device.
    """
    folder = Path(folder)
    recipe = read_recipe(folder)
    schema = find_schema(folder)
    if schema is None:
        name = recipe.data.dataset
        raise InputError(f"run {folder} was trained on dataset {name!r}: this needs a run on own data")
    choice = choose_training(folder, model)
    network, info = load_checkpoint(choice.place, expected=choice.result.model)
    _check_network(info, schema, recipe.data, choice.place)
    by_layer = recipe.optim.neighbors is not None
    return Predictor(folder, schema, recipe.data, choice, info, network.to(find_device(device)), by_layer)


def choose_training(folder: Path | str, model: str | None = None) -> ChosenTraining:
    """The training that predicts, is exported and is explored, the same for all three.

    It is the one with the best validation score among those of HKN, which alone can be exported; without any among
    those of hyperbolic networks, which alone can be explored; else among all.

    Args:
        folder: of the run.
        model: the only one whose trainings are considered.
    """
    folder = Path(folder)
    finished = [read_result(folder, cell) for cell in trained_cells(folder, read_recipe(folder))]
    if not finished:
        raise InputError(f"run {folder} has no finished training; continue it with hkconv train --resume {folder}")
    if model is not None:
        asked = [result for result in finished if result.model == model]
        if not asked:
            found = ", ".join(dict.fromkeys(result.model for result in finished))
            raise InputError(f"run {folder} has no training of model {model!r}, only of {found}")
    else:
        hyperbolic = [result for result in finished if issubclass(models.find(result.model), HyperbolicNetwork)]
        asked = [result for result in finished if result.model == "hkn"] or hyperbolic or finished
    chosen, best = (max(results, key=lambda result: result.val_metric) for results in (asked, finished))
    of_model = [result for result in asked if result.model == chosen.model]
    reason = f"the best of {len(of_model)} trainings" if len(of_model) > 1 else "the only training"
    reason += f" of {chosen.model}"
    if best.val_metric > chosen.val_metric:
        reason += f"; {best.model} reached {100 * best.val_metric:.1f} %, predict --model {best.model} asks it"
    place = folder / REFIT
    if place.exists() and read_config(place)["training"].get(REFIT_OF) == str(chosen.cell):
        return ChosenTraining(chosen, f"{reason}; refitted on all labels", place)
    return ChosenTraining(chosen, reason, folder / chosen.cell.folder)


def _check_network(info: CheckpointInfo, schema: Schema, preparation: DataOptions, place: Path) -> None:
    num_attributes = sum(bond_categories()) if schema.kind == MOLECULES else schema.num_edge_features
    sizes = input_sizes(info.model, schema.num_features, num_attributes if preparation.edge_attributes else None)
    for key, expected in {**sizes, "num_classes": schema.num_logits}.items():
        found = info.config.get(key)
        if found != expected:
            raise InputError(f"checkpoint {place} does not fit the run's data: {key} is {found!r}, expected {expected}")


@torch.no_grad()
def _logits(
    network: torch.nn.Module, own: OwnGraphs, graphs: list[Data], scaling: Scaling | None, by_layer: bool
) -> Tensor:
    reference = next(network.parameters())
    if own.task == "node" and by_layer:
        graph = moved(graphs[0], reference.cpu(), scaling)
        return all_neighbor_logits(network, graph, InNeighbors(graph.edge_index, graph.num_nodes))
    if own.task == "node":
        return node_logits(network, node_inputs(moved(graphs[0], reference, scaling)))
    for graph in graphs:
        graph.y = torch.tensor([UNKNOWN])
    packed = PackedGraphs(graphs, reference, scaling)
    batches = (packed.take(members) for members in torch.arange(len(packed)).split(GRAPHS_AT_ONCE))
    columns = own.num_columns, own.num_edge_columns
    return torch.cat([graph_logits(network, batch, columns, reference.dtype) for batch in batches])


def check_target(path: Path) -> Path:
    """Refuse a file that no predictions can be written to, before they are made."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"out must end in {' or '.join(SUFFIXES)}, got {path}")
    if not path.parent.is_dir():
        raise InputError(f"out {path} cannot be written: folder {path.parent} does not exist")
    if path.suffix == ".parquet":
        _pyarrow()
    return path


def write_predictions(path: Path | str, predictions: Predictions) -> Path:
    """Write a table, whole or not at all.

    Args:
        path: ends in ``.csv`` or ``.parquet``; an older file is replaced.
        predictions: what to write.

    Returns:
        The path.
    """
    path = check_target(Path(path))
    content = _as_parquet(predictions) if path.suffix == ".parquet" else as_csv(predictions).encode()
    write_bytes(path, content, "out")
    return path


def _columns(predictions: Predictions) -> dict[str, list]:
    probabilities = predictions.probabilities.t().tolist()
    if predictions.targets is not None:
        return {"source": predictions.ids, "target": [*predictions.targets], "p": probabilities[0]}
    if predictions.metric == R2:
        return {"id": predictions.ids, TARGET: probabilities[0]}
    named = {f"p_{name}": column for name, column in zip(predictions.classes, probabilities)}
    classes = {"class": predictions.predicted} if predictions.metric == ACCURACY else {}
    return {"id": predictions.ids, **classes, **named}


def as_csv(predictions: Predictions) -> str:
    """A table of predictions, as many digits as a float32 has."""
    columns = _columns(predictions)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values()):
        writer.writerow([f"{value:.9g}" if isinstance(value, float) else value for value in row])
    return text.getvalue()


def _as_parquet(predictions: Predictions) -> bytes:
    pyarrow, parquet = _pyarrow()
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table(_columns(predictions)), buffer)
    return buffer.getvalue()


def _pyarrow() -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise InputError(
            f"Parquet needs PyArrow ({error}): install it with pip install 'hkconv[parquet]', or name a .csv file"
        ) from None
    return pyarrow, parquet


def export_run(folder: Path | str, out: Path | str, format: str | None = None) -> ChosenTraining:
    """Write the HKN with the best validation score of a run as a program.

    It takes features as the network saw them and edges in all their directions; weights of edges if the run's own data
    had some.

    Args:
        folder: a folder that :func:`~hkconv.tasks.run.train_run` made.
        out: the file; an older one is replaced.
        format: ``"torch"`` for ``torch.export.load``, or ``"onnx"``; by default as the file ends, ``.onnx`` or other.

    Returns:
        The training that was exported.
    """
    folder, out = Path(folder), Path(out)
    by_ending = FORMATS.get(out.suffix)
    format = format or by_ending or "torch"
    if format not in EXPORTERS:
        raise InputError(f"format must be {' or '.join(EXPORTERS)}, got {format!r}")
    if by_ending not in (None, format):
        raise InputError(f"out {out} ends as a file of format {by_ending} does, got format {format}")
    choice = choose_training(folder, "hkn")
    model, _ = load_checkpoint(choice.place, expected="hkn")
    schema = find_schema(folder)
    make_folder(out.parent, "out")
    content = EXPORTERS[format](cast(HKN, model), weighted=schema is not None and schema.is_weighted)
    try:
        write_bytes(out, content)
    except OSError as error:
        raise InputError(f"out {out} cannot be written ({error.strerror})") from None
    return choice
