"""What the server says, as types for its schema."""

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from hkconv.serving.service import GraphService, NodeService
from hkconv.tasks.predict import Predictions


class Health(BaseModel):
    """The server answers."""

    status: str = Field(examples=["ok"])


class FeatureInfo(BaseModel):
    """A column of the data: a number, or one of some categories."""

    name: str
    categories: list[str] | None = Field(description="Null for a number.")


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


# The most probable class of a node or graph, and the probability of each. Not written as a class, because `class` is a
# word of Python's.
Prediction = TypedDict("Prediction", {"id": str, "class": str, "probabilities": dict[str, float]})


class Answer(TypedDict):
    """Predictions, in the order of the question."""

    predictions: list[Prediction]


def answer_of(predictions: Predictions) -> Answer:
    """Predictions as they are sent."""
    rows = zip(predictions.ids, predictions.predicted, predictions.probabilities.tolist())
    return {
        "predictions": [
            {"id": name, "class": predicted, "probabilities": dict(zip(predictions.classes, row))}
            for name, predicted, row in rows
        ]
    }


def info_of(service: NodeService | GraphService) -> RunInfo:
    """What a client must know of a run to ask it."""
    schema, result = service.schema, service.predictor.result
    features = None
    if schema.features is not None:
        features = [
            FeatureInfo(name=one.name, categories=None if one.categories is None else list(one.categories))
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
