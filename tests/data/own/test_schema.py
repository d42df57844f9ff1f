import json

import pytest
from fuzzing import changed, fuzzed, input_errors_alone

from hkconv.data.own.features import Feature
from hkconv.data.own.schema import Schema, schema_of_dict
from hkconv.errors import InputError

SCHEMA = Schema(
    name="papers",
    kind="tables",
    task="node",
    protocol="clean",
    classes=("a", "b"),
    features=(Feature("age"), Feature("colour", ("blue", "red"))),
    num_features=3,
    is_weighted=False,
    graphs_digest="1",
    answers_digest="2",
)


@pytest.mark.parametrize("features", [SCHEMA.features, None, ()])
def test_json_and_back(features):
    schema = Schema(**{**vars(SCHEMA), "features": features})
    assert schema_of_dict(json.loads(json.dumps(schema.as_dict())), "data.json") == schema


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 2}, "data.json has format version 2; this reads 1"),
        ({"classes": "ab"}, "data.json is damaged: 'classes' must be a list"),
        ({"classes": ["a"]}, "'classes' must be a list of at least two names"),
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
