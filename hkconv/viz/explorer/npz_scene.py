"""What an explorer page shows of points that somebody saved with :func:`numpy.savez`.

Keys of the file:

``points``
    ``(N, n+1)`` points of the Lorentz model, time first. Several layers are saved as ``points/NAME``, in their order.
``curvature``
    One negative number, -1 if absent.
``labels``, ``predictions``
    ``(N,)`` whole numbers, -1 for none.
``edges``
    ``(2, E)`` pairs of nodes.
``names``, ``class_names``
    Text, one a node and one a class.
``centers``, ``kernel``
    ``(C, n+1)`` points of the classes, and ``(K, n+1)`` kernel points around the origin; with layers ``centers/NAME``
    and ``kernel/NAME``.

All but ``points`` may be absent.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hkconv.data.plain_arrays import read_arrays
from hkconv.errors import InputError, did_you_mean
from hkconv.viz.explorer.scene import Layer, Scene

PER_LAYER = ("points", "centers", "kernel")
PER_FILE = ("curvature", "labels", "predictions", "edges", "names", "class_names")
SINGLE_LAYER = "points"


def read_npz_scene(path: Path | str) -> Scene:
    """The scene of a file with the keys above. Nothing from the file is executed: pickled arrays are refused."""
    path = Path(path)
    arrays = read_arrays(path, str(path))
    _check_keys(arrays, path)
    names = [key.partition("/")[2] or SINGLE_LAYER for key in arrays if key.partition("/")[0] == "points"]
    if not names:
        raise InputError(f"{path} has no embeddings: it needs a key 'points' of shape (N, n+1), or 'points/NAME'")
    curvature = _curvature(arrays, path)
    return Scene(
        title=path.stem,
        layers=tuple(_layer(arrays, name, curvature, path) for name in names),
        labels=_numbers(arrays, "labels", path),
        predictions=_numbers(arrays, "predictions", path),
        edges=_numbers(arrays, "edges", path),
        names=_texts(arrays, "names", path),
        class_names=_texts(arrays, "class_names", path) or (),
    )


def _check_keys(arrays: dict[str, np.ndarray], path: Path) -> None:
    for key in arrays:
        kind, _, layer = key.partition("/")
        if key not in PER_FILE and kind not in PER_LAYER:
            raise InputError(f"{path} has an unknown key {key!r}; {did_you_mean(key, (*PER_LAYER, *PER_FILE))}")
        if layer and f"points/{layer}" not in arrays:
            raise InputError(f"{path} has a key {key!r} but no 'points/{layer}'")


def _layer(arrays: dict[str, np.ndarray], name: str, curvature: float, path: Path) -> Layer:
    found: dict[str, Any] = {
        kind: _numbers(arrays, kind if name == SINGLE_LAYER else f"{kind}/{name}", path) for kind in PER_LAYER
    }
    return Layer(name, curvature=curvature, **found)


def _numbers(arrays: dict[str, np.ndarray], key: str, path: Path) -> Tensor | None:
    if key not in arrays:
        return None
    given = arrays[key]
    if given.dtype.kind == "u":
        # PyTorch computes with no other unsigned type than bytes.
        given = given.astype(np.int64)
    if given.dtype.kind not in "if":
        raise InputError(f"{key} in {path} must be numbers, got an array of {given.dtype}")
    # In the machine's order of bytes: a file from another machine may differ.
    return torch.from_numpy(np.ascontiguousarray(given, given.dtype.newbyteorder("=")))


def _texts(arrays: dict[str, np.ndarray], key: str, path: Path) -> tuple[str, ...] | None:
    if key not in arrays:
        return None
    if arrays[key].ndim != 1:
        raise InputError(f"{key} in {path} must be a list of texts, got shape {arrays[key].shape}")
    return tuple(str(text) for text in arrays[key].tolist())


def _curvature(arrays: dict[str, np.ndarray], path: Path) -> float:
    given = arrays.get("curvature", np.float64(-1))
    if given.size != 1 or given.dtype.kind not in "iuf" or not -np.inf < given.item() < 0:
        raise InputError(f"curvature in {path} must be one negative number, got {given.tolist()}")
    return float(given.item())
