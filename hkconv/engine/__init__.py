"""The engine that trains everything: the loop, its state and checkpoints, devices, processes and the optimizer.

The names below are imported when first used, so that the command line can show its help without PyTorch.
"""

from functools import partial

from hkconv.lazy import load_attribute

_HOMES = {
    "CheckpointInfo": "checkpoint",
    "FitResult": "loop",
    "Callback": "callbacks",
    "RiemannianAdam": "optimizer",
    "RiemannianSGD": "optimizer",
    "Settings": "settings",
    "load_checkpoint": "checkpoint",
    "save_checkpoint": "checkpoint",
    "seed_everything": "reproducibility",
}

__all__ = list(_HOMES)
__getattr__ = partial(load_attribute, __name__, _HOMES)
