"""The best training of a run put to use: its predictions on data that people bring, and its network as a program.

Predictions are of the data that were trained on, or of new ones of the same kind. A table of them has ``id``, ``class``
and a column ``p_CLASS`` for the probability of each class.
"""

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import cast

import torch
from torch import Tensor
from torch_geometric.data import Data

from hkconv import models
from hkconv.data.checks import UNKNOWN
from hkconv.data.neighbor_sampling import InNeighbors
from hkconv.data.options import DataOptions
from hkconv.data.own.graphs import OwnGraphs
from hkconv.data.own.loading import prepared_graphs, read_like
from hkconv.data.own.schema import Schema
from hkconv.engine.checkpoint import CheckpointInfo, load_checkpoint
from hkconv.engine.devices import find_device
from hkconv.engine.files import make_folder, write_bytes
from hkconv.errors import InputError
from hkconv.models.export import export_onnx, export_torch
from hkconv.models.hkn import HKN
from hkconv.tasks.building import find_schema
from hkconv.tasks.graph_batches import PackedGraphs
from hkconv.tasks.layerwise import all_neighbor_logits, node_inputs
from hkconv.tasks.run import read_recipe, read_result, trained_cells
from hkconv.tasks.summary import CellResult
from hkconv.tasks.tasks import GRAPHS_AT_ONCE, graph_logits, moved

SUFFIXES = (".csv", ".parquet")
EXPORTERS = {"torch": export_torch, "onnx": export_onnx}


