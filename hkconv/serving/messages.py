"""Bodies of requests and responses, as types for the schema and for validation.

Those of requests depend on the run: on the names of its features, on whether edges have weights, and on the server's
limits. A body that passes is plain data: dictionaries, lists, texts and numbers, none of them NaN or infinite.
"""

import re
from typing import Annotated, Any, Literal, NotRequired

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    with_config,
)
from pydantic_core import ErrorDetails, PydanticCustomError
from typing_extensions import TypedDict

from hkconv.data.options import ACCURACY, R2
from hkconv.data.own.features import BOOLEAN, DATE, UNUSED, Feature
from hkconv.data.own.schema import Schema
from hkconv.data.own.smiles_tables import KIND as MOLECULES
from hkconv.data.own.tables import cell_text
from hkconv.data.own.tu_folders import DEGREE
from hkconv.data.own.tu_folders import KIND as TU_FORMAT
from hkconv.serving.limits import Limits, RefusalError
from hkconv.serving.service import GraphService, NodeService
from hkconv.tasks.predict import Predictions

CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
# Longer than any SMILES of so many atoms is in practice; RDKit's time grows with the length.
CHARACTERS_PER_ATOM = 10
WORDS = {"missing": "is missing", "extra_forbidden": "is unknown: leave it out"}


def _name(value: Any) -> str:
    if type(value) not in (str, int):
        raise PydanticCustomError("name", "Input should be a text or a whole number")
    return cell_text(value)


Name = Annotated[Any, AfterValidator(_name), WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "integer"}]})]
Weight = Annotated[float, Field(ge=0)]


def nodes_question(limits: Limits) -> TypeAdapter:
    """Nodes that the run's graph has: ``ids``."""
    ids = _list(Name, min_length=1, max_length=limits.max_nodes)
    return _adapter("NodesQuestion", {"ids": ids})


def new_nodes_question(schema: Schema, limits: Limits) -> TypeAdapter:
    """Nodes that come to the run's graph: ``nodes`` with ``id`` and ``features``, and ``edges`` between ids."""
    node = _object("NewNode", {"id": Name, "features": _features(schema)})
    nodes = _list(node, min_length=1, max_length=limits.max_nodes)
    return _adapter("NewNodesQuestion", {"nodes": nodes, "edges": NotRequired[_edges(Name, schema, limits)]})


def graphs_question(schema: Schema, limits: Limits) -> TypeAdapter:
    """Graphs: ``smiles``, or ``nodes``, which are features, and ``edges`` between their positions, from 0."""
    if schema.kind == MOLECULES:
        length = limits.max_nodes * CHARACTERS_PER_ATOM
        content = {"smiles": Annotated[str, Field(min_length=1, max_length=length)]}
    else:
        nodes = _list(_features(schema), min_length=1, max_length=limits.max_nodes)
        position = Annotated[int, Field(ge=0, lt=limits.max_nodes)]
        content = {"nodes": nodes, "edges": NotRequired[_edges(position, schema, limits)]}
    graph = _object("Graph", {"id": NotRequired[Name], **content})
    # A graph has at least one node.
    graphs = _list(graph, min_length=1, max_length=limits.max_nodes)
    return _adapter("GraphsQuestion", {"graphs": graphs})


def parse(question: TypeAdapter, body: bytes) -> dict[str, Any]:
    """The question that a body asks.

    Args:
        question: the kind that it must be.
        body: JSON, unchecked.

    Returns:
        Plain data of that type.
    """
    try:
        return question.validate_json(body)
    except ValidationError as error:
        raise _refusal_of(error.errors(include_url=False, include_context=False, include_input=False)[0]) from None


def _features(schema: Schema) -> Any:
    """The features of one node: a list of numbers, or an object with what each column is."""
    if schema.features is None:
        return _list(float, min_length=schema.num_features, max_length=schema.num_features)
    # A node's degree is counted here.
    asked = [feature for feature in schema.features if (schema.kind, feature.name) != (TU_FORMAT, DEGREE)]
    return _object("Features", {feature.name: _feature(feature) for feature in asked})


