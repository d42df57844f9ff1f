"""The models of a run as options; importable without PyTorch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hkconv.errors import InputError
from hkconv.models import MODELS
from hkconv.options import (
    CURVATURE,
    KERNELS,
    LAYERS,
    POSITIVE,
    RATE,
    WIDTH,
    Interval,
    Options,
    choice,
    flag,
    names,
    number,
    whole,
)

TASKS = ("node", "graph", "link")
# HKN and two plain models for scale: what a run of a minute or two can afford.
DEFAULT_MODELS = ("hkn", "mlp", "gcn")
# The options that only the paper's form of HKN has.
OPTIONS_OF_PAPER = ("act", "relative")
# Options that HKN had in earlier versions, with the value at which it was what it is without them.
REMOVED_OPTIONS = {"attention": None, "root": False, "directions": False}


def removed_in(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of HKN's options that are gone and made another network of it than it is without them."""
    found = {name: options.get(name, without) for name, without in REMOVED_OPTIONS.items()}
    return {name: value for name, value in found.items() if value not in (REMOVED_OPTIONS[name], "none")}


def without_removed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return HKN's options without those that are gone; an :class:`InputError` if it was another network with them."""
    for name, value in removed_in(options).items():
        raise InputError(
            f"HKN no longer has the option {name}, and this has {name}: {value!r}; hkconv 0.1.0 reads it, "
            f"or train anew with {name}: {REMOVED_OPTIONS[name]!r}"
        )
    return {name: value for name, value in options.items() if name not in REMOVED_OPTIONS}


@dataclass(frozen=True, kw_only=True)
class HKNOptions(Options):
    """Options of :class:`hkconv.models.HKN` alone: its arguments, by their names."""

    form: str = choice("views", ("views", "paper"), "HKN: three views of a neighbourhood, or the paper's layer alone.")
    kernel_size: int = whole(4, KERNELS, "HKN: number of kernel points.")
    act: str | None = choice(None, ("relu",), "HKN, paper: activation before a kernel's linear map.", optional=True)
    points: str = choice("optimal", ("optimal", "random", "trainable"), "HKN: where kernel points come from.")
    relative: bool = flag(True, "HKN, paper: features relative to the centre of a neighbourhood.")
    mass: bool = flag(False, "HKN: keep the mass of a centroid.")
    structure: bool = flag(False, "HKN: rows of the adjacency as further features; node task.")
    reach: float | None = number(
        None,
        # float32 ends at the hyperbolic cosine of 88.
        Interval(0.0, 80.0, above=True),
        "HKN: the farthest that features are placed from the origin; of views 5.",
        optional=True,
    )
    norm: str | None = choice(
        None,
        ("batch", "layer", "none"),
        "HKN, GCN, GAT, GraphSAGE, ACM-GCN, Dir-GNN: normalisation in every layer; of views batch.",
        optional=True,
    )
    hidden_act: str | None = choice(
        None, ("relu", "none"), "HKN: activation after every layer; of views relu.", optional=True
    )
    readout: str | None = choice(
        None, ("last", "all"), "HKN: layers that the answer is read off; of views all.", optional=True
    )
    curvature: float = number(-1.0, CURVATURE, "HKN: curvature of the space.")
    learn_curvature: bool = flag(False, "HKN: learn the curvature of every layer.")


@dataclass(frozen=True, kw_only=True)
class BaselineOptions(Options):
    """Options that some baselines have, by the names of their arguments; None stands for the baseline's default."""

    residual: bool = flag(False, "GCN, GAT, GraphSAGE, ACM-GCN, Dir-GNN: add a linear map of its input to every layer.")
    alpha: float | None = number(
        None,
        Interval(0.0, 1.0),
        "GCNII: share of the first layer, 0.1 by default. Dir-GNN: share of out-edges, 0.5 by default.",
        optional=True,
    )
    theta: float = number(0.5, POSITIVE, "GCNII: strength of the linear maps.")


# Options of single models, besides those that every model has.
OWN_OPTIONS: dict[str, tuple[str, ...]] = {
    "hkn": tuple(HKNOptions.options()),
    **dict.fromkeys(("gcn", "gat", "graphsage", "acm-gcn"), ("norm", "residual")),
    "gcnii": ("alpha", "theta"),
    "dir-gnn": ("norm", "residual", "alpha"),
}


def foreign_options(model: str) -> set[str]:
    """Return the names of the options that other models have and this one does not."""
    return {*HKNOptions.options(), *BaselineOptions.options()}.difference(OWN_OPTIONS.get(model, ()))


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Options):
    """Models to train, what all of them can be told, and what some can be."""

    models: tuple[str, ...] = names(
        DEFAULT_MODELS, "model", MODELS, f"Models to train, with commas, of {', '.join(MODELS)}.", least=1
    )
    hidden_dim: int = whole(64, WIDTH, "Width of the layers.")
    num_layers: int = whole(2, LAYERS, "Number of layers.")
    dropout: float = number(0.5, RATE, "Dropout rate.")
    hkn: HKNOptions = field(default_factory=HKNOptions)
    baselines: BaselineOptions = field(default_factory=BaselineOptions)

    def arguments(self, model: str) -> dict[str, object]:
        """The arguments of a model's constructor that are options, by their names."""
        left_out = {"models", *foreign_options(model)}
        # None is a word of HKN's, and of a baseline's the default.
        return {
            name: value
            for name, value in self.flat().items()
            if name not in left_out and (value is not None or model == "hkn")
        }
