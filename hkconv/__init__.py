"""Hyperbolic kernel convolution for PyTorch and PyTorch Geometric.

The names below are imported when first used, so that ``import hkconv`` costs nothing.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "Lorentz": "hkconv.geometry.manifold",
    "RiemannianAdam": "hkconv.engine.optimizer",
    "debug": "hkconv.geometry.checks",
    "kernel_energy": "hkconv.points",
    "kernel_points": "hkconv.points",
    "neighbors": "hkconv.ops.neighbors",
}
_ROOMS = {
    *("benchmarking", "cli", "data", "engine", "errors", "experiments", "geometry", "language"),
    *("models", "nn", "ops", "points", "serving", "tasks", "testing", "viz"),
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _ROOMS:
        return import_module(f"hkconv.{name}")
    raise AttributeError(f"module 'hkconv' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS])
