"""Learning from graphs: node, graph and link tasks, and whole runs of them.

The names below are imported when first used, so that the command line can show its help without PyTorch.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "Recipe": "recipe",
    "RunSummary": "summary",
    "evaluate_run": "evaluate",
    "fit": "fitting",
    "make_recipe": "recipe",
    "train_run": "run",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"hkconv.tasks.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'hkconv.tasks' has no attribute {name!r}")
