"""Everything a training run can be told, as one checked object: from Python, from YAML or from the command line.

It imports neither PyTorch nor a model, so that the command line can read its fields and still start quickly.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import Field as DataclassField
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from hkconv.errors import InputError, did_you_mean
from hkconv.training.settings import Settings

MODEL_NAMES = (
    "hkn",
    *("mlp", "gcn", "gat", "graphsage", "gcnii", "gin", "gmt", "linkx"),
    *("hgcn", "hybonet", "h2h-gcn", "wlhn"),
    *("geom-gcn", "wrgat", "glognn", "glognn++"),
)
PROTOCOL_NAMES = ("clean", "published")
# HKN and two plain models for scale: what a run of a minute or two can afford.
DEFAULT_MODELS = ("hkn", "mlp", "gcn")


@dataclass(frozen=True)
class Rule:
    """What a field of a recipe accepts.

    Args:
        kind: ``int``, ``float``, ``bool``, ``str`` or ``tuple`` (of names).
        accepts: the accepted values in words, for the error message.
        test: whether a value of the right kind is accepted.
        help: what the field is for, for ``--help``.
        optional: whether None is accepted; text may say it as ``none``.
        choices: the accepted words, where there are few.
    """

    kind: type
    accepts: str
    test: Callable[[Any], bool]
    help: str
    optional: bool = False
    choices: tuple[str, ...] = ()

    def check(self, key: str, value: Any) -> Any:
        """The value as the field's kind.

        Args:
            key: name of the field.
            value: what the user gave; numbers may come as text, for YAML reads ``1e-3`` as text.

        Returns:
            The value; an :class:`InputError` if it is not accepted.
        """
        if self.optional and (value is None or value == "none"):
            return None
        converted = _convert(value, self.kind)
        if converted is None or not self.test(converted):
            accepts = f"{self.accepts} or none" if self.optional else self.accepts
            raise InputError(f"{key} must be {accepts}, got {value!r}")
        return converted


def _convert(value: Any, kind: type) -> Any:
    """``value`` as ``kind``, or None where it is something else."""
    if kind is tuple:
        names = value.split(",") if isinstance(value, str) else value
        is_list = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
        return tuple(name.strip() for name in names) if is_list else None
    if kind is float and isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            return float(value)
        except ValueError:
            return None
    # A bool is an int to Python, but not to a person who writes `epochs: yes`.
    return value if type(value) is kind else None


def _whole(default: int, least: int, help: str) -> Any:
    return _field(default, Rule(int, f"a whole number of at least {least}", lambda value: value >= least, help))


def _number(default: float, accepts: str, test: Callable[[float], bool], help: str) -> Any:
    return _field(default, Rule(float, accepts, lambda value: math.isfinite(value) and test(value), help))


def _flag(default: bool, help: str) -> Any:
    return _field(default, Rule(bool, "true or false", lambda _: True, help))


def _choice(default: str | None, choices: tuple[str, ...], help: str, *, optional: bool = False) -> Any:
    accepts = " or ".join(choices)
    return _field(default, Rule(str, accepts, lambda value: value in choices, help, optional, choices))


def _text(default: str | None, accepts: str, help: str, *, optional: bool = False) -> Any:
    return _field(default, Rule(str, accepts, lambda value: value != "", help, optional))


def _field(default: Any, rule: Rule) -> Any:
    return field(default=default, metadata={"rule": rule})


def _are_models(names: tuple[str, ...]) -> bool:
    return 0 < len(names) == len(set(names)) and set(names) <= set(MODEL_NAMES)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A training run: data, models, how to train them, and where everything goes.

    Every field is checked; ``hkconv train --help`` says what each is for. The fields from ``kernel_size`` to
    ``learn_curvature`` are HKN's alone. Data and its splits are drawn with ``seed``, and the j-th training of a
    split with ``seed + j`` and the number of the split.
    """

    dataset: str = _text("tree", "the name of a dataset", "Dataset; `hkconv datasets` lists them.")
    task: str | None = _choice(
        None, ("node", "graph", "link"), "Task; by default the dataset's usual one.", optional=True
    )
    protocol: str = _choice("clean", PROTOCOL_NAMES, "Disjoint splits, or those of the paper's code, which overlap.")
    split_file: str | None = _text(None, "a file", "JSON or .npz file with your own splits.", optional=True)
    models: tuple[str, ...] = _field(
        DEFAULT_MODELS,
        Rule(tuple, f"different names from {', '.join(MODEL_NAMES)}", _are_models, "Models to train, with commas."),
    )
    hidden_dim: int = _whole(16, 1, "Width of the layers.")
    num_layers: int = _whole(2, 1, "Number of layers.")
    kernel_size: int = _whole(4, 1, "HKN: number of kernel points.")
    act: str | None = _choice(None, ("relu",), "HKN: activation before a kernel's linear map.", optional=True)
    points: str = _choice("optimal", ("optimal", "random", "trainable"), "HKN: where kernel points come from.")
    relative: bool = _flag(True, "HKN: features relative to the centre of a neighbourhood.")
    attention: str | None = _choice(None, ("distance",), "HKN: learned weights of neighbours.", optional=True)
    root: bool = _flag(True, "HKN: a branch for a node's own features.")
    mass: bool = _flag(False, "HKN: keep the mass of a centroid.")
    directions: bool = _flag(False, "HKN: a convolution for each direction of the edges; with --no-undirected.")
    structure: bool = _flag(False, "HKN: rows of the adjacency as further features; node task.")
    reach: float | None = _field(
        None,
        Rule(
            float,
            "a number above 0",
            lambda value: math.isfinite(value) and value > 0,
            "HKN: the farthest that features are placed from the origin.",
            optional=True,
        ),
    )
    norm: str | None = _choice(None, ("layer", "batch"), "HKN: normalisation after every layer.", optional=True)
    hidden_act: str | None = _choice(None, ("relu",), "HKN: activation after every layer.", optional=True)
    readout: str = _choice("last", ("last", "all"), "HKN: layers that the answer is read off.")
    curvature: float = _number(-1.0, "a number below 0", lambda value: value < 0, "HKN: curvature of the space.")
    learn_curvature: bool = _flag(False, "HKN: learn the curvature of every layer.")
    lr: float = _number(Settings.lr, "a number above 0", lambda value: value > 0, "Learning rate.")
    weight_decay: float = _number(
        Settings.weight_decay, "a number of at least 0", lambda value: value >= 0, "L2 penalty."
    )
    dropout: float = _number(0.2, "at least 0 and below 1", lambda value: 0 <= value < 1, "Dropout rate.")
    epochs: int = _whole(Settings.epochs, 1, "The most epochs to train for.")
    patience: int = _whole(Settings.patience, 1, "Stop after this many epochs without a better validation score.")
    batch_size: int = _whole(Settings.batch_size, 1, "Graphs in a batch of a graph task.")
    num_splits: int = _whole(3, 1, "How many of the dataset's splits to train on; OGB's have one.")
    seeds: int = _whole(1, 1, "How many trainings on each split.")
    seed: int = _whole(0, 0, "First seed.")
    undirected: bool = _flag(True, "Give every edge both directions.")
    normalize_features: bool = _flag(False, "Divide each row of features by its sum.")
    log_features: bool = _flag(False, "Take sign(x) log(1 + |x|) of every feature.")
    device: str = _text("auto", "auto, cpu or the name of a GPU such as cuda:0", "auto, cpu, cuda, cuda:1, ...")
    deterministic: bool = _flag(False, "Only algorithms that repeat exactly.")
    capture: bool = _flag(Settings.capture, "Replay the training step as a CUDA graph: node and link tasks on a GPU.")
    data: str | None = _text(None, "a folder", "Folder of the datasets, else HKCONV_DATA or the cache.", optional=True)
    out: str | None = _text(None, "a folder", "Folder for the results; by default a new one in runs/.", optional=True)

    def __post_init__(self) -> None:
        for entry in fields(self):
            object.__setattr__(self, entry.name, rule_of(entry).check(entry.name, getattr(self, entry.name)))

    def as_dict(self) -> dict[str, Any]:
        """All fields as JSON can hold them."""
        return {**asdict(self), "models": list(self.models)}


def rule_of(entry: DataclassField) -> Rule:
    """What a field of :class:`Recipe` accepts."""
    return entry.metadata["rule"]


def make_recipe(values: Mapping[str, Any]) -> Recipe:
    """A recipe from names and values.

    Args:
        values: some of the fields of :class:`Recipe`.

    Returns:
        The recipe; an :class:`InputError` names an unknown key with the nearest known one.
    """
    known = [entry.name for entry in fields(Recipe)]
    for key in values:
        if key not in known:
            raise InputError(f"unknown key {key!r} in the recipe; {did_you_mean(key, known)}")
    return Recipe(**values)


def read_recipe_file(path: Path | str) -> dict[str, Any]:
    """The keys and values of a YAML recipe, unchecked.

    Args:
        path: the file.

    Returns:
        What the file says; empty for an empty file.
    """
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"recipe {path} cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}" if mark else ""
        raise InputError(f"recipe {path} is not valid YAML{place}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InputError(f"recipe {path} must hold keys and values such as 'lr: 0.01', got a {type(values).__name__}")
    return values
