"""Learning from graphs: node, graph and link tasks, and whole runs of them.

The names below are imported when first used, so that the command line can show its help without PyTorch.
"""

from functools import partial

from hkconv.lazy import load_attribute

_HOMES = {
    "Recipe": "recipe",
    "RunSummary": "summary",
    "evaluate_run": "evaluate",
    "fit": "fitting",
    "make_recipe": "recipe",
    "train_run": "run",
}

__all__ = list(_HOMES)
__getattr__ = partial(load_attribute, __name__, _HOMES)