def _feature(feature: Feature) -> Any:
    """The value of a feature: a name, which nothing follows from, may be left out."""
    if feature.categories is not None:
        return Literal[feature.categories]
    return {None: float, BOOLEAN: bool, DATE: str, UNUSED: NotRequired[Any]}[feature.kind]


def _edges(end: Any, schema: Schema, limits: Limits) -> Any:
    weight = {"weight": Weight} if schema.is_weighted else {}
    edge = _object("Edge", {"source": end, "target": end, **weight})
    return _list(edge, max_length=limits.max_edges)


def _list(entry: Any, max_length: int, min_length: int = 0) -> Any:
    """A list of so many entries, of which none is looked at after the first that is wrong."""
    return Annotated[list[entry], FailFast(), Field(min_length=min_length, max_length=max_length)]


def _object(name: str, types: dict[str, Any]) -> Any:
    return with_config(CONFIG)(TypedDict(name, types))  # type: ignore[misc, operator]


def _adapter(name: str, types: dict[str, Any]) -> TypeAdapter:
    return TypeAdapter(_object(name, types))


def _refusal_of(fault: ErrorDetails) -> RefusalError:
    kind, message = fault["type"], fault["msg"]
    if kind == "json_invalid":
        return RefusalError(400, f"the body is not JSON in UTF-8: {message.removeprefix('Invalid JSON: ')}")
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"]).lstrip(".")
    # Pydantic speaks of "Input should" and "List should ... after validation".
    said = WORDS.get(kind) or re.sub(r"^\w+ (?=should )", "", message).replace(" after validation", "")
    return RefusalError(413 if kind == "too_long" else 422, f"{place or 'the body'} {said}")


class Health(BaseModel):
    """The server answers."""

    status: str = Field(examples=["ok"])


class FeatureInfo(BaseModel):
    """A column of the data: a number, or one of some categories."""

    name: str
    categories: list[str] | None = Field(description="Null for a number.")
    kind: str | None = Field(description="Of a number boolean or date, unused where nothing is learned, else null.")


class RunInfo(BaseModel):
    """The training that answers, and the data that it was trained on."""

    model: str
    dataset: str
    task: str
    metric: str
    validation: float = Field(description="The metric on validation data.")
    classes: list[str]
    features: list[FeatureInfo] | None = Field(description="Null where a node's features are a list of numbers.")
    num_features: int = Field(description="Columns that the model sees.")
    is_weighted: bool = Field(description="Whether edges have weights.")
    num_nodes: int | None = Field(description="Of the run's graph; null for the graph task.")


# The most probable class of a node or graph, and the probability of each; or that of a yes to each question; or the
# number that was asked for. Not written as a class, because `class` is a word of Python's.
Prediction = TypedDict(
    "Prediction",
    {
        "id": str,
        "class": NotRequired[str],
        "probabilities": NotRequired[dict[str, float]],
        "target": NotRequired[float],
    },
)


class Answer(TypedDict):
    """Predictions, in the order of the question."""

    predictions: list[Prediction]


def answer_of(predictions: Predictions) -> Answer:
    """Predictions as they are sent."""
    found: list[Prediction] = []
    for name, row in zip(predictions.ids, predictions.probabilities.tolist()):
        if predictions.metric == R2:
            found.append({"id": name, "target": row[0]})
            continue
        entry: Prediction = {"id": name, "probabilities": dict(zip(predictions.classes, row))}
        if predictions.metric == ACCURACY:
            entry = {"id": name, "class": predictions.classes[row.index(max(row))], **entry}
        found.append(entry)
    return {"predictions": found}


def info_of(service: NodeService | GraphService) -> RunInfo:
    """Description of a run for its clients."""
    schema, result = service.schema, service.predictor.choice.result
    features = None
    if schema.features is not None:
        features = [
            FeatureInfo(
                name=one.name, categories=None if one.categories is None else list(one.categories), kind=one.kind
            )
            for one in schema.features
        ]
    return RunInfo(
        model=result.model,
        dataset=schema.name,
        task=schema.task,
        metric=result.metric,
        validation=result.val_metric,
        classes=list(schema.classes),
        features=features,
        num_features=schema.num_features,
        is_weighted=schema.is_weighted,
        num_nodes=len(service.own.ids) if isinstance(service, NodeService) else None,
    )
