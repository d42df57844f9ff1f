"""Encoding of own data as numbers, kept with a model so that other data are encoded in the same way."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hkconv.data.own.features import Feature
from hkconv.errors import InputError

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Schema:
    """Names, classes and features of the own data that a model was trained on.

    Args:
        name: of the dataset.
        kind: what it was read from, see :class:`~hkconv.data.own.graphs.OwnGraphs`.
        task: ``"node"`` or ``"graph"``.
        protocol: how it was divided.
        classes: their names, in the order of a model's logits.
        features: the columns that features were made of, in a model's order; None where there were no tables.
        num_features: number of feature columns that a model sees.
        is_weighted: whether the edges have weights.
        graphs_digest, answers_digest: of the data, see :class:`~hkconv.data.own.graphs.OwnGraphs`.
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
    if values.get("format_version") != FORMAT_VERSION:
        raise InputError(f"{place} has format version {values.get('format_version')!r}; this reads {FORMAT_VERSION}")
    for key, kind in _KINDS.items():
        if type(values.get(key)) is not kind:
            raise InputError(f"{place} is damaged: {key!r} must be a {kind.__name__}")
    if not _are_names(values["classes"]) or len(values["classes"]) < 2:
        raise InputError(f"{place} is damaged: 'classes' must be a list of at least two names")
    features = values.get("features")
    if features is not None and not (isinstance(features, list) and all(map(_is_feature, features))):
        raise InputError(f"{place} is damaged: 'features' must be a list of names and categories")
    return Schema(
        **{key: values[key] for key in _KINDS if key != "classes"},
        classes=tuple(values["classes"]),
        features=None if features is None else tuple(map(_feature, features)),
    )


_KINDS = {
    **dict.fromkeys(("name", "kind", "task", "protocol", "graphs_digest", "answers_digest"), str),
    "classes": list,
    "num_features": int,
    "is_weighted": bool,
}


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_feature(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("name"), str)
        and (value.get("categories") is None or _are_names(value["categories"]))
    )


def _feature(value: dict[str, Any]) -> Feature:
    categories = value.get("categories")
    return Feature(value["name"], None if categories is None else tuple(categories))
