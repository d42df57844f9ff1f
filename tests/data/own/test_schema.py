import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "categories"]), inner),
)


@settings(max_examples=200, deadline=None)
@given(changes=st.dictionaries(st.sampled_from(list(SCHEMA.as_dict())), ANYTHING))
def test_whatever_a_file_says_only_input_errors_come_out(changes):
    with contextlib.suppress(InputError):
        schema_of_dict({**json.loads(json.dumps(SCHEMA.as_dict())), **changes}, "data.json").as_dict()
