"""Scene of an explorer page: points layer by layer, and labels, names and edges of the nodes; checked here."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hkconv.data.untrusted_files import read_arrays
from hkconv.errors import InputError, did_you_mean
from hkconv.geometry.checks import check_points, debug
from hkconv.geometry.hyperboloid import lift

PARTS = ("train", "val", "test")
PER_LAYER = ("points", "centers", "kernel")
PER_FILE = ("curvature", "labels", "predictions", "edges", "names", "class_names")
SINGLE_LAYER = "points"


@dataclass(frozen=True, eq=False)
class Layer:
    """The points of all nodes at one place of a network.

    Args:
        name: how the page calls it.
        points: one a node, ``(N, n+1)``, time first.
        curvature: of the hyperboloid that all points here lie on.
        centers: one a class, ``(C, n+1)``, or None.
        kernel: kernel points of the convolution that reads this layer, around the origin, ``(K, n+1)``, or None.
    """

    name: str
    points: Tensor
    curvature: float = -1.0
    centers: Tensor | None = None
    kernel: Tensor | None = None

    def __post_init__(self) -> None:
        if self.points.dim() != 2 or self.points.size(1) < 2 or self.points.size(0) == 0:
            raise InputError(
                f"points of layer {self.name!r} must have shape (N, n+1), time first, got {tuple(self.points.shape)}"
            )
        for name in ("points", "centers", "kernel"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, self._checked(given, f"{name} of layer {self.name!r}"))

    def _checked(self, points: Tensor, name: str) -> Tensor:
        """The points in float64, back on the hyperboloid but for its own rounding."""
        if points.dim() != 2:
            raise InputError(f"{name} must have two dimensions, got shape {tuple(points.shape)}")
        if not points.is_floating_point():
            points = points.double()
        if points.dtype not in {torch.float32, torch.float64}:
            points = points.float()
        with debug():
            check_points(points, self.points.size(1) - 1, self.curvature, name)
        return lift(points[:, 1:].double(), self.curvature)


@dataclass(frozen=True, eq=False)
class Scene:
    """Everything an explorer page shows of one embedding.

    Args:
        title: heading of the page.
        layers: at least one, all of the same nodes.
        labels: class of each node, ``(N,)``, -1 where unknown; or None.
        predictions: predicted class of each node, ``(N,)``, -1 where there is none; or None.
        parts: 0, 1, 2 for a node to train, choose or test with, -1 for neither, ``(N,)``; or None.
        edges: pairs of nodes, ``(2, E)``; directions, repeats and loops are not shown.
        names: of the nodes; by default their numbers.
        class_names: by default ``class 0`` and so on.
        note: a line below the title.
    """

    title: str
    layers: tuple[Layer, ...]
    labels: Tensor | None = None
    predictions: Tensor | None = None
    parts: Tensor | None = None
    edges: Tensor | None = None
    names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        if not self.layers:
            raise InputError("there are no points to show: at least one layer is needed")
        for layer in self.layers:
            if layer.points.size(0) != self.num_nodes:
                raise InputError(
                    f"all layers must have the points of the same nodes: {self.layers[0].name!r} has {self.num_nodes}, "
                    f"{layer.name!r} has {layer.points.size(0)}"
                )
        for name in ("labels", "predictions", "parts"):
            self._check_numbers(getattr(self, name), name)
        self._check_edges()
        if self.names is not None and len(self.names) != self.num_nodes:
            raise InputError(f"names must be one for each of {self.num_nodes} nodes, got {len(self.names)}")
        self._name_classes()

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.layers[0].points.size(0)

    def _check_numbers(self, numbers: Tensor | None, name: str) -> None:
        if numbers is None:
            return
        if numbers.shape != (self.num_nodes,) or numbers.is_floating_point():
            raise InputError(f"{name} must be {self.num_nodes} whole numbers, one a node, got {_describe(numbers)}")
        if bool((numbers < -1).any()):
            raise InputError(f"{name} must be numbers of classes from 0 on, or -1, got {int(numbers.min())}")

    def _check_edges(self) -> None:
        if self.edges is None:
            return
        edges = self.edges
        if edges.dim() != 2 or edges.size(0) != 2 or edges.is_floating_point():
            raise InputError(f"edges must be whole numbers of shape (2, E), got {_describe(edges)}")
        outside = edges[(edges < 0) | (edges >= self.num_nodes)]
        if outside.numel():
            raise InputError(f"edges must join nodes 0 to {self.num_nodes - 1}, got {int(outside[0])}")

    def _name_classes(self) -> None:
        known = [numbers for numbers in (self.labels, self.predictions) if numbers is not None]
        most = max((int(numbers.max()) + 1 for numbers in known), default=0)
        most = max([most, *(len(layer.centers) for layer in self.layers if layer.centers is not None)])
        if self.class_names and len(self.class_names) < most:
            raise InputError(f"class_names must name all {most} classes, got {len(self.class_names)}")
        if not self.class_names:
            object.__setattr__(self, "class_names", tuple(f"class {number}" for number in range(most)))


def _describe(values: Tensor) -> str:
    return f"{str(values.dtype).removeprefix('torch.')} of shape {tuple(values.shape)}"


def read_npz_scene(path: Path | str) -> Scene:
    """Scene of points saved with :func:`numpy.savez`. Nothing from the file is executed: pickled arrays are refused.

    Keys of the file:

    ``points``
        ``(N, n+1)`` points of the Lorentz model, time first. Several layers are saved as ``points/NAME``, in order.
    ``curvature``
        One negative number, -1 if absent.
    ``labels``, ``predictions``
        ``(N,)`` whole numbers, -1 for none.
    ``edges``
        ``(2, E)`` pairs of nodes.
    ``names``, ``class_names``
        Text, one a node and one a class.
    ``centers``, ``kernel``
        ``(C, n+1)`` points of the classes, and ``(K, n+1)`` kernel points around the origin; with layers
        ``centers/NAME`` and ``kernel/NAME``.

    All but ``points`` may be absent.
    """
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