@dataclass(frozen=True, eq=False)
class Predictions:
    """A class and its probabilities for every node or graph.

    Args:
        result: the training that was asked.
        task: ``"node"`` or ``"graph"``.
        ids: their names.
        classes: the names of the classes.
        probabilities: (N, C) float64 on the CPU.
    """

    result: CellResult
    task: str
    ids: list[str]
    classes: tuple[str, ...]
    probabilities: Tensor

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
        result: the training.
        info: of its checkpoint.
        network: its model, in evaluation mode.
        by_layer: whether its graph may be too large to be taken at once.
    """

    folder: Path
    schema: Schema
    preparation: DataOptions
    result: CellResult
    info: CheckpointInfo
    network: torch.nn.Module
    by_layer: bool

    @property
    def is_of_one_graph(self) -> bool:
        """True if what was learned belongs to the nodes of one graph: to rows of its adjacency, or to its embedding."""
        return "num_nodes" in self.info.config or getattr(models.find(self.info.model), "is_of_one_graph", False)

    def predict(self, own: OwnGraphs) -> Predictions:
        """The predictions for data that were read by the schema, in their order."""
        if self.is_of_one_graph and own.graphs_digest() != self.schema.graphs_digest:
            raise InputError(
                f"model {self.info.model!r} of run {self.folder} knows the nodes of one graph alone and cannot predict "
                "on a changed one: train another model, or hkn without structure"
            )
        logits = _logits(self.network, own, prepared_graphs(own, self.preparation), self.by_layer)
        if not logits.isfinite().all():
            row = int((~logits.isfinite()).any(dim=1).nonzero()[0])
            raise InputError(f"the model's answer for {own.ids[row]!r} is not finite: its features may be out of range")
        probabilities = logits.double().softmax(dim=1).cpu()
        return Predictions(self.result, self.schema.task, own.ids, self.schema.classes, probabilities)


def predict_run(folder: Path | str, data: str, *, model: str | None = None, device: str = "auto") -> Predictions:
    """Ask the best training of a run on own data, by its validation score, about data of the same kind.

    Args:
        folder: a folder that :func:`~hkconv.tasks.run.train_run` made.
        data: a file or folder; labels and splits in it are not looked at.
        model: the only one whose trainings are considered.
        device: where to compute.

    Returns:
        The predictions, in the order of the data.
    """
    predictor = load_predictor(folder, model=model, device=device)
    return predictor.predict(read_like(data, predictor.schema))


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
        raise InputError(f"run {folder} was trained on dataset {name!r}: prediction needs a run on own data")
    result = best_training(folder, model)
    place = folder / result.cell.folder
    network, info = load_checkpoint(place, expected=result.model)
    _check_network(info, schema, place)
    by_layer = recipe.optim.neighbors is not None
    return Predictor(folder, schema, recipe.data, result, info, network.to(find_device(device)), by_layer)


def best_training(folder: Path, model: str | None = None) -> CellResult:
    """The training of a run with the best validation score.

    Args:
        folder: of the run.
        model: the only one whose trainings are considered.
    """
    finished = [read_result(folder, cell) for cell in trained_cells(folder, read_recipe(folder))]
    if not finished:
        raise InputError(f"run {folder} has no finished training; continue it with hkconv train --resume {folder}")
    asked = [result for result in finished if model in (None, result.model)]
    if not asked:
        found = ", ".join(dict.fromkeys(result.model for result in finished))
        raise InputError(f"run {folder} has no training of model {model!r}, only of {found}")
    return max(asked, key=lambda result: result.val_metric)


def _check_network(info: CheckpointInfo, schema: Schema, place: Path) -> None:
    for key, expected in (("in_features", schema.num_features), ("num_classes", len(schema.classes))):
        found = info.config.get(key)
        if found != expected:
            raise InputError(f"checkpoint {place} does not fit the run's data: {key} is {found!r}, expected {expected}")


@torch.no_grad()
def _logits(network: torch.nn.Module, own: OwnGraphs, graphs: list[Data], by_layer: bool) -> Tensor:
    reference = next(network.parameters())
    if own.task == "node" and by_layer:
        graph = moved(graphs[0], reference.cpu())
        return all_neighbor_logits(network, graph, InNeighbors(graph.edge_index, graph.num_nodes))
    if own.task == "node":
        return network(*node_inputs(moved(graphs[0], reference)))
    for graph in graphs:
        graph.y = torch.tensor([UNKNOWN])
    packed = PackedGraphs(graphs, reference)
    batches = (packed.take(members) for members in torch.arange(len(packed)).split(GRAPHS_AT_ONCE))
    return torch.cat([graph_logits(network, batch, own.num_columns, reference.dtype) for batch in batches])


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
    content = _as_parquet(predictions) if path.suffix == ".parquet" else _as_csv(predictions)
    write_bytes(path, content, "out")
    return path


def _columns(predictions: Predictions) -> dict[str, list]:
    probabilities = predictions.probabilities.t().tolist()
    named = {f"p_{name}": column for name, column in zip(predictions.classes, probabilities)}
    return {"id": predictions.ids, "class": predictions.predicted, **named}


def _as_csv(predictions: Predictions) -> bytes:
    columns = _columns(predictions)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    # As many digits as a float32 has.
    written = [
        [f"{value:.9g}" for value in column] if name.startswith("p_") else column for name, column in columns.items()
    ]
    writer.writerows(zip(*written))
    return text.getvalue().encode()


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


def export_run(folder: Path | str, out: Path | str, format: str = "torch") -> CellResult:
    """Write the HKN with the best validation score of a run as a program.

    It takes features as the network saw them and edges in all their directions; weights of edges if the run's own data
    had some.

    Args:
        folder: a folder that :func:`~hkconv.tasks.run.train_run` made.
        out: the file; an older one is replaced.
        format: ``"torch"`` for ``torch.export.load``, or ``"onnx"``.

    Returns:
        The training that was exported.
    """
    folder, out = Path(folder), Path(out)
    if format not in EXPORTERS:
        raise InputError(f"format must be {' or '.join(EXPORTERS)}, got {format!r}")
    result = best_training(folder, "hkn")
    model, _ = load_checkpoint(folder / result.cell.folder, expected="hkn")
    schema = find_schema(folder)
    make_folder(out.parent, "out")
    content = EXPORTERS[format](cast(HKN, model), weighted=schema is not None and schema.is_weighted)
    try:
        write_bytes(out, content)
    except OSError as error:
        raise InputError(f"out {out} cannot be written ({error.strerror})") from None
    return result
