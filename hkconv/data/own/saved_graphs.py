"""PyG graphs saved with ``torch.save``, read without running anything that a file could bring along.

A pickle is a program. ``torch.load(weights_only=True)`` runs it with a list of allowed names, but PyTorch and PyG add
names of their own to that list, and among them are classes that open files when they are built. So the names in the
pickle are looked at first, and any that a graph of tensors does not need is refused.
"""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from hkconv.data.own.arrays import NUMBERS, graph_of_arrays, graphs_with_labels, ids_of_array, labels_of_array
from hkconv.data.own.graphs import OwnGraphs
from hkconv.data.own.labels import Labels
from hkconv.data.split_files import PART_NAMES, parts_of_masks
from hkconv.data.untrusted_files import check_pickle
from hkconv.errors import InputError
from hkconv.opening import read_bytes

GRAPH_CLASSES = (Data, DataEdgeAttr, DataTensorAttr, GlobalStorage)
STORAGES = ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
ALLOWED = {
    "collections OrderedDict",
    "torch._utils _rebuild_tensor_v2",
    *(f"torch {name}Storage" for name in STORAGES),
    *(f"{kind.__module__} {kind.__name__}" for kind in GRAPH_CLASSES),
}
MASKS = tuple(f"{name}_mask" for name in PART_NAMES)
GRAPH_ARRAYS = ("x", "edge_index", "edge_weight", "edge_attr")


def read_saved_graphs(path: Path) -> OwnGraphs:
    """Read a graph or a list of graphs.

    Args:
        path: a file that ``torch.save`` made of one PyG ``Data`` (node task) or of a list of them (graph task). What
            is read are ``x``, ``edge_index``, ``edge_weight``, ``edge_attr``, ``y``, ``ids`` and the three masks, and
            nothing else.

    Returns:
        The graphs.
    """
    saved = _load(path)
    if isinstance(saved, Data):
        return _one_graph(saved, str(path))
    if not isinstance(saved, list | tuple) or not saved or not all(isinstance(graph, Data) for graph in saved):
        raise InputError(f"{path} must hold a PyG Data or a list of them, got {_what(saved)}")
    return _many_graphs(list(saved), str(path))


def _load(path: Path) -> Any:
    try:
        file = io.BytesIO(read_bytes(path))
        _check_names(file, str(path))
        file.seek(0)
        # At its end the context takes back all that it was given, PyG's own names too if they were among it.
        known = torch.serialization.get_safe_globals()
        with torch.serialization.safe_globals([kind for kind in GRAPH_CLASSES if kind not in known]):
            return torch.load(file, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or 'damaged'})") from None
    # Damaged archives and pickles fail with whatever error comes first.
    except Exception as error:
        raise InputError(f"{path} is not a file of torch.save, or is damaged ({type(error).__name__})") from None


def _check_names(file: io.BytesIO, place: str) -> None:
    with zipfile.ZipFile(file) as archive:
        programs = [entry for entry in archive.infolist() if entry.filename.endswith(".pkl")]
        for program in programs:
            check_pickle(archive.read(program), ALLOWED, place)


def _one_graph(saved: Data, place: str) -> OwnGraphs:
    graph = graph_of_arrays(_arrays(saved, GRAPH_ARRAYS, place), place)
    count = graph.num_nodes
    known = _arrays(saved, ("y", "ids", *MASKS), place)
    labels = labels_of_array(known["y"], count, place) if "y" in known else Labels([""] * count)
    # PyG has a column of a mask for each split, split files have a row.
    masks = {name: known[name].T for name in MASKS if name in known}
    splits = parts_of_masks(masks, count, place) if masks else None
    return graphs_with_labels(place, "node", [graph], _ids(known, count, place), labels, splits)


