"""Everything a training run can be told, as one checked object: from Python, from YAML or from the command line.

It loads neither PyTorch nor a model, so that the command line can read its fields and still start quickly.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from hkconv.engine.rules import Rule, check_fields, choice, flag, number, rule_field, text, whole
from hkconv.engine.settings import PRECISIONS, Settings
from hkconv.errors import InputError, did_you_mean
from hkconv.models import MODELS

PROTOCOL_NAMES = ("clean", "published")
# HKN and two plain models for scale: what a run of a minute or two can afford.
DEFAULT_MODELS = ("hkn", "mlp", "gcn")

# What a recipe of hkconv 0.1.0 means where it says nothing, and the options by which one is known: HKN's block came
# later, and has none of them.
FIRST_RELEASE = {
    "form": "paper",
    "root": True,
    "readout": "last",
    "hidden_dim": 16,
    "num_layers": 2,
    "kernel_size": 4,
    "lr": 0.02,
    "weight_decay": 5e-3,
    "dropout": 0.2,
    "epochs": 200,
    "patience": 50,
}
OPTIONS_OF_PAPER = ("act", "relative", "attention", "root", "directions")

# The safe loader, in C where PyYAML was built with it: the tables have a hundred files.
YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _are_models(names: tuple[str, ...]) -> bool:
    return 0 < len(names) == len(set(names)) and set(names) <= set(MODELS)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A training run: data, models, how to train them, and where everything goes.

    Every field is checked; ``hkconv train --help`` says what each is for. The fields from ``form`` to
    ``learn_curvature`` are HKN's alone. Data and its splits are drawn with ``seed``, and the j-th training of a
    split with ``seed + j`` and the number of the split.
    """

    dataset: str = text(
        "tree", "the name of a dataset or a path", "Dataset, `hkconv datasets` lists them; or own data."
    )
    task: str | None = choice(
        None, ("node", "graph", "link"), "Task; by default the dataset's usual one.", optional=True
    )
    protocol: str = choice("clean", PROTOCOL_NAMES, "Disjoint splits, or those of the paper's code, which overlap.")
    split_file: str | None = text(None, "a file", "JSON or .npz file with your own splits.", optional=True)
    models: tuple[str, ...] = rule_field(
        DEFAULT_MODELS,
        Rule(tuple, f"different names from {', '.join(MODELS)}", _are_models, "Models to train, with commas."),
    )
    hidden_dim: int = whole(64, 1, "Width of the layers.")
    num_layers: int = whole(2, 1, "Number of layers.")
    form: str = choice("views", ("views", "paper"), "HKN: three views of a neighbourhood, or the paper's layer alone.")
    kernel_size: int = whole(4, 1, "HKN: number of kernel points.")
    act: str | None = choice(None, ("relu",), "HKN, paper: activation before a kernel's linear map.", optional=True)
    points: str = choice("optimal", ("optimal", "random", "trainable"), "HKN: where kernel points come from.")
    relative: bool = flag(True, "HKN, paper: features relative to the centre of a neighbourhood.")
    attention: str | None = choice(None, ("distance",), "HKN, paper: learned weights of neighbours.", optional=True)
    root: bool = flag(False, "HKN, paper: a branch for a node's own features.")
    mass: bool = flag(False, "HKN: keep the mass of a centroid.")
    directions: bool = flag(False, "HKN, paper: a convolution for each direction of the edges; with --no-undirected.")
    structure: bool = flag(False, "HKN: rows of the adjacency as further features; node task.")
    reach: float | None = number(
        None,
        "a number above 0",
        lambda value: value > 0,
        "HKN: the farthest that features are placed from the origin; of views 5.",
        optional=True,
    )
    norm: str | None = choice(
        None, ("batch", "layer", "none"), "HKN: normalisation in every layer; of views batch.", optional=True
    )
    hidden_act: str | None = choice(
        None, ("relu", "none"), "HKN: activation after every layer; of views relu.", optional=True
    )
    readout: str | None = choice(
        None, ("last", "all"), "HKN: layers that the answer is read off; of views all.", optional=True
    )
    curvature: float = number(-1.0, "a number below 0", lambda value: value < 0, "HKN: curvature of the space.")
    learn_curvature: bool = flag(False, "HKN: learn the curvature of every layer.")
    lr: float = number(Settings.lr, "a number above 0", lambda value: value > 0, "Learning rate.")
    weight_decay: float = number(
        Settings.weight_decay, "a number of at least 0", lambda value: value >= 0, "L2 penalty."
    )
    dropout: float = number(0.5, "at least 0 and below 1", lambda value: 0 <= value < 1, "Dropout rate.")
    epochs: int = whole(Settings.epochs, 1, "The most epochs to train for.")
    patience: int = whole(Settings.patience, 1, "Stop after this many epochs without a better validation score.")
    batch_size: int = whole(Settings.batch_size, 1, "Graphs in a batch of a graph task; nodes, with --neighbors.")
    groupings: int | None = whole(
        None,
        1,
        "Graph task: divisions into batches, drawn once and taken by lot; else a new one an epoch.",
        optional=True,
    )
    neighbors: tuple[int, ...] | None = rule_field(
        None,
        Rule(
            list,
            "whole numbers such as 15,10, each at least 1 or, for all neighbours, -1",
            lambda numbers: len(numbers) > 0 and all(number > 0 or number == -1 for number in numbers),
            "Train nodes in mini-batches on this many sampled neighbours a layer, such as 15,10.",
            optional=True,
        ),
    )
    num_splits: int = whole(3, 1, "How many of the dataset's splits to train on; OGB's have one.")
    seeds: int = whole(1, 1, "How many trainings on each split.")
    seed: int = whole(0, 0, "First seed.")
    undirected: bool = flag(True, "Give every edge both directions.")
    normalize_features: bool = flag(False, "Divide each row of features by its sum.")
    log_features: bool = flag(False, "Take sign(x) log(1 + |x|) of every feature.")
    device: str = text("auto", "auto, cpu or the name of a GPU such as cuda:0", "auto, cpu, cuda, cuda:1, ...")
    deterministic: bool = flag(False, "Only algorithms that repeat exactly.")
    precision: str = choice(
        Settings.precision, PRECISIONS, "Of a training step: bf16 and fp16 by autocast, the geometry stays in float32."
    )
    compile: bool = flag(Settings.compile, "Train and validate with torch.compile, which first takes a minute or more.")
    capture: bool = flag(
        Settings.capture, "Replay the training step as a CUDA graph, on a GPU; of graph tasks with --groupings."
    )
    keep_every: float = number(
        60.0,
        "a number of at least 0",
        lambda value: value >= 0,
        "Seconds from one time that an unfinished training is kept to the next.",
    )
    data: str | None = text(None, "a folder", "Folder of the datasets, else HKCONV_DATA or the cache.", optional=True)
    out: str | None = text(None, "a folder", "Folder for the results; by default a new one in runs/.", optional=True)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.neighbors is not None and len(self.neighbors) != self.num_layers:
            raise InputError(
                f"neighbors must have a number for each of the {self.num_layers} layers, got {len(self.neighbors)}"
            )

    def as_dict(self) -> dict[str, Any]:
        """All fields as JSON can hold them."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


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


def upgraded(values: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe of hkconv 0.1.0 as what it was; any other as it is.

    Args:
        values: some of the fields of :class:`Recipe`. Without ``form`` and with an option of the paper's form they are
            of 0.1.0, which had no other.
    """
    is_first = "form" not in values and any(name in values for name in OPTIONS_OF_PAPER)
    return {**FIRST_RELEASE, **values} if is_first else dict(values)


