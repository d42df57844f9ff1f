"""Arrays of one graph, as an ``.npz`` file or a saved PyG graph holds them, checked before anything is made of them."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from hkconv.data.own.graphs import OwnGraphs
from hkconv.data.own.labels import TARGET, Labels, answers, numbers
from hkconv.data.own.tables import cell_text
from hkconv.data.split_files import parts_of_masks
from hkconv.data.untrusted_files import read_arrays
from hkconv.errors import InputError

KIND = "arrays"
NUMBERS = "biuf"
WHOLE_NUMBERS = "iu"
NAMES = "iufUS"
# As the archives of Platonov et al. (2023) call them; their edges are rows.
OTHER_NAMES = {"node_features": "x", "node_labels": "y"}
MASKS = tuple(f"{part}_mask{end}" for part in ("train", "val", "test") for end in ("", "s"))
KNOWN = ("x", "edge_index", "edges", "edge_weight", "edge_attr", "y", "ids", *OTHER_NAMES, *MASKS)


def graph_of_arrays(arrays: Mapping[str, np.ndarray], place: str) -> Data:
    """Features and edges.

    Args:
        arrays: ``x`` (N, F) of numbers, ``edge_index`` (2, E) of whole numbers and, if edges have weights,
            ``edge_weight`` (E,), if they have attributes ``edge_attr`` (E, D) or (E,).
        place: how an error calls the arrays.

    Returns:
        The graph, in float32 and int64.
    """
    for name in ("x", "edge_index"):
        if name not in arrays:
            raise InputError(f"{place} must hold {name}, got {', '.join(arrays) or 'nothing'}")
    x = finite_numbers(arrays["x"], f"x of {place}", dims=2)
    if 0 in x.shape:
        raise InputError(f"x of {place} must have at least one node and one feature, got shape {x.shape}")
    edges = arrays["edge_index"]
    if edges.dtype.kind not in WHOLE_NUMBERS or edges.ndim != 2 or edges.shape[0] != 2:
        raise InputError(f"edge_index of {place} must be whole numbers of shape (2, edges), got {_what(edges)}")
    outside = (edges < 0) | (edges >= len(x))
    if outside.any():
        column = int(outside.any(axis=0).argmax())
        ends = tuple(edges[:, column].tolist())
        raise InputError(f"edge_index of {place} must stay within [0, {len(x)}), but column {column} is {ends}")
    graph = Data(x=torch.from_numpy(x), edge_index=torch.from_numpy(np.ascontiguousarray(edges, dtype=np.int64)))
    if "edge_weight" in arrays:
        graph.edge_weight = torch.from_numpy(_weights(arrays["edge_weight"], edges.shape[1], place))
    if "edge_attr" in arrays:
        graph.edge_attr = torch.from_numpy(_attributes(arrays["edge_attr"], edges.shape[1], place))
    return graph


def labels_of_array(y: np.ndarray, count: int, place: str) -> Labels:
    """The labels of ``count`` members.

    Args:
        y: (N,) classes: whole numbers, negative where unknown, or names; (N,) or (N, 1) floats to predict, NaN where
            unknown; or (N, T) answers to T yes-or-no questions, 0, 1 or NaN.
        count: N.
        place: how an error calls the arrays.
    """
    shape, kind = y.shape, y.dtype.kind
    if len(shape) == 2 and shape[0] == count and shape[1] > 0 and kind in NUMBERS:
        # Of one column that is not of floats these are two classes.
        if (np.isin(y, (0, 1)) | (y != y)).all() and (shape[1] > 1 or kind == "f"):
            return answers(y.astype(np.float64), [str(number) for number in range(shape[1])])
        if shape[1] > 1:
            raise InputError(f"y of {place} has {shape[1]} columns: they must be answers to questions, 0, 1 or nan")
        y = y[:, 0]
    if y.shape != (count,) or kind not in "biufU":
        raise InputError(f"y of {place} must be {count} numbers or names, got {_what(y)}")
    if kind == "f":
        if (np.isin(y, (0, 1)) | np.isnan(y)).all():
            raise InputError(f"y of {place} are floats of 0 and 1 alone: make them whole numbers, which are classes")
        finite_numbers(np.nan_to_num(y, nan=0, posinf=np.inf, neginf=-np.inf), f"y of {place}", dims=1)
        return numbers(y.astype(np.float32), TARGET)
    if kind == "U":
        return Labels([cell_text(name) for name in y.tolist()])
    return Labels(["" if label < 0 else str(int(label)) for label in y.tolist()])


def ids_of_array(ids: np.ndarray, count: int, place: str) -> list[str]:
    """The names of ``count`` members, all different."""
    if ids.shape != (count,) or ids.dtype.kind not in NAMES:
        raise InputError(f"ids of {place} must be {count} numbers or names, got {_what(ids)}")
    values = np.char.decode(ids, "utf-8", "replace") if ids.dtype.kind == "S" else ids
    names = [cell_text(value) for value in values.tolist()]
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if not name:
            raise InputError(f"ids of {place}: that of row {index} is empty")
        if name in first:
            raise InputError(f"ids of {place}: {name!r} of row {index} was already in row {first[name]}")
        first[name] = index
    return names


def finite_numbers(values: np.ndarray, owner: str, dims: int) -> np.ndarray:
    """The values in float32, where all of them are finite.

    Args:
        values: unchecked.
        owner: how an error calls them.
        dims: how many dimensions they must have.

    Returns:
        The numbers, in the same shape.
    """
    if values.dtype.kind not in NUMBERS or values.ndim != dims:
        raise InputError(f"{owner} must be numbers in {dims} dimensions, got {_what(values)}")
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(values, dtype=np.float32)
    if not np.isfinite(single).all():
        spot = np.argwhere(~np.isfinite(single))[0].tolist()
        where = ", ".join(f"{name} {number}" for name, number in zip(("row", "column"), spot))
        raise InputError(f"{owner} must be finite numbers, but {where} is {values[tuple(spot)]}")
    return single


def _weights(values: np.ndarray, count: int, place: str) -> np.ndarray:
    weights = finite_numbers(values, f"edge_weight of {place}", dims=1)
    if len(weights) != count:
        raise InputError(f"edge_weight of {place} must have a weight for each of {count} edges, got {len(weights)}")
    if (weights < 0).any():
        row = int((weights < 0).argmax())
        raise InputError(f"edge_weight of {place} must be at least 0, but row {row} is {weights[row]}")
    return weights


def _attributes(values: np.ndarray, count: int, place: str) -> np.ndarray:
    owner = f"edge_attr of {place}"
    attributes = finite_numbers(values[:, None] if values.ndim == 1 else values, owner, dims=2)
    if len(attributes) != count or not attributes.shape[1]:
        raise InputError(f"{owner} must have a row of numbers for each of {count} edges, got {_what(values)}")
    return attributes


def _what(values: np.ndarray) -> str:
    return f"{values.dtype} of shape {values.shape}"


def read_archive(path: Path) -> OwnGraphs:
    """Read the arrays of one graph.

    Args:
        path: an ``.npz`` file with ``x`` (N, F), ``edge_index`` (2, E) or ``edges`` (E, 2) and, where there are some,
            ``y``, see :func:`labels_of_array`; ``edge_weight`` (E,); ``edge_attr``
            (E, D); ``ids`` (N,); ``train_mask``, ``val_mask`` and ``test_mask``, (N,) or (S, N) for S splits. Other
            arrays are not read.

    Returns:
        The graph.
    """
    arrays = _load(path)
    place = str(path)
    graph = graph_of_arrays(arrays, place)
    count = graph.num_nodes
    labels = labels_of_array(arrays["y"], count, place) if "y" in arrays else Labels([""] * count)
    ids = ids_of_array(arrays["ids"], count, place) if "ids" in arrays else list(map(str, range(count)))
    splits = parts_of_masks(arrays, count, place) if any(name in arrays for name in MASKS) else None
    return graphs_with_labels(place, "node", [graph], ids, labels, splits)


def graphs_with_labels(
    place: str,
    task: str,
    graphs: list[Data],
    ids: list[str],
    labels: Labels,
    splits: list[dict[str, Tensor]] | None = None,
) -> OwnGraphs:
    """Graphs of arrays with what was found of their labels."""
    words, metric, names = labels
    return OwnGraphs(place, KIND, task, graphs, ids, words, splits, metric=metric, questions=names)


def _load(path: Path) -> dict[str, np.ndarray]:
    found = {OTHER_NAMES.get(name, name): array for name, array in read_arrays(path, str(path), KNOWN).items()}
    if "edges" in found and "edge_index" not in found:
        found["edge_index"] = found.pop("edges").T
    return found
