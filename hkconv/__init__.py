"""Hyperbolic kernel convolution for PyTorch and PyTorch Geometric.

The names below are imported when first used, so that ``import hkconv`` costs nothing.
"""

from importlib import import_module
from typing import Any

__version__ = "0.2.0"

_HOMES = {
    "Lorentz": "hkconv.geometry.manifold",
    "RiemannianAdam": "hkconv.engine.optimizer",
    "debug": "hkconv.geometry.checks",
    "kernel_energy": "hkconv.points",
    "kernel_points": "hkconv.points",
    "neighbors": "hkconv.ops.neighbors",
}
__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _rooms():
        return import_module(f"hkconv.{name}")
    raise AttributeError(f"module 'hkconv' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_rooms()])


def _rooms() -> set[str]:
    """Return the names of the rooms: whatever lies in this folder."""
    from pkgutil import iter_modules

    return {module.name for module in iter_modules(__path__) if not module.name.startswith("_")}
