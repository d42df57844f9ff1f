"""Training: the loop, the optimizer, checkpoints and whole runs.

The names below are imported when first used, so that the command line can show its help without PyTorch.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "CheckpointInfo": "checkpoint",
    "FitResult": "loop",
    "Recipe": "recipe",
    "Reporter": "reporting",
    "RiemannianAdam": "optimizer",
    "RunSummary": "summary",
    "Settings": "settings",
    "evaluate_run": "evaluate",
    "fit": "loop",
    "load_checkpoint": "checkpoint",
    "save_checkpoint": "checkpoint",
    "seed_everything": "seeds",
    "train_run": "run",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"hkconv.training.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'hkconv.training' has no attribute {name!r}")
