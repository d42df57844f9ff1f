import json

import pytest
from fuzzing import changed, fuzzed, input_errors_alone

from hkconv.data.own.features import Feature
from hkconv.data.own.schema import Schema, schema_of_dict
from hkconv.data.scaling import Scaling
from hkconv.errors import InputError

SCHEMA = Schema(
    name="papers",
    kind="tables",
    task="node",
    protocol="clean",
    classes=("a", "b"),
    features=(
        Feature("age", has_missing=True),
        Feature("colour", ("blue", "red")),
        Feature("name", kind="unused"),
        Feature("born", kind="date", date_format="%d.%m.%Y"),
    ),
    num_features=2,
    is_weighted=False,
    graphs_digest="1",
    answers_digest="2",
    scalings=(Scaling((True, False), (0.5, 0.25), (0.5, 0.0), (1e-4, 0.0)),),
    notes=("missing values: age 3",),
)
# As hkconv 0.1.0 and 0.2.0 wrote it.
FIRST = {
    "format_version": 1,
    "name": "papers",
    "kind": "tables",
    "task": "node",
    "protocol": "clean",
    "classes": ["a", "b"],
    "features": [{"name": "age", "categories": None}, {"name": "colour", "categories": ["blue", "red"]}],
    "num_features": 3,
    "is_weighted": False,
    "graphs_digest": "1",
    "answers_digest": "2",
}


@pytest.mark.parametrize("features", [SCHEMA.features, None, ()])
def test_json_and_back(features):
    schema = Schema(**{**vars(SCHEMA), "features": features})
    assert schema_of_dict(json.loads(json.dumps(schema.as_dict())), "data.json") == schema


def test_a_schema_of_the_first_release_has_features_as_they_are():
    schema = schema_of_dict(FIRST, "data.json")
    assert schema.features == (Feature("age"), Feature("colour", ("blue", "red")))
    assert schema.scalings is None and schema.notes == ()


@pytest.mark.parametrize(
    ("metric", "classes", "targets"), [("R2", ("target",), ((1.0, 2.5), (-3.0, 0.1))), ("ROC-AUC", ("is it?",), None)]
)
def test_numbers_and_answers_to_predict_and_back(metric, classes, targets):
    schema = Schema(**{**vars(SCHEMA), "metric": metric, "classes": classes, "targets": targets})
    assert schema_of_dict(json.loads(json.dumps(schema.as_dict())), "data.json") == schema
    assert (schema.num_logits, SCHEMA.num_logits) == (2, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metric": "F1"}, "'metric' must be one of accuracy, ROC-AUC, AP, R2"),
        ({"metric": "ROC-AUC", "classes": []}, "'classes' must be a list of names, 1 at least"),
        ({"metric": "R2"}, "'targets' must be a mean and a deviation for each split"),
        ({"targets": [[1.0, 2.0]]}, "'targets' must be a mean and a deviation for each split"),
        ({"metric": "R2", "targets": [[1.0]]}, "'targets' must be a mean and a deviation for each split"),
        ({"metric": "R2", "targets": 1.0}, "'targets' must be a mean and a deviation for each split"),
        ({"metric": "R2", "targets": [[0.0, float("nan")]]}, "'targets' must be a mean and a deviation for each split"),
        ({"format_version": 3}, "data.json has format version 3; this reads 1 and 2"),
        ({"scalings": [{}]}, "'scalings' must be a list of numbers for each of 2 features"),
        ({"scalings": []}, "'scalings' must be a list of numbers for each of 2 features"),
        ({"notes": 1}, "'notes' must be a list of sentences"),
        ({"features": [{"name": "a", "kind": "b"}]}, "'features' must be a list of names and categories"),
        ({"classes": "ab"}, "data.json is damaged: 'classes' must be a list"),
        ({"classes": ["a"]}, "'classes' must be a list of names, 2 at least"),
        ({"num_features": True}, "'num_features' must be a int"),
        ({"features": [{"name": 1}]}, "'features' must be a list of names and categories"),
        ({"features": [{"name": "a", "categories": [1]}]}, "'features' must be a list of names and categories"),
    ],
)
def test_damaged_files(changes, message):
    with pytest.raises(InputError, match=message):
        schema_of_dict({**json.loads(json.dumps(SCHEMA.as_dict())), **changes}, "data.json")


@fuzzed(values=changed(json.loads(json.dumps(SCHEMA.as_dict()))))
def test_whatever_a_file_says_only_input_errors_come_out(values):
    with input_errors_alone():
        # The reader of the file lets only objects through.
        schema_of_dict(values if isinstance(values, dict) else {}, "data.json").as_dict()
