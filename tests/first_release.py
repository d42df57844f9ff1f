"""What hkconv 0.1.0 wrote, word for word: HKN had the paper's form alone, and no name for it."""

import json
from pathlib import Path

from hkconv.models.options import REMOVED_OPTIONS

# recipe.json of a run, every field of then. By default HKN had a root branch, with which it can no longer be built.
RECIPE = {
    "dataset": "tree",
    "task": None,
    "protocol": "clean",
    "split_file": None,
    "models": ["hkn", "mlp"],
    "hidden_dim": 16,
    "num_layers": 2,
    "kernel_size": 4,
    "act": None,
    "points": "optimal",
    "relative": True,
    "attention": None,
    "root": False,
    "mass": False,
    "directions": False,
    "structure": False,
    "reach": None,
    "norm": None,
    "hidden_act": None,
    "readout": "last",
    "curvature": -1.0,
    "learn_curvature": False,
    "lr": 0.02,
    "weight_decay": 0.005,
    "dropout": 0.2,
    "epochs": 2,
    "patience": 50,
    "batch_size": 32,
    "groupings": None,
    "neighbors": None,
    "num_splits": 1,
    "seeds": 1,
    "seed": 0,
    "undirected": True,
    "normalize_features": False,
    "log_features": False,
    "device": "cpu",
    "deterministic": False,
    "precision": "float32",
    "compile": False,
    "capture": False,
    "keep_every": 60.0,
    "data": None,
    "out": None,
}

# What a recipe of then has today beside it.
ADDED = {"form": "paper", "log": [], "link_batch": None, "residual": False, "alpha": None, "theta": 0.5}
ADDED |= {"edge_attributes": False, "scale": None, "missing": "mean"}

# Of config.json in a run, how HKN was built.
CONFIG = {
    "in_features": 3,
    "num_classes": 2,
    "task": "node",
    **{name: RECIPE[name] for name in ("hidden_dim", "num_layers", "dropout", "kernel_size", "act", "points")},
    **{name: RECIPE[name] for name in ("relative", "attention", "root", "mass", "directions", "structure", "reach")},
    **{name: RECIPE[name] for name in ("norm", "hidden_act", "readout", "curvature", "learn_curvature")},
}


def as_then(run: Path) -> None:
    """A run of today, of the paper's form, with the files that 0.1.0 would have written."""
    _change(run / "recipe.json", _recipe_of_then)
    for path in run.glob("*/*/config.json"):
        _change(path, _checkpoint_of_then)


def _recipe_of_then(recipe: dict) -> dict:
    then = {**recipe, **REMOVED_OPTIONS, "undirected": {"both": True, "in": False}[recipe["direction"]]}
    return {name: then[name] for name in RECIPE}


def _checkpoint_of_then(entries: dict) -> dict:
    config = {name: value for name, value in entries["config"].items() if name != "form"}
    if entries["model"] == "hkn":
        config |= REMOVED_OPTIONS
    return {**entries, "format_version": 1, "hkconv_version": "0.1.0", "config": config}


def _change(path: Path, change) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
