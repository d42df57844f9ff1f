"""Checks of what is handed to a layer: shapes always, membership in the manifold in debug mode.

Debug mode reads the data, which synchronizes a GPU and breaks a compiled graph, so it is off unless
``HKCONV_DEBUG=1`` is set or the code runs inside ``with hkconv.debug():``.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.geometry.curvature import Curvature, curvature_value
from hkconv.geometry.hyperboloid import lift

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


def check_points(x: Tensor, dim: int, curvature: Curvature, name: str) -> None:
    """Raise unless ``x`` has ``dim + 1`` coordinates and, in debug mode, lies on the hyperboloid."""
    if x.size(-1) != dim + 1:
        raise InputError(
            f"{name} must have {dim + 1} coordinates for points of dimension {dim} (time first), got {x.size(-1)}"
        )
    if debugging():
        _check_on_manifold(x.detach(), curvature, name)


def _check_on_manifold(x: Tensor, curvature: Curvature, name: str) -> None:
    rows = x.reshape(-1, x.size(-1))
    _report_first(~rows.isfinite().all(-1), f"{name} contains NaN or Inf")
    time = lift(rows[:, 1:], curvature)[:, 0]
    # sqrt(eps): far above rounding (eps), far below what a forgotten lift or another curvature makes.
    tolerance = torch.finfo(rows.dtype).eps ** 0.5
    off = (rows[:, 0] - time).abs() > tolerance * time
    _report_first(
        off, f"{name} is off the manifold of curvature {curvature_value(curvature):g} (time != sqrt(R² + |x_s|²))"
    )


def _report_first(bad: Tensor, message: str) -> None:
    if bad.any():
        raise InputError(f"{message}, first in row {int(bad.nonzero()[0])}")