def _many_graphs(saved: list[Data], place: str) -> OwnGraphs:
    graphs: list[Data] = []
    labels: list[np.ndarray | None] = []
    ids: list[str] = []
    for number, found in enumerate(saved):
        owner = f"graph {number} of {place}"
        graphs.append(graph_of_arrays(_arrays(found, GRAPH_ARRAYS, owner), owner))
        known = _arrays(found, ("y", "ids"), owner)
        labels.append(known.get("y"))
        ids += ids_of_array(known["ids"].reshape(-1), 1, owner) if "ids" in known else [str(number)]
        if graphs[-1].x.size(1) != graphs[0].x.size(1):
            raise InputError(f"{owner} has {graphs[-1].x.size(1)} features, but graph 0 has {graphs[0].x.size(1)}")
        if ("edge_weight" in graphs[-1]) != ("edge_weight" in graphs[0]):
            raise InputError(f"{owner} and graph 0 must both have an edge_weight, or neither")
        if _width(graphs[-1]) != _width(graphs[0]):
            raise InputError(f"{owner} and graph 0 must have as many columns of edge_attr, or both none")
    names = ids_of_array(np.array(ids), len(ids), place)
    return graphs_with_labels(place, "graph", graphs, names, _labels_of_graphs(labels, place))


def _labels_of_graphs(found: list[np.ndarray | None], place: str) -> Labels:
    """The labels of graphs, each with its ``y``, a class, a number or a row of answers, or None."""
    known = [y.reshape(-1) for y in found if y is not None]
    rows = [np.full(known[0].shape, np.nan) if y is None else y.reshape(-1) for y in found] if known else []
    if any(row.shape != rows[0].shape for row in rows):
        number = next(number for number, row in enumerate(rows) if row.shape != rows[0].shape)
        raise InputError(f"y of graph {number} of {place} has {len(rows[number])} entries, but graph 0 {len(rows[0])}")
    if known and all(row.dtype.kind in NUMBERS for row in known) and (len(rows[0]) > 1 or known[0].dtype.kind == "f"):
        return labels_of_array(np.stack(rows), len(rows), place)
    owners = [f"graph {number} of {place}" for number in range(len(found))]
    each = [[""] if y is None else labels_of_array(y.reshape(-1), 1, owner).words for y, owner in zip(found, owners)]
    return Labels([word for words in each for word in words])


def _width(graph: Data) -> int | None:
    return None if graph.edge_attr is None else graph.edge_attr.size(1)


def _arrays(saved: Data, names: tuple[str, ...], place: str) -> dict[str, np.ndarray]:
    """Values of those of these names that exist, as arrays."""
    try:
        found = {name: saved[name] for name in names if name in saved and saved[name] is not None}
        return {name: _array(value, f"{name} of {place}") for name, value in found.items()}
    except InputError:
        raise
    # The state of an object in a pickle need not be one that its class could have.
    except Exception as error:
        raise InputError(f"{place} is not a sound PyG graph ({type(error).__name__})") from None


def _array(value: Any, owner: str) -> np.ndarray:
    if isinstance(value, Tensor):
        if value.layout != torch.strided or value.is_quantized or value.device.type != "cpu":
            raise InputError(f"{owner} must be a plain tensor, got one of {value.layout} on {value.device}")
        return (value.float() if value.dtype == torch.bfloat16 else value).detach().numpy()
    if isinstance(value, float):
        return np.array([value])
    if isinstance(value, str | int):
        value = [value]
    if isinstance(value, list) and all(isinstance(entry, str | int) for entry in value):
        return np.array(list(map(str, value)), dtype=str)
    raise InputError(f"{owner} must be a tensor or a list of names, got {type(value).__name__}")


def _ids(known: dict[str, np.ndarray], count: int, place: str) -> list[str]:
    return ids_of_array(known["ids"], count, place) if "ids" in known else list(map(str, range(count)))


def _what(saved: Any) -> str:
    if isinstance(saved, list | tuple):
        kinds = sorted({type(entry).__name__ for entry in saved})
        return f"a {type(saved).__name__} of {', '.join(kinds) or 'nothing'}"
    return type(saved).__name__
