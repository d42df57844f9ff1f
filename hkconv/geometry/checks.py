"""Checks of what is handed to a layer: shapes always, membership in the manifold at its first input and in debug mode.

Debug mode reads the data, which synchronizes a GPU and breaks a compiled graph, so it is off unless
``HKCONV_DEBUG=1`` is set or the code runs inside ``with hkconv.debug():``.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.geometry.curvature import Curvature, curvature_value
from hkconv.geometry.hyperboloid import lift

_REMEDIES = (
    "HEmbedding of hkconv.nn makes points of features, and HLinear, HNorm, HActivation and HDropout keep them points; "
    "Euclidean sums and means of points are none (global_mean_pool, aggr='sum', x + y): take their centroid, by "
    "global_centroid_pool for graphs, HeteroHKConv or to_hetero of hkconv.nn for relations, lorentz.centroid"
)

_enabled = os.environ.get("HKCONV_DEBUG", "0") not in {"", "0"}


@contextmanager
def debug(enabled: bool = True) -> Iterator[None]:
    """Within this block layers check that their inputs are finite and lie on the manifold."""
    global _enabled
    before, _enabled = _enabled, enabled
    try:
        yield
    finally:
        _enabled = before


def debugging() -> bool:
    """True where debug mode is on."""
    return _enabled and not torch.compiler.is_compiling()


# Of a point's time: above the rounding of bfloat16, in which points may have been made that come in another type.
FIRST_TOLERANCE = 1e-2

# Layers that have had points as they should be.
_have_seen_points: WeakSet[torch.nn.Module] = WeakSet()


def check_points(x: Tensor, dim: int, curvature: Curvature, name: str, layer: torch.nn.Module | None = None) -> None:
    """Raise unless ``x`` is a tensor of ``dim + 1`` coordinates and, in debug mode, lies on the hyperboloid.

    Features are not points, nor are sums and means of points, by which PyG combines relations, and nothing else would
    tell. The first input of each layer is looked at for that, where it can be read.
    """
    check_tensor(x, name)
    if x.size(-1) != dim + 1:
        raise InputError(
            f"{name} must have {dim + 1} coordinates for points of dimension {dim} (time first), got {x.size(-1)}"
        )
    if not x.is_floating_point():
        raise InputError(f"{name} must hold floating-point numbers, got {x.dtype}")
    if debugging():
        _report_first(~x.detach().isfinite().all(-1).flatten(), f"{name} contains NaN or Inf")
        # sqrt(eps): far above rounding (eps), far below what a forgotten lift or another curvature makes.
        _check_on_manifold(x.detach(), curvature, name, torch.finfo(x.dtype).eps ** 0.5)
    elif layer is not None and not torch.compiler.is_compiling() and layer not in _have_seen_points and _is_plain(x):
        _check_on_manifold(x.detach(), curvature, name, FIRST_TOLERANCE)
        _have_seen_points.update(layer.modules())  # those inside are given the same points


def _is_plain(x: Tensor) -> bool:
    """True where numbers can be read: not inside a transform of ``torch.func``, a tracer, or a CUDA graph."""
    if type(x) not in {Tensor, torch.nn.Parameter} or torch._C._are_functorch_transforms_active() or x.is_meta:
        return False
    return not (x.is_cuda and torch.cuda.is_current_stream_capturing())


def check_tensor(x: object, name: str) -> None:
    """Raise unless ``x`` is a tensor."""
    if isinstance(x, np.ndarray):
        raise InputError(f"{name} is a NumPy array; pass torch.from_numpy({name})")
    if not isinstance(x, Tensor):
        raise InputError(f"{name} must be a tensor, got a {type(x).__name__}")


def check_attributes(edge_attr: Tensor | None, edge_dim: int | None, edges: int) -> None:
    """Raise unless there are ``(edges, edge_dim)`` attributes or, where ``edge_dim`` is None, none."""
    if edge_dim is None:
        if edge_attr is not None:
            raise InputError("edge_attr must be left out where edge_dim is None")
        return
    if edge_attr is None or edge_attr.shape != (edges, edge_dim):
        found = "none" if edge_attr is None else tuple(edge_attr.shape)
        raise InputError(f"edge_attr must have shape (edges, edge_dim) = ({edges}, {edge_dim}), got {found}")
    if debugging():
        _report_first(~edge_attr.isfinite().all(-1), "edge_attr contains NaN or Inf")


def _check_on_manifold(x: Tensor, curvature: Curvature, name: str, tolerance: float) -> None:
    rows = x.reshape(-1, x.size(-1))
    time = lift(rows[:, 1:], curvature)[:, 0]
    gap = rows[:, 0] - time
    off = gap.abs() > tolerance * time
    where = f"{name} is off the manifold of curvature {curvature_value(curvature):g} (time != sqrt(R² + |x_s|²))"
    _report_first(off, where, _REMEDIES)


def _report_first(bad: Tensor, message: str, remedy: str = "") -> None:
    if bad.any():
        raise InputError(f"{message}, first in row {int(bad.nonzero()[0])}{remedy and '; ' + remedy}")
