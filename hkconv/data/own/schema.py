"""Encoding of own data as numbers, kept with a model so that other data are encoded in the same way."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from hkconv.data.options import ACCURACY, METRICS, R2
from hkconv.data.own.features import KINDS, Feature
from hkconv.data.scaling import Scaling
from hkconv.errors import InputError

# Version 1, of hkconv 0.1.0, had features as they are.
FORMAT_VERSION = 2
READABLE = (1, FORMAT_VERSION)


@dataclass(frozen=True)
class Schema:
    """Names, classes and features of the own data that a model was trained on.

    Args:
        name: of the dataset.
        kind: what it was read from, see :class:`~hkconv.data.own.graphs.OwnGraphs`.
        task: ``"node"``, ``"graph"`` or ``"link"``.
        protocol: how it was divided.
        classes: their names, in the order of a model's logits, or those of questions or of the number; none of links.
        features: the columns that features were made of, in a model's order; None where there were no tables.
        num_features: number of feature columns that a model sees.
        is_weighted: whether the edges have weights.
        graphs_digest, answers_digest: of the data, see :class:`~hkconv.data.own.graphs.OwnGraphs`.
        scalings: of the features, one for each split; None where a model sees them as they are.
        notes: on how the columns were taken.
        metric: that the labels are scored by.
        targets: the mean and the deviation of the numbers to train on, for each split; None of other labels.
        edge_features: the columns that attributes of edges were made of; None where there were no tables.
        num_edge_features: number of attributes of an edge; None where edges have none, or categories of bonds.
        edge_scaling: of the attributes of edges; None where a model sees them as they are.
    """

    name: str
    kind: str
    task: str
    protocol: str
    classes: tuple[str, ...]
    features: tuple[Feature, ...] | None
    num_features: int
    is_weighted: bool
    graphs_digest: str
    answers_digest: str
    scalings: tuple[Scaling, ...] | None = None
    notes: tuple[str, ...] = ()
    metric: str = ACCURACY
    targets: tuple[tuple[float, float], ...] | None = None
    edge_features: tuple[Feature, ...] | None = None
    num_edge_features: int | None = None
    edge_scaling: Scaling | None = None

    @property
    def num_logits(self) -> int | None:
        """Number of logits of a model, what it calls its classes; None of links."""
        return None if self.task == "link" else len(self.classes) * (1 if self.metric == ACCURACY else 2)

    def as_dict(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {"format_version": FORMAT_VERSION, **asdict(self)}


def schema_of_dict(values: Mapping[str, Any], place: str) -> Schema:
    """The schema that :meth:`Schema.as_dict` described.

    Args:
        values: read from a file, unchecked.
        place: how an error calls the file.

    Returns:
        The schema.
    """
    if values.get("format_version") not in READABLE:
        accepted = " and ".join(map(str, READABLE))
        raise InputError(f"{place} has format version {values.get('format_version')!r}; this reads {accepted}")
    for key, kind in _KINDS.items():
        if type(values.get(key)) is not kind:
            raise InputError(f"{place} is damaged: {key!r} must be a {kind.__name__}")
    metric, targets = values.get("metric", ACCURACY), values.get("targets")
    if metric not in METRICS:
        raise InputError(f"{place} is damaged: 'metric' must be one of {', '.join(METRICS)}")
    least = 0 if values["task"] == "link" else 2 if metric == ACCURACY else 1
    if not _are_names(values["classes"]) or len(values["classes"]) < least:
        raise InputError(f"{place} is damaged: 'classes' must be a list of names, {least} at least")
    if (targets is not None) != (metric == R2) or not (targets is None or _are_targets(targets)):
        raise InputError(f"{place} is damaged: 'targets' must be a mean and a deviation for each split")
    for key in ("features", "edge_features"):
        columns = values.get(key)
        if columns is not None and not (isinstance(columns, list) and all(map(_is_feature, columns))):
            raise InputError(f"{place} is damaged: {key!r} must be a list of names and categories")
    scalings, notes = values.get("scalings"), values.get("notes", [])
    width = values["num_features"]
    if scalings is not None and not (
        isinstance(scalings, list) and scalings and all(_is_scaling(entry, width) for entry in scalings)
    ):
        raise InputError(f"{place} is damaged: 'scalings' must be a list of numbers for each of {width} features")
    edge_width, edge_scaling = values.get("num_edge_features"), values.get("edge_scaling")
    if type(edge_width) not in (int, type(None)) or not (
        edge_scaling is None or (edge_width and _is_scaling(edge_scaling, edge_width))
    ):
        raise InputError(f"{place} is damaged: 'edge_scaling' must be a list of numbers for each attribute of an edge")
    if not _are_names(notes):
        raise InputError(f"{place} is damaged: 'notes' must be a list of sentences")
    return Schema(
        **{key: values[key] for key in _KINDS if key != "classes"},
        classes=tuple(values["classes"]),
        features=_features(values.get("features")),
        edge_features=_features(values.get("edge_features")),
        num_edge_features=edge_width,
        edge_scaling=None if edge_scaling is None else _scaling(edge_scaling),
        scalings=None if scalings is None else tuple(map(_scaling, scalings)),
        notes=tuple(notes),
        metric=metric,
        targets=None if targets is None else tuple((mean, deviation) for mean, deviation in targets),
    )


_KINDS = {
    **dict.fromkeys(("name", "kind", "task", "protocol", "graphs_digest", "answers_digest"), str),
    "classes": list,
    "num_features": int,
    "is_weighted": bool,
}


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _are_targets(value: Any) -> bool:
    pairs = value if isinstance(value, list) else [None]
    return all(
        isinstance(pair, list) and len(pair) == 2 and all(type(one) is float and math.isfinite(one) for one in pair)
        for pair in pairs
    )


def _is_feature(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("name"), str)
        and (value.get("categories") is None or _are_names(value["categories"]))
        and value.get("kind") in (None, *KINDS)
        and isinstance(value.get("date_format"), str | None)
        and isinstance(value.get("has_missing", False), bool)
    )


def _feature(value: dict[str, Any]) -> Feature:
    categories = value.get("categories")
    others = {key: value[key] for key in ("kind", "date_format", "has_missing") if key in value}
    return Feature(value["name"], None if categories is None else tuple(categories), **others)


def _features(values: list[dict[str, Any]] | None) -> tuple[Feature, ...] | None:
    return None if values is None else tuple(map(_feature, values))


def _is_scaling(value: Any, width: int) -> bool:
    types = {entry.name: bool if entry.name == "log" else float for entry in fields(Scaling)}
    return isinstance(value, dict) and all(
        isinstance(value.get(name), list)
        and len(value[name]) == width
        and all(type(number) is kind and math.isfinite(number) for number in value[name])
        for name, kind in types.items()
    )


def _scaling(value: dict[str, Any]) -> Scaling:
    return Scaling(**{entry.name: tuple(value[entry.name]) for entry in fields(Scaling)})
