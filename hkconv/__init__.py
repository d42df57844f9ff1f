"""Hyperbolic kernel convolution for PyTorch and PyTorch Geometric.

The names below are imported when first used, so that ``import hkconv`` costs nothing.
"""

from importlib import import_module
from typing import Any

from hkconv.lazy import load_attribute

__version__ = "0.2.0"

_HOMES = {
    "Lorentz": "geometry.manifold",
    "RiemannianAdam": "engine.optimizer",
    "RiemannianSGD": "engine.optimizer",
    "debug": "geometry.checks",
    "kernel_energy": "points",
    "kernel_points": "points",
    "neighbors": "ops.neighbors",
}
__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    return import_module(f"hkconv.{name}") if name in _rooms() else load_attribute(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted([*__all__, *_rooms()])


def _rooms() -> set[str]:
    """Return the names of the rooms: whatever lies in this folder."""
    from pkgutil import iter_modules

    return {module.name for module in iter_modules(__path__) if not module.name.startswith("_")}