def read_recipe_file(path: Path | str) -> dict[str, Any]:
    """The keys and values of a YAML recipe, unchecked.

    Args:
        path: the file.

    Returns:
        What the file says; empty for an empty file.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        # A value that stands for others, and those for others again, can mean more than memory holds.
        alias = next((event for event in yaml.parse(text, YAML) if isinstance(event, yaml.AliasEvent)), None)
        values = None if alias is not None else _plain_data(text)
    except OSError as error:
        raise InputError(f"recipe {path} cannot be read ({error.strerror})") from None
    # Dates that are none, numbers of thousands of digits and nests of thousands of lists fail with errors of Python's.
    except Exception as error:
        place = _place(getattr(error, "problem_mark", None))
        raise InputError(f"recipe {path} is not valid YAML{place}") from None
    if alias is not None:
        place = _place(alias.start_mark)
        raise InputError(f"recipe {path} refers to another value{place} (*{alias.anchor}): write it out")
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InputError(f"recipe {path} must hold keys and values such as 'lr: 0.01', got a {type(values).__name__}")
    return values


def _plain_data(text: str) -> object:
    """What ``yaml.safe_load`` makes of a text."""
    loader = YAML(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def _place(mark: "yaml.error.Mark | yaml._yaml.Mark | None") -> str:
    return f" in line {mark.line + 1}" if mark else ""
