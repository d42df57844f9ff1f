"""The engine that trains everything: the loop, its state and checkpoints, devices, processes and the optimizer.

The names below are imported when first used, so that the command line can show its help without PyTorch.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "CheckpointInfo": "checkpoint",
    "FitResult": "loop",
    "Callback": "callbacks",
    "RiemannianAdam": "optimizer",
    "Settings": "settings",
    "load_checkpoint": "checkpoint",
    "save_checkpoint": "checkpoint",
    "seed_everything": "reproducibility",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"hkconv.engine.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'hkconv.engine' has no attribute {name!r}")
